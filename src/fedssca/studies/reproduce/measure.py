"""Means and standard deviations over the runs of a curve, and the lines of a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fedssca.studies.reproduce.experiment import Curve, Experiment

__all__ = ["Line", "Measured", "Point", "lines"]

Row = dict[str, Any]


class Measured(NamedTuple):
    """The runs of one curve."""

    curve: Curve
    runs: Sequence[Row]
    """One record per seed, as `runs.carry_out` yields them."""

    @property
    def rounds(self) -> list[int]:
        """The evaluated rounds."""
        return [row["round"] for row in self.runs[0]["rows"]]

    def at(self, t: int, quantity: str) -> np.ndarray:
        """Return the quantity at round t, one value per run."""
        number = self.rounds.index(t)
        return np.array([run["rows"][number][quantity] for run in self.runs])

    def final(self, quantity: str) -> np.ndarray:
        """Return the quantity at the end, one value per run: of w(T), or of the returned model."""
        returned = self.curve.model == "returned"
        return np.array(
            [(run["returned"] if returned else run["rows"][-1])[quantity] for run in self.runs]
        )

    def rounds_to(self, accuracy: float) -> np.ndarray:
        """Return the first evaluated round with that test accuracy, or inf, one value per run."""
        return np.array(
            [
                next((r["round"] for r in run["rows"] if r["test_accuracy"] >= accuracy), np.inf)
                for run in self.runs
            ],
            float,
        )


class Point(NamedTuple):
    """The mean and spread over the runs of a curve, at one value of the x axis."""

    curve: str
    x: float
    mean: float
    sd: float
    low: float
    high: float
    runs: int


class Line(NamedTuple):
    """One line of the figure."""

    label: str
    curve: Curve
    """The first of its curves, which decides colour, line style and marker."""
    points: list[Point]


def lines(panel: Experiment, found: Mapping[str, Measured]) -> list[Line]:
    """Return the lines of the panel."""
    own = [found[curve.label] for curve in panel.drawn]
    if panel.kind == "trajectory":
        return [_over_rounds(m, panel.quantity, m.curve.label) for m in own]
    if panel.kind == "identity":
        names = {
            "train_cost": "Algorithm 1",
            "momentum_cost": "momentum SGD",
            "distance": "distance",
        }
        return [
            _over_rounds(m, quantity, f"{name}, {m.curve.label}")
            for m in own
            for quantity, name in names.items()
        ]
    if panel.kind == "tradeoff":
        pairs = [(m.curve.group, _point(m, m.curve.work, m.rounds_to(panel.target))) for m in own]
    else:
        pairs = [
            (m.curve.series, _point(m, float(m.final("train_cost").mean()), m.final("norm_sq")))
            for m in own
        ]
    series = {name: [point for key, point in pairs if key == name] for name, _ in pairs}
    first = {name: found[points[0].curve].curve for name, points in series.items()}
    return [Line(name, first[name], points) for name, points in series.items()]


def _over_rounds(measured: Measured, quantity: str, label: str) -> Line:
    points = [_point(measured, t, measured.at(t, quantity)) for t in measured.rounds]
    return Line(label, measured.curve, [p._replace(curve=label) for p in points])


def _point(measured: Measured, x: float, values: np.ndarray) -> Point:
    """Return mean, sample standard deviation, minimum and maximum; inf if one run is."""
    whole = np.isfinite(values).all()
    return Point(
        measured.curve.label,
        x,
        float(values.mean()) if whole else float("inf"),
        float(values.std(ddof=1)) if whole and len(values) > 1 else 0.0,
        float(values.min()),
        float(values.max()),
        len(values),
    )
