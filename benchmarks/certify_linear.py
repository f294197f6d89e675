"""Sums over rows of a logistic model in numpy, for many small draws.

A draw evaluates hundreds of models on a few hundred rows; here an evaluation takes 50 microseconds,
and a compiled program takes several times as long to call. Everything else is the package itself:
the rounds, the last steps, thresholds, the path and the tests. `benchmarks/certify.py --check`
compares the sums of this file with those of the package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from fedssca.evaluate.confidence.evidence import Bets, Evidence
from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.tally import Tally, TallySums
from fedssca.problem.constraint_kinds import SHARPNESS

__all__ = ["CLIP", "LinearRows", "linear_evaluator", "linear_evidence"]

CLIP = 5.0


class LinearRows(NamedTuple):
    """Rows with a leading column of ones, and the kind of limit on them."""

    kind: str
    limit: float
    a: np.ndarray
    y: np.ndarray
    group: np.ndarray
    site: np.ndarray
    sites: int
    names: list[str]
    """The limited quantities."""

    def z(self, w: Any) -> np.ndarray:
        """The score of class 1; that of class 0 is 0."""
        return np.asarray(self.a @ np.asarray(w, np.float32), float)

    def loss(self, z: np.ndarray) -> np.ndarray:
        """The cross-entropy of every row."""
        return np.asarray(np.logaddexp(0, np.where(self.y == 1, -z, z)))

    def value(self, z: np.ndarray) -> np.ndarray:
        """The value of every row whose means are limited."""
        if self.kind == "fnr":
            return (z <= 0).astype(float)
        if self.kind == "gap":
            return (z > 0).astype(float)
        return self.loss(z)

    def parts(self) -> dict[str, list[tuple[float, np.ndarray]]]:
        """For every quantity the weights of its means, and the rows that they are over."""
        if self.kind == "fnr":
            return {self.names[0]: [(1.0, self.y == 1)]}
        if self.kind == "gap":
            return {self.names[0]: [(1.0, self.group == 1), (-1.0, self.group == 0)]}
        if self.kind == "loss":
            return {self.names[0]: [(1.0, np.ones(len(self.y), bool))]}
        return {name: [(1.0, self.site == i)] for i, name in enumerate(self.names)}

    def slope(self, z: np.ndarray) -> np.ndarray:
        """The derivative of every value, or of its smooth stand-in, by z."""
        if self.kind == "fnr":
            x = -SHARPNESS * z
            part = expit(x) / (1 + np.logaddexp(0, x)) / math.log1p(math.log(2))
            return np.asarray(-SHARPNESS * part)
        if self.kind == "gap":
            p = expit(SHARPNESS * z)
            return np.asarray(SHARPNESS * p * (1 - p))
        return np.asarray(expit(z) - self.y)


def linear_evaluator(rows: LinearRows) -> Evaluator:
    """The evaluator of training rows."""
    norm = rows.kind in ("loss", "client")
    parts = rows.parts()
    shares = {
        name: [(sign, part / part.sum()) for sign, part in means] for name, means in parts.items()
    }
    both = (1.0, -1.0) if rows.kind == "gap" else (1.0,)

    def row(w: Any) -> dict[str, Any]:
        z, own = rows.z(w), np.asarray(w, float)
        value = rows.value(z)
        found = [sum(sign * float(share @ value) for sign, share in m) for m in shares.values()]
        return {
            "objective": float(own @ own) if norm else float(rows.loss(z).mean()),
            "constraints": [side * each - rows.limit for each in found for side in both],
            "norm_sq": float(own @ own),
        }

    def gradients(w: Any) -> np.ndarray:
        z, own = rows.z(w), np.asarray(w, float)
        slope = rows.slope(z)
        first = 2 * own if norm else (expit(z) - rows.y) @ rows.a / len(z)
        rest = [
            side * sum(sign * (share * slope) @ rows.a for sign, share in means)
            for means in shares.values()
            for side in both
        ]
        return np.stack([first, *rest]).astype(float)

    def tally(w: Any) -> Tally:
        z = rows.z(w)
        value, loss = rows.value(z), rows.loss(z)
        everyone = np.ones(len(z), bool)
        sums = {"cost": [_sums(loss, everyone)]}
        sums |= {name: [_sums(value, part) for _, part in means] for name, means in parts.items()}
        weights = {"cost": [1.0]} | {name: [s for s, _ in means] for name, means in parts.items()}
        return Tally(weights, TallySums(sums, None))

    def over(other: Any) -> Evaluator:
        raise TypeError(f"{other} is evaluated by another evaluator")

    return Evaluator(row, gradients, over, tally)


def _sums(value: np.ndarray, part: np.ndarray) -> Any:
    own = value[part]
    return np.array([[own.sum(), len(own), own @ own]])


def linear_evidence(
    rows: LinearRows, w: Any, bets: Mapping[str, Bets]
) -> list[dict[str, Evidence]]:
    """The evidence of all calibration rows, then that of every site."""
    value, counted = rows.value(rows.z(w)), rows.kind in ("fnr", "gap")
    lines = [np.ones(len(value), bool), *(rows.site == i for i in range(rows.sites))]
    parts = rows.parts()

    def of(name: str, line: np.ndarray) -> Evidence:
        clip, theta = bets[name]
        x = [np.clip(value[part & line] / clip, 0, 1) for _, part in parts[name]]
        logs = np.zeros_like(theta)
        if not counted:
            for j, own in enumerate(x):
                sides = (own, 1 - own)
                logs[j] = [
                    np.log1p(-theta[j, k][:, None] * v).sum(axis=1) for k, v in enumerate(sides)
                ]
        return Evidence(
            weights=np.array([sign for sign, _ in parts[name]]),
            top=np.array([own.sum() for own in x]),
            rows=np.array([float(len(own)) for own in x]),
            bets=theta,
            sums=logs,
            clip=clip,
            counted=counted,
        )

    return [{name: of(name, line) for name in bets} for line in lines]
