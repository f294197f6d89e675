"""Numbers as whole numbers modulo 2^64: x -> round(2^40 x).

Sums of such numbers are exact in any order, and so are masks that cancel. The price: every addend
is off by at most 2^-41, and a sum must stay within 2^23. What might leave that range is refused
before it is masked, because around the circle it would be wrong without a sign of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.errors import UserError

__all__ = ["BITS", "RANGE", "Layout", "from_fixed", "to_fixed"]

BITS = 40
RANGE = 2.0 ** (63 - BITS)
"""A sum's absolute value stays below this."""


def to_fixed(values: np.ndarray, addends: int) -> np.ndarray:
    """round(2^40 x) modulo 2^64, refused unless |x| * addends < 2^23 for every x."""
    # Doubles above 2^53 are whole numbers already: rounding and the cast are exact.
    scaled = np.asarray(values, np.float64) * 2.0**BITS
    most = float(np.max(np.abs(scaled), initial=0.0))
    # Half a unit for the rounding of each addend.
    if not (most + 0.5) * addends < 2.0**63:
        if not np.isfinite(most):
            raise UserError("a number that should be added up is not finite")
        raise UserError(
            f"a number of {most / 2**BITS:.3g} is too large for a sum over {addends} parties in "
            f"fixed point: |x| must stay below {RANGE / addends:,.0f}; scale the data or the "
            "objective down"
        )
    return np.rint(scaled, out=scaled).astype(np.int64).view(np.uint64)


def from_fixed(total: np.ndarray) -> np.ndarray:
    """The sum as doubles."""
    return total.view(np.int64) * 2.0**-BITS


class Layout(NamedTuple):
    """How the leaves of a tree lie in one vector."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    @classmethod
    def of(cls, tree: Any) -> Layout:
        """The layout of trees like this one (arrays, or their shapes)."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(
            structure,
            tuple(tuple(leaf.shape) for leaf in leaves),
            tuple(np.dtype(leaf.dtype) for leaf in leaves),
        )

    @property
    def size(self) -> int:
        """Numbers in all leaves."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def pack(self, tree: Any) -> np.ndarray:
        """All leaves one after another, in double precision; a tree of another shape is refused."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        if structure != self.structure or shapes != self.shapes:
            raise ValueError(f"a message of shapes {shapes} where {self.shapes} are due")
        parts = [np.asarray(leaf, np.float64).ravel() for leaf in leaves]
        return np.concatenate(parts) if parts else np.zeros(0)

    def unpack(self, vector: np.ndarray) -> Any:
        """The tree again, each leaf in its own precision."""
        leaves, at = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = int(np.prod(shape))
            leaves.append(vector[at : at + size].reshape(shape).astype(dtype))
            at += size
        if at != len(vector):
            raise ValueError(f"{len(vector)} numbers where {at} are due")
        return jax.tree.unflatten(self.structure, leaves)
