"""Real numbers as integers modulo 2^64: x -> round(2^40 x).

Sums of such integers are exact in any order, so masks cancel exactly. In return every addend has a
rounding error of at most 2^-41, and the absolute value of a sum must stay below 2^23. A vector that
might leave that range is refused before it is masked, because a sum that wraps around modulo 2^64
would be wrong without any sign of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.errors import UserError

__all__ = ["BITS", "RANGE", "Layout", "from_fixed", "to_fixed"]

BITS = 40
RANGE = 2.0 ** (63 - BITS)
"""The absolute value of a sum must stay below this."""


def to_fixed(values: np.ndarray, addends: int) -> np.ndarray:
    """Return round(2^40 x) modulo 2^64; refuse values unless |x| * addends < 2^23 for every x."""
    # Doubles above 2^53 are integers already, so the rounding and the cast are exact.
    scaled = np.asarray(values, np.float64) * 2.0**BITS
    most = float(np.max(np.abs(scaled), initial=0.0))
    # Rounding adds at most half a unit to each addend.
    if not (most + 0.5) * addends < 2.0**63:
        if not np.isfinite(most):
            raise UserError("a number that is to be added up is not finite")
        raise UserError(  # The server reads this: the number itself is not told.
            f"a number is too large for a sum over {addends} parties in "
            f"fixed point: |x| must stay below {RANGE / addends:,.0f}; scale the data or the "
            "objective down"
        )
    return np.rint(scaled, out=scaled).astype(np.int64).view(np.uint64)


def from_fixed(total: np.ndarray) -> np.ndarray:
    """Return a sum of fixed-point numbers as doubles."""
    return total.view(np.int64) * 2.0**-BITS


class Layout(NamedTuple):
    """The positions of the leaves of a tree in one flat vector."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    @classmethod
    def of(cls, tree: Any) -> Layout:
        """The layout of trees of this form; the leaves are arrays or their shapes."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(
            structure,
            tuple(tuple(leaf.shape) for leaf in leaves),
            tuple(np.dtype(leaf.dtype) for leaf in leaves),
        )

    @property
    def size(self) -> int:
        """The count of numbers in all leaves."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def pack(self, tree: Any) -> np.ndarray:
        """Concatenate all leaves in double precision; a tree of another form is refused."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        if structure != self.structure or shapes != self.shapes:
            raise ValueError(f"the message has the shapes {shapes}, expected are {self.shapes}")
        parts = [np.asarray(leaf, np.float64).ravel() for leaf in leaves]
        return np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, vector: np.ndarray) -> Any:
        """Return the tree of a flat vector, each leaf in its own precision."""
        leaves, at = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = int(np.prod(shape))
            leaves.append(vector[at : at + size].reshape(shape).astype(dtype))
            at += size
        if at != len(vector):
            raise ValueError(f"the vector has {len(vector)} numbers, expected are {at}")
        return jax.tree.unflatten(self.structure, leaves)
