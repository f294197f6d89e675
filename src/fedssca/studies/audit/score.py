"""How good a reconstruction is: matched one to one with the originals, compared with a control."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedssca.studies.audit.audited_run import AuditedRun
from fedssca.studies.audit.inversion import Reconstruction
from fedssca.studies.audit.message import ObservedMessage

__all__ = ["Score", "matched", "score"]


class Score(NamedTuple):
    """The quality of a reconstruction in the best one-to-one matching with the originals."""

    correlation: float
    """The mean correlation of the originals with their reconstructions."""
    control: float
    """The correlation if test rows take the place of the reconstruction: without any message."""
    chance: float
    """The correlation if test rows take the place of the originals: what the reconstruction has
    in common with rows that are not behind the message. A correlation clearly above this value
    means that the attack learned something."""
    solved: int
    """The number of rows that solve the equations exactly."""
    labels: float
    """The fraction of matched rows with the right label."""
    x: np.ndarray
    """The reconstruction of each original, of shape (n, P)."""
    each: np.ndarray
    """The correlation of each original with its reconstruction, of shape (n,)."""


def score(run: AuditedRun, message: ObservedMessage, guess: Reconstruction) -> Score:
    """Compare a reconstruction with the rows behind the message."""
    each, order = matched(message.group.x, guess.x)
    nonmembers = run.nonmembers(len(message.group.x)).x
    # If there are fewer test rows than originals, the control uses as many as there are.
    control, _ = matched(message.group.x[: len(nonmembers)], nonmembers)
    chance, _ = matched(nonmembers, guess.x)
    return Score(
        float(each.mean()),
        float(control.mean()),
        float(chance.mean()),
        guess.solved,
        float((guess.kind[order] == message.group.kind).mean()),
        guess.x[order],
        each,
    )


def matched(originals: np.ndarray, guesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each original its best match: the correlation, and the index of the guess."""
    one, two = _standard(originals), _standard(guesses)
    alike = one @ two.T
    rows, columns = linear_sum_assignment(-alike)
    return alike[rows, columns], columns


def _standard(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(length, 1e-12))
