"""The attacker: a server that reads the last bits of a noisy number (Mironov, 2012).

It wants to tell x = 0 from x = 1 under noise. Noise that is a floating-point number has gaps as
small as its size: x = 0 plus noise can be 1e-9, while x = 1 plus noise is a multiple of 2^-24. So
every small result that is no such multiple proves x = 0.

What stops it: numbers and noise are whole multiples of one step. Which multiples can occur does not
depend on x.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.privacy.noise.discrete import Entropy, Grid

COUNT = 20_000


def proofs_of_zero(sent: np.ndarray, step: float) -> int:
    """How many results cannot have come from x = 1: they are no multiples of the step there."""
    return int((sent / step != np.rint(sent / step)).sum())


def test_floating_point_noise_gives_x_away() -> None:
    """The attack works on what it was made for, so the test below tests something."""
    drawn = np.random.default_rng(0).normal(size=COUNT).astype(np.float32)
    zero, one = np.float32(0) + drawn, np.float32(1) + drawn
    near = np.abs(one) < 0.5
    assert proofs_of_zero(zero.astype(float), 2.0**-24) > COUNT / 10
    assert proofs_of_zero(one[near].astype(float), 2.0**-24) == 0


def test_noise_on_a_grid_does_not() -> None:
    entropy, grid = Entropy(), Grid.of(1.0, 1.0, COUNT)
    for x in (0.0, 1.0, 0.1):
        sent = grid.noised(np.full(COUNT, x), entropy)
        assert proofs_of_zero(sent, grid.step) == 0
        assert sent.mean() == pytest.approx(x, abs=0.05)
        assert sent.std() == pytest.approx(1.0, rel=0.05)
