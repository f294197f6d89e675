"""Step sizes by probing: known curvatures, known noise, and what the probes cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.evaluate.traffic import traffic
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.calibrate import PROBES, STRIDE, Probe, calibrate, probe, step_sizes
from fedssca.problem.custom import custom_problem
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.run import build as building
from fedssca.run.build import build
from fedssca.run.config import Config, parse
from fedssca.run.execute import execute, load_config
from fedssca.run.record import RunDirectory
from fedssca.run.schema import StepSettings

pytestmark = pytest.mark.usefixtures("float64")

N, P = 64, 5
rng = np.random.default_rng(2)
X = rng.normal(size=(N, P)) * [3.0, 1.5, 1.0, 0.5, 0.2]
ROWS = Rows({"x": X, "y": X @ rng.normal(size=P)}, (24, 40))
TOP = float(np.linalg.eigvalsh(X.T @ X / N)[-1])


def quadratic(dtype: str = "float64", **settings: Any) -> Problem:
    """F_0 = mean 1/2 (x'w - y)^2, of Hessian mean x x'; a limit on three times that."""

    def terms(w: Any, batch: Any) -> Any:
        square = jnp.square(batch["x"].astype(dtype) @ w - batch["y"].astype(dtype)) / 2
        return square[None]

    settings = {"combine": [[1], [3]], "limits": [0.1]} | settings
    return custom_problem(terms, jnp.ones(P, dtype), **settings)


def found(p: Problem, rows: Rows, batch: int) -> Probe:
    method = probe(p, batch)
    return Fused(p, rows, method, 0).advance(method.init(p.start), PROBES).memory


def test_the_curvature_of_a_quadratic() -> None:
    """A batch of all rows: the largest eigenvalue of each Hessian."""
    rows = Rows(ROWS.columns, (N,))
    seen = found(quadratic(), rows, N)
    np.testing.assert_allclose(seen.curvature, [TOP, 3 * TOP], rtol=0.1)
    assert (np.asarray(seen.curvature) <= np.array([TOP, 3 * TOP]) * (1 + 1e-9)).all()


def test_the_curvature_in_single_precision() -> None:
    with jax.enable_x64(False):
        seen = found(quadratic("float32"), Rows(ROWS.columns, (N,)), N)
    assert seen.curvature.dtype == np.float32
    np.testing.assert_allclose(seen.curvature, [TOP, 3 * TOP], rtol=0.1)


def test_the_noise_of_a_batch() -> None:
    """f = x'w: a batch's gradient is its mean of x, so both lengths can be told beforehand."""
    rows, size, batch = 2000, 8000, 40  # so many numbers that one batch tells the noise to 2 %
    x = 0.3 + np.random.default_rng(1).normal(size=(rows, size))
    p = custom_problem(lambda w, b: (b["x"] @ w)[None], jnp.zeros(size))
    noise = x.var(axis=0, ddof=1).sum() / batch * (1 - batch / rows)
    signal = np.square(x.mean(axis=0)).sum() + noise  # of one batch's gradient
    seen = found(p, Rows({"x": x}, (rows,)), batch)
    assert float(seen.snr) == pytest.approx(signal / noise, rel=0.1)


def test_step_sizes_scale_with_the_curvature_and_shorten_in_noise() -> None:
    tau = lambda curvature, snr: np.array(step_sizes(np.array(curvature), snr, 100).tau)  # noqa: E731
    quiet = tau([1.0, 2.0], 1e6)
    assert quiet[1] == pytest.approx(2 * quiet[0], rel=0.01)
    np.testing.assert_allclose(tau([10.0, 20.0], 1e6), 10 * quiet, rtol=0.01)
    np.testing.assert_allclose(tau([1.0, 2.0], 50.0), quiet)
    assert (tau([1.0, 2.0], 1.0) > 2 * quiet).all()
    assert (tau([0.0, 0.0], 1.0) > 0).all()
    spans = 100.0, 4 / STRIDE
    far, near = (step_sizes(np.ones(2), 1e6, 100, span=span).tau[0] for span in spans)
    assert far == step_sizes(np.ones(2), 1e6, 100).tau[0]
    assert near == pytest.approx(2 * far, rel=0.01), "a step of 4 / L where 8 / L is usual"
    steps = step_sizes(np.ones(1), 1.0, 100)
    assert float(steps.rho(1)) == 1.0
    assert float(steps.gamma(100)) == 0.0


def test_messages_and_compiled_rounds_find_the_same_and_bytes_are_those_of_rounds() -> None:
    p, used = quadratic(), []

    def local(method: Algorithm) -> Local:
        used.append(Local(p, ROWS, method, 0))
        return used[-1]

    there = calibrate(p, 8, 100, local)
    assert there == calibrate(p, 8, 100, lambda method: Fused(p, ROWS, method, 0))
    a_round = traffic(p, ROWS, probe(p, 8))
    sent = (used[0].bytes_up, used[0].bytes_down, used[0].bytes_peer)
    assert sent == tuple(PROBES * n for n in a_round)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite(bad: float) -> None:
    p, x = quadratic("float32"), X.copy()
    x[:, 2] = bad
    rows = Rows({**ROWS.columns, "x": x}, (24, 40))
    with pytest.raises(UserError, match="gradients at the start are not finite: check the data"):
        calibrate(p, 8, 100, lambda method: Fused(p, rows, method, 0))


# Runs --------------------------------------------------------------------------------------------

OPEN = ["data.name=breast-cancer", "data.clients=3", "model.hidden=2", "algorithm.rounds=21"]
OPEN += ["problem.constraint=[{kind='loss', limit=0.5}]", "run.checkpoint_every=10"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    config, out = parse("", OPEN), tmp_path_factory.mktemp("calibrated") / "run"
    execute(config, out)
    return config, out


@pytest.mark.long
def test_what_was_left_open_is_written_down_and_paid_for(whole: tuple[Config, Path]) -> None:
    given, out = whole
    resolved = load_config(out)
    assert (given.algorithm.tau, given.algorithm.probes) == (None, 0)
    assert len(resolved.algorithm.tau) == 2
    assert resolved.algorithm.probes == PROBES
    assert resolved.algorithm.rho.warm
    assert resolved.algorithm.gamma.cool > 0
    job = build(resolved)  # as written down: nothing is open any more
    assert job.config == resolved
    a_round = traffic(job.problem, job.clients, job.algorithm)
    probing = traffic(job.problem, job.clients, probe(job.problem, job.algorithm.batch))
    for row in RunDirectory.open(out).rows():
        assert row["bytes_up"] == row["round"] * a_round.up + PROBES * probing.up
        assert row["bytes_down"] == row["round"] * a_round.down + PROBES * probing.down


def test_a_resumed_run_does_not_calibrate_again(
    whole: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, unbroken = whole
    out = tmp_path / "run"

    def dies(row: dict[str, Any]) -> None:
        if row["round"] == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(given, out, on_row=dies)
    monkeypatch.setattr(building, "calibrate", lambda *_: pytest.fail("calibrated again"))
    end = execute(load_config(out), out, resume=True)
    assert (out / "config.toml").read_text() == (unbroken / "config.toml").read_text()
    before = json.loads((unbroken / "result.json").read_text())
    assert end["certificate"] == before["certificate"]
    assert end["bytes_up"] == before["bytes_up"]


def test_what_is_given_stays() -> None:
    gamma = "algorithm.gamma={a=0.2, cool=0.5}"
    job = build(parse("", [*OPEN, "algorithm.tau=0.5", gamma]))
    assert job.config.algorithm.tau == 0.5
    assert job.config.algorithm.gamma == StepSettings(0.2, cool=0.5)
    assert job.config.algorithm.rho.warm
