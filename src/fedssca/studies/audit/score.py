"""How good a reconstruction is: matched to the originals one to one, and held against a control."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedssca.studies.audit.invert import Guess
from fedssca.studies.audit.scene import Scene
from fedssca.studies.audit.view import View

__all__ = ["Score", "matched", "score"]


class Score(NamedTuple):
    """Mean correlation of originals with their reconstructions, in the best one-to-one matching."""

    correlation: float
    control: float
    """The same for as many test rows in place of the guesses: what one gets without a message."""
    chance: float
    """The same for as many test rows in place of the originals: what the guesses have in common
    with rows that were not there. Clearly above it, something was learnt."""
    solved: int
    """Rows of which the attack knows that it has them."""
    labels: float
    """The share of matched rows with the right label."""
    x: np.ndarray
    """(n, P) the reconstruction of each original."""
    each: np.ndarray
    """(n,) its correlation."""


def score(scene: Scene, view: View, guess: Guess) -> Score:
    """A guess against what is behind the view."""
    each, order = matched(view.group.x, guess.x)
    strangers = scene.strangers(len(view.group.x)).x
    # Fewer test rows than originals: the control is that of as many as there are.
    control, _ = matched(view.group.x[: len(strangers)], strangers)
    chance, _ = matched(strangers, guess.x)
    return Score(
        float(each.mean()),
        float(control.mean()),
        float(chance.mean()),
        guess.solved,
        float((guess.kind[order] == view.group.kind).mean()),
        guess.x[order],
        each,
    )


def matched(originals: np.ndarray, guesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each original: the correlation with its guess, and which guess that is."""
    one, two = _standard(originals), _standard(guesses)
    alike = one @ two.T
    rows, columns = linear_sum_assignment(-alike)
    return alike[rows, columns], columns


def _standard(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(length, 1e-12))
