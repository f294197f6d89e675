"""Runs on a user's own files, and on every way to share the data out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedssca
from fedssca.errors import UserError
from fedssca.run.build import build
from fedssca.run.config import parse
from tests.cli_helpers import Shell, same_run, weights

ROWS = 120


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 4)).round(3)
    species = np.array(["ash", "elm", "oak"])[np.argmax(x[:, :3], axis=1)]
    return {f"f{j}": x[:, j] for j in range(4)} | {"tree": species}


def test_csv_parquet_and_npz_give_the_same_model(shell: Shell, tmp_path: Path) -> None:
    columns = table()
    names = list(columns)
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "own.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), tmp_path / "own.parquet")
    x = np.stack([columns[name] for name in names[:-1]], axis=1)
    np.savez(tmp_path / "own.npz", x=x, tree=columns["tree"])
    for kind in ("csv", "parquet", "npz"):
        shell.run(tmp_path / kind, f"data.path={tmp_path / f'own.{kind}'}", "data.label=tree")
    assert weights(tmp_path / "csv").size == 3 * 3 + 3 * 4
    assert same_run(tmp_path / "csv", tmp_path / "parquet")
    assert same_run(tmp_path / "csv", tmp_path / "npz")
    line = shell.refused(
        "run", "--set", f"data.path={tmp_path / 'own.csv'}", "--set", "data.label=trees",
        "--out", tmp_path / "bad",
    )  # fmt: skip
    assert "tree" in line


def test_vertical_runs_agree_and_open_collection_warns(shell: Shell, tmp_path: Path) -> None:
    split = ("data.split=feature", "data.clients=2", "run.precision=float64")
    ways = {
        "fused": (),
        "local": ("run.runtime=local",),
        "holder": ("run.runtime=local", "data.label_holder=0"),
        "open": ("run.runtime=local", "data.collection=open"),
    }
    for name, settings in ways.items():
        outcome = shell.run(tmp_path / name, *split, *settings, options=())
        assert ("its rows of x, as they are" in " ".join(outcome.err.split())) == (name == "open")
        assert outcome.err.count("note:") == (name == "open")
    for name in ("local", "holder", "open"):
        np.testing.assert_allclose(
            weights(tmp_path / name), weights(tmp_path / "fused"), rtol=1e-9, atol=1e-12
        )


def test_open_collection_warns_in_python() -> None:
    from fedssca.run.build import build
    from fedssca.run.config import parse

    settings = ["data.name=breast-cancer", "data.split=feature", "data.collection=open"]
    settings += ["algorithm.rho={a=0.9, alpha=0.3}", "algorithm.gamma={a=0.5, alpha=0.6}"]
    with pytest.warns(UserWarning, match=r'data\.collection = "open"'):
        build(parse("", settings))


@pytest.mark.parametrize(
    "settings",
    [
        ("data.partition=dirichlet", "data.concentration=5"),
        ("data.sizes=[10, 20, 30, 40]",),
        ("data.sizes=[0.1, 0.2, 0.3, 0.4]", "data.partition=contiguous"),
        ("data.partition=classes", "data.classes_per_client=1"),
        ("problem={objective='loss', l2=1e-3}", "algorithm.name=momentum", "algorithm.rate=0.1"),
    ],
    ids=["dirichlet", "counts", "fractions", "classes", "momentum"],
)
def test_ways_to_share_out(shell: Shell, tmp_path: Path, settings: tuple[str, ...]) -> None:
    paper = "algorithm.multipliers=exact"  # 20 rounds are too few to steer
    outcome = shell.run(tmp_path / "out", paper, *settings, options=("--json",))
    result = json.loads(outcome.out)
    assert result["test_accuracy"] > 0.7
    assert np.isfinite(weights(tmp_path / "out")).all()


def test_a_confidence_without_a_limit_is_noted() -> None:
    config = parse("", ["problem.confidence=0.9", "algorithm.name=sgd"])
    with pytest.warns(UserWarning, match="certifies nothing, because no limit is stated"):
        build(config)


def test_arguments_in_another_order_or_without_sense_are_refused() -> None:
    problem = fedssca.classifier(fedssca.linear(features=2, classes=2))
    clients = [{"x": np.zeros((9, 2), np.float32), "y": np.arange(9) % 2}]
    steps = fedssca.sgd(problem, batch=3, rate=fedssca.power(0.1))
    with pytest.raises(UserError, match="simulate takes a problem, the clients, an algorithm"):
        fedssca.simulate(clients, problem, steps, rounds=2)  # type: ignore[arg-type]
    for rounds in (0, "auto"):
        with pytest.raises(UserError, match=f"rounds = {rounds!r}: it must be a whole number"):
            fedssca.auto(problem, fedssca.Rows.of(clients), batch=3, rounds=rounds)  # type: ignore[arg-type]


def test_features_that_tell_nothing_are_refused(shell: Shell, tmp_path: Path) -> None:
    """Where no row moves the model, no step size can be found."""
    np.savez(tmp_path / "flat.npz", x=np.zeros((ROWS, 3), np.float32), y=np.arange(ROWS) % 2)
    settings = ("--set", f"data.path={tmp_path / 'flat.npz'}", "--set", "algorithm.batch=5")
    line = shell.refused("run", shell.small, *settings, "--out", tmp_path / "run", "--quiet")
    assert "is every feature constant? fedssca data describe shows it" in line


def test_the_weight_of_the_norm_follows_the_rows_of_a_table() -> None:
    settings = ["problem.objective=loss", "problem.constraint=[]", "algorithm.rounds=1"]
    table = build(parse("", [*settings, "data.name=breast-cancer"]))
    images = build(parse("", [*settings, "data.name=digits"]))
    given = build(parse("", [*settings, "data.name=breast-cancer", "problem.l2=0.0"]))
    linear = build(parse("", [*settings, "data.name=breast-cancer", "model.name=linear"]))
    rows = len(table.dataset.train["y"])
    assert table.config.problem.l2 == table.problem.known[0] == 2 / rows
    assert linear.config.problem.l2 == 0.5 / rows
    assert (images.config.problem.l2, given.config.problem.l2) == (1e-5, 0.0)
