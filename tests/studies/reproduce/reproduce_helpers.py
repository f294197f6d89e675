"""A tiny panel, and curves made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedssca.run.config import parse
from fedssca.studies.reproduce.experiment import Curve, Experiment, Statement
from fedssca.studies.reproduce.measure import Measured

TINY = """
title = "A tiny panel"
kind = "trajectory"

[base]
data.name = "digits"
model.name = "linear"
algorithm = {rounds = 12, batch = 5, rho = {a = 0.9}, gamma = {a = 0.5}, tau = 0.5}

[[curve]]
label = "Algorithm 1, B=5"
group = "Algorithm 1"

[[curve]]
label = "SGD, B=20"
group = "SGD"
set.algorithm = {name = "sgd", batch = 20}

[[statement]]
text = "Algorithm 1 is faster."
where = "here"
check = "faster"
order = ["Algorithm 1, B=5", "SGD, B=20"]
at = [5, 11]
"""


def tiny(folder: Path, text: str = TINY, name: str = "tiny") -> Path:
    """The tiny panel as a file."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def curve(label: str, group: str = "Algorithm 1", *settings: str, **more: Any) -> Curve:
    return Curve(label, group, parse("", settings), **({"series": label} | more))


def record(rounds: Sequence[int], **quantities: Callable[[int], float]) -> dict[str, Any]:
    """A run whose quantities are functions of the round."""
    rows = [{"round": t} | {name: f(t) for name, f in quantities.items()} for t in rounds]
    return {"rows": rows, "returned": rows[-1], "feasible": True, "notes": []}


def measured(
    own: Curve,
    costs: Sequence[float],
    accuracies: Sequence[float] = (),
    rounds: Sequence[int] = (100, 200, 500, 999),
    runs: int = 2,
) -> Measured:
    """The same curve in every run, but for a little spread of the cost that its mean keeps."""
    out = []
    for number in range(runs):
        off = 0.001 * (number - (runs - 1) / 2)
        rows = [
            {
                "round": t,
                "train_cost": cost + off,
                "test_accuracy": accuracies[i] if accuracies else 1 - cost / 3,
                "norm_sq": 10 / (cost + 0.1),
            }
            for i, (t, cost) in enumerate(zip(rounds, costs, strict=True))
        ]
        out.append({"rows": rows, "returned": rows[-1], "feasible": True, "notes": []})
    return Measured(own, out)


def panel(kind: str, curves: Sequence[Curve], *statements: Statement, **more: Any) -> Experiment:
    given = {
        "name": "panel",
        "source": "panel",
        "title": "By hand",
        "figure": "Fig. 0",
        "kind": kind,
        "quantity": "train_cost",
        "target": 0.9,
        "curves": tuple(curves),
        "statements": statements,
    }
    return Experiment(**(given | more))
