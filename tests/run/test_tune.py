"""Tuning: the same budget for all, validation rows that do not train, trials that are kept."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.data import Dataset
from fedssca.errors import Diverged, UserError
from fedssca.run import build as building
from fedssca.run import execute as runner
from fedssca.run.config import parse, render
from fedssca.run.tune.search import plan, tune
from fedssca.run.tune.space import METHODS, NORM_FACTOR, RIVALS, SPACES, Range, choose_methods
from fedssca.run.tune.trial import Trial, best, with_settings
from tests.cli_helpers import Shell, files

FREE = """
[data]
clients = 4
[model]
hidden = 4
[algorithm]
batch = 10
rounds = 5
[run]
evaluate_every = 2
"""
LIMITED = (
    FREE + '[problem]\nobjective = "norm"\n[[problem.constraint]]\nkind = "loss"\nlimit = 2.2\n'
)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "free.toml").write_text(FREE)
    (tmp_path / "limited.toml").write_text(LIMITED)
    return Shell(tmp_path, monkeypatch, capsys)


class Trainings(list[dict[str, Any]]):
    """Counts trainings; with `pretend` they cost nothing."""

    def __init__(self, patch: pytest.MonkeyPatch, pretend: bool = False) -> None:
        super().__init__()
        real = runner.simulate

        def watched(problem: Any, clients: Any, algorithm: Any, *rest: Any, **options: Any) -> Any:
            self.append({"clients": clients, "name": algorithm.name, **options})
            if not pretend:
                return real(problem, clients, algorithm, *rest, **options)
            options["on_row"] and options["on_row"]({"round": 0})
            limits = [-0.1] * problem.constraints
            final = {"constraints": limits, "norm_sq": 1.0 + len(self)}
            final |= {"test_cost": 1.0 + len(self), "test_accuracy": 0.5}
            return type("Done", (), {"final": final, "diverged": ""})

        patch.setattr(runner, "simulate", watched)


def test_every_method_gets_the_same_points() -> None:
    config = parse(LIMITED)
    planned = plan(config, METHODS, 5, seed=3)
    assert [(t.method, t.number) for t in planned] == [(m, i) for m in METHODS for i in range(5)]
    assert planned[0].settings == {}  # ssca's automatic step sizes
    assert all(list(t.settings) == [r.key for r in SPACES[t.method]] for t in planned[1:])
    rates = {
        m: [t.settings["algorithm.rate.a"] for t in planned if t.method == m] for m in METHODS[1:]
    }
    assert rates["sgd"] == rates["momentum"] == rates["primal-dual"] == rates["penalty"]
    assert plan(config, ["sgd"], 3, seed=3) == [t for t in planned if t.method == "sgd"][:3]
    assert plan(config, ["sgd"], 3, seed=4) != plan(config, ["sgd"], 3, seed=3)


def test_ranges() -> None:
    for scale, low, middle, high in (
        ("log", 0.01, 0.1, 1.0),
        ("even", -0.05, -0.025, 0.0),
        ("rest", 0.0, 0.9, 0.99),
    ):
        spread = Range("algorithm.x", low, high, scale)
        assert [spread.at(q, True) for q in (0, 0.5, 1)] == pytest.approx([low, middle, high])
    assert Range("problem.penalty", 1, 10, price=True).at(0, True) == NORM_FACTOR
    assert Range("problem.penalty", 1, 10, price=True).at(0, False) == 1


@pytest.mark.parametrize("method", METHODS)
def test_settings_reach_the_run_and_nothing_else_changes(method: str) -> None:
    config = parse(LIMITED, ["algorithm.local_steps=2", "algorithm.probes=6", "algorithm.tau=0.5"])
    trial = plan(config, [method], 2, seed=0)[1]
    made = with_settings(config, trial)
    assert made.algorithm.name == method
    assert made.algorithm.probes == 0
    assert made.algorithm.local_steps == (2 if method in ("ssca", "sgd", "momentum") else 1)
    for key, value in trial.settings.items():
        place: Any = made
        for name in key.split("."):
            place = getattr(place, name)
        assert place == value
    if method in RIVALS:
        assert made.algorithm.rate.cool == 0.8
    if method == "ssca":
        automatic = with_settings(config, plan(config, [method], 1, seed=0)[0]).algorithm
        assert (automatic.rho, automatic.gamma, automatic.tau) == (None, None, None)
    assert (made.data, made.model, made.run) == (config.data, config.model, config.run)
    assert parse(render(made)) == made


def test_score() -> None:
    trials = [
        Trial("a", 0, {}, diverged="training diverged"),
        Trial("a", 1, {}, violation=0.2, objective=0.1),
        Trial("a", 2, {}, violation=0.1, objective=5.0),
        Trial("b", 0, {}, violation=0.0, objective=3.0),
        Trial("b", 1, {}, violation=0.0, objective=2.0),
        Trial("b", 2, {}, violation=1e-9, objective=0.0),
        Trial("c", 0, {}, diverged="training diverged"),
    ]
    assert {name: t.number for name, t in best(trials).items()} == {"a": 2, "b": 1, "c": 0}
    assert [t.feasible for t in trials] == [False, False, False, True, True, False, False]


def test_methods_that_fit() -> None:
    free, limited = parse(FREE), parse(LIMITED)
    assert choose_methods(free, None)[0] == ["ssca", "sgd", "momentum"]
    names, notes = choose_methods(limited, None)
    assert names == ["ssca", "primal-dual", "augmented", "penalty", "switching"]
    assert notes[0] == "sgd is left out: it takes no constraints"
    assert choose_methods(limited, ["ssca", "ssca"]) == (["ssca"], [])
    for config, name in ((limited, "sgd"), (free, "penalty")):
        with pytest.raises(UserError, match=f"{name} does not fit this problem"):
            choose_methods(config, [name])


def test_validation_rows_do_not_train_and_test_rows_are_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = building.load_dataset(parse(FREE))
    rows = len(real.train["y"])
    numbered = dataclasses.replace(
        real,
        train=real.train | {"id": np.arange(rows, dtype=np.int32)},
        test={},
    )
    seen = Trainings(monkeypatch, pretend=True)
    for split in ("sample", "feature"):
        config = parse(FREE, [f"data.split={split}"])
        tune(config, ["sgd"], 2, 0, dataset=numbered)
    tune(parse(FREE), ["sgd"], 1, 1, dataset=numbered)
    held = [entry["test"]["id"] for entry in seen]
    for entry, judges in zip(seen, held, strict=True):
        own = entry["clients"].columns["id"]
        assert sorted([*own, *judges]) == list(range(rows))
        assert len(judges) == pytest.approx(0.2 * rows, abs=5)
        shares = np.bincount(entry["test"]["y"]) / np.bincount(real.train["y"])
        assert shares == pytest.approx(0.2, abs=0.01)
    assert all(np.array_equal(held[0], other) for other in held[1:4])
    assert not np.array_equal(held[0], held[4])


def test_sizes_shrink_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Trainings(monkeypatch, pretend=True)
    rows = len(building.load_dataset(parse(FREE)).train["y"])
    tune(parse(FREE, [f"data.sizes=[1000, 300, 100, {rows - 1400}]"]), ["sgd"], 1)
    assert seen[0]["clients"].sizes == pytest.approx((800, 240, 80, 0.8 * (rows - 1400)), abs=2)
    tune(parse(FREE, ["data.sizes=[0.5, 0.3, 0.1, 0.1]"]), ["sgd"], 1)
    assert seen[1]["clients"].total == pytest.approx(1150, abs=5)
    with pytest.raises(UserError, match=r"80 % of the training rows train: batch = 28 is larger"):
        tune(parse(FREE, ["data.sizes=[1000, 300, 100, 30]", "algorithm.batch=28"]), ["sgd"], 1)


def test_the_python_api_with_a_diverged_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPACES, "sgd", (Range("algorithm.rate.a", 1e29, 1e30),))
    seen: list[Trial] = []
    trials = tune(parse(FREE, ["problem.l2=1.0"]), ["momentum", "sgd"], 1, 0, seen.append)
    assert trials == seen
    ended, lost = trials
    assert lost.diverged.startswith("training diverged")
    assert lost.score > ended.score
    assert ended.objective == ended.validation_cost
    assert ended.validation_accuracy is not None
    json.dumps([dataclasses.asdict(t) for t in trials], allow_nan=False)


def test_from_the_command_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Trainings(monkeypatch)
    file, out = shell.folder / "limited.toml", shell.folder / "deep/out"
    command = ("tune", file, "--methods", "ssca,primal-dual", "--out", out)
    done = shell(*command, "--trials", 2)
    assert done.code == 0, done.err
    assert [e["name"] for e in seen] == ["ssca"] * 2 + ["primal_dual"] * 2
    for word in ("method", "kept", "|w|²", "val. acc.", "ssca", "primal-dual", "settings"):
        assert word in done.out
    assert max(map(len, done.out.splitlines()[:-1])) <= 80
    assert "4/4" in done.err

    found = json.loads((out / "tune.json").read_text())
    assert [(t["method"], t["number"]) for t in found["trials"]] == [
        ("ssca", 0), ("ssca", 1), ("primal-dual", 0), ("primal-dual", 1)
    ]  # fmt: skip
    assert found["versions"]["fedssca"]
    assert all(t["objective"] == t["norm_sq"] for t in found["trials"])
    for trial in found["trials"]:
        assert trial["feasible"] == all(value <= 0 for value in trial["constraints"])
    assert {p.name for p in out.iterdir()} == {
        "trials.jsonl", "tune.json", "best-ssca.toml", "best-primal-dual.toml"
    }  # fmt: skip
    for name in ("ssca", "primal-dual"):
        ran = shell("run", out / f"best-{name}.toml", "--out", shell.folder / name, "--json")
        assert ran.code == 0, ran.err
        made = parse((shell.folder / name / "config.toml").read_text())
        assert made.algorithm.name == name
        assert made.data.clients == 4

    before, count = (out / "trials.jsonl").read_bytes(), len(seen)
    again = shell(*command, "--trials", 2, "--json", "--resume")
    assert len(seen) == count  # nothing was trained again
    assert again.err == ""
    assert again.out.count("\n") == 1
    assert json.loads(again.out) == found == json.loads((out / "tune.json").read_text())
    assert (out / "trials.jsonl").read_bytes() == before

    kept = files(out)
    for change in (("--seed", 1), ("--set", "algorithm.batch=9")):
        line = shell.refused(*command, *change)
        assert f"{out} holds the trials of another config, seed or data" in line
    assert files(out) == kept
    assert len(seen) == count


def test_more_trials_go_on_from_fewer_and_half_a_line_is_passed_over(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Trainings(monkeypatch, pretend=True)
    monkeypatch.chdir(shell.folder)
    assert shell("tune", "free.toml", "--methods", "sgd", "--trials", 2, "--quiet").code == 0
    trials = shell.folder / "runs/tune-free/trials.jsonl"
    trials.write_bytes(trials.read_bytes() + b'{"key": "')
    done = shell("tune", "free.toml", "--methods", "sgd, momentum", "--trials", 3, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert len(seen) == 2 + 1 + 3
    rows = [json.loads(line) for line in trials.read_text().splitlines()]
    assert [(r["method"], r["number"]) for r in rows] == [
        ("sgd", 0), ("sgd", 1), ("sgd", 2), ("momentum", 0), ("momentum", 1), ("momentum", 2)
    ]  # fmt: skip
    done = shell("tune", "free.toml", "--trials", 1)
    assert "note: switching is left out: it needs constraints" in done.err
    assert "val. cost" in done.out


def test_all_trials_diverged(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise Diverged("training diverged: objective is nan at round 2")

    monkeypatch.setattr(runner, "simulate", fail)
    out = shell.folder / "out"
    done = shell("tune", shell.folder / "limited.toml", "--out", out, "--trials", 2)
    assert done.code == 0, done.err
    assert "diverged trials: ssca 2, primal-dual 2" in done.out
    assert {p.name for p in out.iterdir()} == {"trials.jsonl", "tune.json"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--methods", "scca"), "no method is named 'scca': did you mean 'ssca'?"),
        (
            ("--methods", "zzzzz"),
            "no method is named 'zzzzz': known are augmented, momentum, penalty",
        ),
        (("--methods", ","), "no method to tune: name some of ssca"),
        (("--methods", "sgd"), "sgd does not fit this problem: it takes no constraints"),
        (("--trials", "0"), "trials = 0: it must be at least 1"),
        (("--trials", "many"), "Invalid value for '--trials'"),
        (("--seed", "-1"), "seed = -1"),
        (("--resume",), "holds no search (no trials.jsonl in it)"),
        (("--set", "run.seed=-1"), "seed = -1"),
        (("--set", "algorithm.bacth=1"), "did you mean 'batch'?"),
        (("--set", "model.name=ccn"), "model.name = 'ccn' is unknown"),
        (("--set", "algorithm.batch=10000"), "80 % of the training rows train: batch = 10000"),
    ],
)
def test_bad_input_leaves_nothing_behind(
    shell: Shell, arguments: tuple[str, ...], said: str
) -> None:
    before = files(shell.folder)
    file, out = shell.folder / "limited.toml", shell.folder / "deep/out"
    assert said in shell.refused("tune", file, *arguments, "--out", out)
    assert files(shell.folder) == before
    assert not out.parent.exists()


def test_notes_about_the_data_do_not_hide_an_error(shell: Shell, tmp_path: Path) -> None:
    """A column that is left out is a note, not a warning with a line of the source."""
    rows = "".join(f"p{i},{i % 7},{i % 2}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("who,age,y\n" + rows)
    data = ("--set", f"data.path={tmp_path / 'rows.csv'}", "--set", "algorithm.batch=50")
    line = shell.refused("tune", shell.small, *data, "--trials", 1, "--out", tmp_path / "found")
    assert "batch = 50 is larger than client" in line


def test_bad_places(shell: Shell) -> None:
    assert "cannot read no.toml" in shell.refused("tune", "no.toml")
    assert "Missing argument" in shell.refused("tune")
    file = shell.folder / "free.toml"
    for out in (file, file / "out", Path("/proc/out")):
        assert shell.refused("tune", file, "--out", out).startswith(f"cannot write to {out}: ")
    assert file.read_text() == FREE
    assert "Example: fedssca tune" in shell("tune", "--help").out


@pytest.mark.parametrize("swallowed", [False, True])
def test_ctrl_c_keeps_finished_trials(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, swallowed: bool
) -> None:
    seen = Trainings(monkeypatch, pretend=True)
    pretended, file, out = runner.simulate, shell.folder / "free.toml", shell.folder / "out"
    handler = signal.getsignal(signal.SIGINT)

    def pressed(*arguments: Any, **options: Any) -> Any:
        if len(seen) == 2:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:  # as a callback of the compiler may do
                if not swallowed:
                    raise
        return pretended(*arguments, **options)

    command = ("tune", file, "--methods", "sgd", "--out", out, "--trials", 4)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "simulate", pressed)
        stopped = shell(*command)
    assert stopped.code == 130
    assert stopped.err.splitlines()[-1].startswith("stopped; finished trials are in")
    assert signal.getsignal(signal.SIGINT) is handler
    assert {p.name for p in out.iterdir()} == {"trials.jsonl"}
    kept = (out / "trials.jsonl").read_text()
    assert kept.count("\n") == 2
    seen.clear()
    assert shell(*command, "--quiet").code == 0
    assert len(seen) == 2
    assert (out / "trials.jsonl").read_text().startswith(kept)


def test_data_are_part_of_what_trials_have_in_common() -> None:
    from fedssca.run.tune.session import _key

    config = parse(FREE)
    data: Dataset = building.load_dataset(config)
    other = dataclasses.replace(data, train=data.train | {"y": data.train["y"][::-1]})
    assert len({_key(config, data, 0), _key(config, data, 1), _key(config, other, 0)}) == 3
