"""Noise of the right size, in every runtime, and the same bits from the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state, publish
from fedssca.methods.calibrate import probe
from fedssca.methods.participation import participation
from fedssca.privacy.noise.messages import QUIET, MessageNoise, simulated, with_noise
from fedssca.privacy.noise.secret import SecretNoise
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.rounds.client import RowClient
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.run.build import build
from fedssca.run.config import Config, parse
from fedssca.run.execute import execute, train
from fedssca.run.privacy import survivors

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
PEERS = "ignore:privacy. noise hides samples from the server only"
pytestmark = pytest.mark.filterwarnings(PEERS)
P, J, L, N, B = 30, 20, 3, 60, 5
rng = np.random.default_rng(4)
DATA = {
    "x": rng.normal(size=(N, P)).astype(np.float32),
    "y": rng.integers(0, L, N).astype(np.int32),
}
TWO = (np.arange(0, P, 2), np.arange(1, P, 2))
SIGMA, CLIP, VALUE = 1.5, 0.7, 2.0


def problem(features: Any = None) -> Problem:
    from fedssca.problem.constraints import loss_at_most

    return classifier(mlp(P, J, L), loss_at_most(1.0), features=features)


def silent(problem: Problem, batch: int = B, steps: int = 1) -> Algorithm:
    """A method whose messages are 0, and whose rounds keep the sum: what is left is the noise."""

    def reply(terms: Terms, request: Request, batch: Batch) -> Message:
        del terms
        zero = 0 * batch["weight"].sum().astype(request.w.dtype)
        return Message(jnp.zeros(1) * zero, {"gradient": request.w * zero})

    def update(state: State, total: Message) -> State:
        return state._replace(round=state.round + 1, memory=total)

    def init(w: Array) -> State:
        return first_state(problem, w, Message(jnp.zeros(1), {"gradient": jnp.zeros_like(w)}))

    return Algorithm("silent", batch, steps, init, publish, reply, update)


def noise_of(
    runtime: Any,
    parties: Rows | Columns,
    algorithm: Algorithm,
    noise: MessageNoise,
    rounds: int = 40,
) -> Any:
    """Standard deviations of gradients and values over some rounds."""
    made = problem(parties.blocks if isinstance(parties, Columns) else None)
    engine = runtime(made, parties, algorithm, 3, simulated(noise, 3))
    state = algorithm.init(made.start)
    seen: list[Message] = []
    for t in range(1, rounds + 1):
        state = engine.advance(state, t)
        seen.append(jax.device_get(state.memory))
    slopes = np.concatenate([m.vectors["gradient"] for m in seen])
    return slopes.std(), np.concatenate([m.scalars for m in seen]).std()


CASES: dict[str, tuple[Rows | Columns, dict[str, Any], float]] = {
    # what a unit weighs in what is seen of it, over all that add noise
    "samples": (Rows(DATA, (20, 30, 10)), {}, np.sqrt(20**2 + 30**2 + 10**2) / (N * B)),
    "clients": (Rows(DATA, (20, 30, 10)), {"unit": "client"}, np.sqrt(1400) / N),
    "sums only": (Rows(DATA, (20, 30, 10)), {"survivors": 2}, 30 / (N * B) * np.sqrt(3 / 2)),
    "columns": (Columns(DATA, TWO), {}, 1 / B),
}


@pytest.mark.parametrize("runtime", [Fused, Local])
@pytest.mark.parametrize("case", CASES)
def test_noise_has_its_size(case: str, runtime: Any) -> None:
    parties, more, weight = CASES[case]
    made = problem(parties.blocks if isinstance(parties, Columns) else None)
    settings: dict[str, Any] = {"clip": CLIP, "value_clip": VALUE, "noise_multiplier": SIGMA}
    algorithm, noise = with_noise(silent(made), made, parties, **settings, rounds=41, **more)
    slopes, values = noise_of(runtime, parties, algorithm, noise)
    s = SIGMA * np.sqrt(1 + 1 / QUIET**2)
    assert slopes == pytest.approx(s * CLIP * weight, rel=0.03)
    assert values == pytest.approx(QUIET * s * VALUE * weight, rel=0.45)  # 40 numbers


@pytest.mark.parametrize("cohort", [0, 2])
def test_poisson_batches_are_the_same_in_every_runtime(cohort: int) -> None:
    """Sums without noise to speak of; the clients' share of known parts does not vary."""
    from fedssca.methods.schedule import power
    from fedssca.methods.sgd import sgd, sgd_change

    parties, free = Rows(DATA, (20, 30, 10)), classifier(mlp(P, J, L), [])
    one = sgd(free, batch=B, rate=power(0.3, 1.0), momentum=0.5)
    one = participation(one, clients=3, cohort=cohort, seed=3) if cohort else one
    change = sgd_change(free, rate=power(0.3, 1.0), momentum=0.5)
    made, noise = with_noise(
        one, free, parties, clip=1.0, noise_multiplier=1e-6, rounds=9, change=change, seed=3
    )
    assert made.places > B
    ends = []
    for runtime in (Fused, Local):
        engine = runtime(free, parties, made, 3, simulated(noise, 3))
        ends.append(np.asarray(engine.advance(made.init(free.start), 5).w))
    assert np.linalg.norm(ends[0] - ends[1]) < 1e-4 * np.linalg.norm(ends[0])
    fixed, _ = with_noise(
        one,
        free,
        parties,
        clip=1.0,
        noise_multiplier=1e-6,
        rounds=9,
        change=change,
        seed=3,
        sampling="fixed",
    )
    assert fixed.places == 0


def test_noise_follows_the_length_of_a_step() -> None:
    from fedssca.methods.schedule import power
    from fedssca.methods.sgd import sgd, sgd_change

    free = classifier(mlp(P, J, L), [])
    one = sgd(free, batch=N, rate=power(0.3, 1.0))
    parties = Rows(DATA, (N,))
    change = sgd_change(free, rate=power(0.3, 1.0))
    _, spent = with_noise(
        one, free, parties, clip=1e-6, noise_multiplier=1e6, rounds=9, change=change
    )
    for t, w in ((1, free.start), (3, free.start * 2)):
        hide = simulated(spent, 0).client(0, 1.0)
        silence = Message((), {"change": jnp.zeros_like(w)})
        noise = np.asarray(hide(silence, Request(jnp.asarray(t), w)).vectors["change"])
        assert noise.std() == pytest.approx(0.3 / t / N, rel=0.1)


def test_probes_of_one_round_have_noise_of_their_own() -> None:
    made, parties = problem(), Rows(DATA, (N,))
    _, noise = with_noise(silent(made), made, parties, clip=1.0, noise_multiplier=1.0, rounds=9)
    hide = simulated(noise, 0).client(0, 1.0)
    silence = Message(jnp.zeros(1), {"gradient": jnp.zeros_like(made.start)})
    here, there, again = (
        np.asarray(hide(silence, Request(jnp.asarray(0), w)).vectors["gradient"])
        for w in (made.start, made.start * 1.001, made.start)
    )
    assert (here == again).all()
    assert abs(np.corrcoef(here, there)[0, 1]) < 0.2


def test_a_site_does_not_use_the_seed_and_stops_when_all_is_spent() -> None:
    made, parties = problem(), Rows(DATA, (N,))
    amount = {"clip": 1.0, "noise_multiplier": 1.0}
    algorithm, noise = with_noise(silent(made), made, parties, **amount, rounds=3)
    asked = publish(algorithm.init(made.start))
    rows = [
        RowClient(0, made, algorithm, DATA, N, 5, perturbation)
        for perturbation in (
            SecretNoise().perturbation(noise),
            SecretNoise().perturbation(noise),
            simulated(noise, 5),
            simulated(noise, 5),
        )
    ]
    a, b, c, d = (np.asarray(row.handle("reply", asked)[-1].vectors["gradient"]) for row in rows)
    assert (c == d).all()
    assert not np.intersect1d(a, b).size
    assert not np.intersect1d(a, c).size
    assert a.std() == pytest.approx(c.std(), rel=0.2)
    again = np.asarray(rows[0].handle("reply", asked)[-1].vectors["gradient"])
    assert (again == a).all()  # the same request is no second message
    rows[0].handle("reply", asked._replace(round=jnp.asarray(2)))
    for t in (0, 1, 2, 3):
        with pytest.raises(UserError, match="none that this site's account has"):
            rows[0].handle("reply", asked._replace(round=jnp.asarray(t), w=2 * asked.w))
    message = Message((), {})
    assert simulated(None, 5).client(0, 1.0)(message, asked) is message
    assert SecretNoise().perturbation(None).client(0, 1.0)(message, asked) is message


def test_a_cohort_is_counted_not_guessed() -> None:
    made, parties = problem(), Rows(DATA, (10,) * 6)
    one = participation(silent(made), clients=6, cohort=2, seed=1)
    _, noise = with_noise(
        one, made, parties, clip=1.0, unit="client", noise_multiplier=4.0, rounds=31, seed=1
    )
    ledger = noise.ledger
    assert ledger is not None
    asked = np.zeros(6)
    for t in range(30):
        asked[
            np.asarray(
                one.request(one.init(made.start)._replace(round=jnp.asarray(t))).turnout.asked
            )
        ] += 1
    assert ledger.count(30) == asked.max() < 30
    assert ledger.rate == 1
    probing = participation(probe(made, B), clients=6, cohort=2, seed=1)
    _, alike = with_noise(
        probing, made, parties, clip=1.0, unit="client", noise_multiplier=4.0, rounds=31, seed=1
    )
    assert alike.ledger == ledger  # the same noise for probes, whatever rounds they name


SMALL = """
[data]
clients = 4
[model]
hidden = 4
[algorithm]
batch = 10
rounds = 8
[problem]
constraint = [{kind = "loss", limit = 1.9}]
[privacy]
clip = 1.0
value_clip = 3.0
epsilon = 5.0
[run]
evaluate_every = 3
checkpoint_every = 4
"""


def test_a_private_run_says_what_it_spent_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    config = parse(SMALL)
    whole = execute(config, tmp_path / "whole")
    assert whole["epsilon"] == pytest.approx(5.0, rel=0.03)
    assert whole["epsilon"] <= 5.0
    assert {"delta", "noise_multiplier", "accountant", "neighbours"} <= set(whole)
    assert whole["private_messages"] == 7 + 6
    assert whole["private_evaluations"] == 4
    assert "covers the messages and the evaluations" in whole["notes"][0]
    assert whole["kkt_residual"] is None
    assert whole["certificate"]["limits"][0]["value"] == whole["train_cost"]
    w, last = (np.load(tmp_path / "whole" / "model.npz")[name] for name in ("w", "w_last"))
    assert (w == last).all()  # no search on exact values

    class Stop(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 6:
            raise Stop

    with pytest.raises(Stop):
        execute(config, tmp_path / "halves", on_row=stop)
    rows: list[dict[str, Any]] = []
    halves = execute(
        parse((tmp_path / "halves" / "config.toml").read_text()),
        tmp_path / "halves",
        resume=True,
        on_row=rows.append,
    )
    assert (np.load(tmp_path / "halves" / "model.npz")["w"] == w).all()
    assert halves["epsilon"] == whole["epsilon"]
    spent = [row["epsilon"] for row in rows]
    assert spent == sorted(spent)
    assert spent[0] > 0  # probes


def job(*settings: str) -> Any:
    config: Config = parse(SMALL, settings)
    return build(config)


@pytest.mark.parametrize(
    "settings",
    [
        ["data.split=feature", "data.clients=2", "run.runtime=local"],
        ["privacy.unit=client", "algorithm.local_steps=2", "privacy.secure_sum=true"],
        ["algorithm.cohort=2"],
        ["privacy.sampling=fixed"],
        ["privacy.evaluation=exact"],
    ],
)
def test_every_way_to_train_spends_what_it_may(settings: list[str]) -> None:
    one = job(*settings)
    result = train(one)
    assert 0.9 * 5 < result.privacy["epsilon"] <= 5.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["privacy.clip=0.0"], "noise needs privacy.clip"),
        (["privacy.noise_multiplier=1.0"], "keep one of them"),
        (["privacy.clip=-1.0"], "must be at least 0"),
        (["privacy.delta=0.0"], r"must lie in \(0, 1\)"),
        (["privacy.unit=house"], "known are client, sample"),
        (["algorithm.local_steps=2"], "one step only"),
        (["data.split=feature", "privacy.unit=client"], "know of the same people"),
        (["data.split=feature", "data.collection=open"], "which no noise hides"),
    ],
)
@pytest.mark.filterwarnings("ignore:data.collection")
def test_what_cannot_be_is_said(settings: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        job(*settings)


def test_peers_are_not_covered() -> None:
    with pytest.warns(UserWarning, match="peers see them"):
        job("data.split=feature", "data.clients=2")


@pytest.mark.parametrize("threshold", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("clients", [2, 3, 10, 100])
def test_the_smallest_sum_is_that_of_the_secure_sum(clients: int, threshold: float) -> None:
    pytest.importorskip("cryptography")
    from fedssca.privacy.sums.graph import Rules

    config = parse(SMALL, ["privacy.secure_sum=true", f"privacy.threshold={threshold}"])
    assert survivors(config, clients) == Rules(b"", clients, 0, threshold).least
    assert survivors(parse(SMALL, ["privacy.homomorphic=true"]), clients) == 0
