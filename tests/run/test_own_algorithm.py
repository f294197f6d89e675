"""Algorithms of users by name: the one of the docs page, simulated, deployed, tuned, refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.errors import UserError
from fedssca.run.config import parse, render
from fedssca.run.execute import execute
from fedssca.run.tune.space import choose_methods, points
from fedssca.run.tune.trial import Trial, with_settings
from tests.deploy.loopback import RUN, Loopback, parties
from tests.markdown_blocks import ROOT, blocks

BROKEN = """
import jax.numpy as jnp
from fedssca import Algorithm, first_state, gradients, publish

def number(problem, **_):
    return 3

def growing(problem, *, batch, steps, rate):
    init = lambda w: first_state(problem, w, ())
    reply = lambda terms, request, rows: gradients(problem, terms, request.w, rows)
    update = lambda state, total: state._replace(round=state.round + 1, memory=state.w)
    return Algorithm("growing", batch, 1, init, publish, reply, update)

def failing(problem, *, batch, steps, rate):
    init = lambda w: first_state(problem, w, ())
    reply = lambda terms, request, rows: rows["nothing"]
    return Algorithm("failing", batch, 1, init, publish, reply, lambda s, m: s)

growing.ranges = 3
"""
CONFIG = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "linear"
[[problem.constraint]]
kind = "loss"
limit = 0.3
[algorithm]
name = "my_methods:adam"
options = {dual = 0.5}
rate = 0.05
batch = 20
rounds = 40
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of the docs page, and one with mistakes."""
    (block,) = [b for b in blocks(ROOT / "docs/own-algorithm.md") if b.language == "python"]
    assert len(block.text.splitlines()) < 40
    (tmp_path / "my_methods.py").write_text(block.text)
    (tmp_path / "broken_methods.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_methods", "broken_methods"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("split", ["sample", "feature"])
def test_deployed_is_simulated_and_sites_decide(split: str, package: Path) -> None:
    config = parse(CONFIG, [f"data.split={split}"])
    files = write_site_files(config, 2, package / "data")
    order = RunOrder(config, site_names(2), RUN, False)
    allowed = files[0].read_text()
    assert 'packages = [\n    "my_methods",\n]' in allowed
    files[0].write_text(allowed.replace('"my_methods"', '"others"'))
    with pytest.raises(UserError, match=r"limits.packages = .* the function 'my_methods:adam'"):
        RunServer(order, Loopback(parties(files)), package / "run").run()
    assert "my_methods" not in sys.modules
    files[0].write_text(allowed)
    ours = RunServer(order, Loopback(parties(files)), package / "run").run()
    theirs = execute(config, package / "simulated")
    assert ours["feasible"]
    assert theirs["train_accuracy"] > 0.9
    a, b = (np.load(package / run / "model.npz")["w_last"] for run in ("run", "simulated"))
    assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["algorithm.name=my_methods:adm"], "my_methods has no function 'adm'; did you mean 'adam"),
        (["algorithm.name=broken_methods:number"], "returned int: it must return a fedssca Algori"),
        (["algorithm.name=broken_methods:growing"], "memory was () and is float32(31,)"),
        (["algorithm.name=broken_methods:failing"], "failing, reply' failed: KeyError: 'nothing'"),
        (["algorithm.name=my_methods"], "is unknown: known are augmented"),
        (["algorithm.options={duel=3}"], "failed: TypeError: adam() got an unexpected keyword"),
        (["privacy.epsilon=3.0", "privacy.clip=1.0"], "noise is accounted for the messages of"),
        (["algorithm.name=ssca"], "options are for a function of yours in algorithm.name"),
    ],
)
def test_refused(settings: list[str], said: str, package: Path) -> None:
    if settings[0].startswith("algorithm.name=b"):
        settings = [*settings, "algorithm.options={}"]
    with pytest.raises(UserError) as caught:
        execute(parse(CONFIG, settings), package / "run")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ranges_and_options_of_a_search(package: Path) -> None:
    config = parse(CONFIG)
    chosen, _ = choose_methods(config, ["ssca", "my_methods:adam"])
    planned = [Trial(*point) for point in points(config, chosen, 2, seed=0)]
    runs = [with_settings(config, trial) for trial in planned]
    assert [run.algorithm.options for run in runs[:2]] == [None, None]
    assert set(planned[3].settings) == {"algorithm.rate.a", "algorithm.options.dual"}
    assert 0.01 <= runs[3].algorithm.options["dual"] <= 3.0
    assert parse(render(runs[3])) == runs[3]
    with pytest.raises(UserError, match="`ranges` must be a table of option"):
        choose_methods(config, ["broken_methods:growing"])
