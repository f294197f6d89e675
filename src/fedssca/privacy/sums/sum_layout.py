"""Which integers a masked sum consists of: real numbers in fixed point, short integers in words.

Real numbers are integers modulo 2^64 (`fixed_point`). Arrays of int8 and int16 hold numbers that
were rounded before (`rounds.rounding`). Their sums are exact in words of 16 or 32 bits: the number
of addends and the largest integer say how many bits a sum can need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.privacy.sums.fixed_point import Layout, from_fixed, to_fixed

__all__ = ["MASKED", "SHORT", "WORDS", "SumLayout"]

MASKED, SHORT = "masked", "short"
"""The names of the masked numbers in an answer."""
WORDS = (np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64))


class SumLayout(NamedTuple):
    """Where the numbers of a message are in the vectors that are masked and added."""

    structure: Any
    short: tuple[bool, ...]
    """For each leaf, whether it consists of short integers."""
    reals: Layout
    integers: Layout

    @classmethod
    def of(cls, tree: Any) -> SumLayout:
        """The layout of messages of this form; the leaves are arrays or their shapes."""
        leaves, structure = jax.tree.flatten(tree)
        kinds = [np.dtype(leaf.dtype) for leaf in leaves]
        short = tuple(kind.kind == "i" and kind.itemsize < 4 for kind in kinds)
        reals, integers = _parted(leaves, short)
        return cls(structure, short, Layout.of(reals), Layout.of(integers))

    @property
    def most(self) -> int:
        """The largest absolute value of a short integer."""
        return max((int(np.iinfo(kind).max) for kind in self.integers.dtypes), default=0)

    def word(self, addends: int) -> np.dtype[Any]:
        """The shortest words that hold the sum of so many short integers, with its sign."""
        return next(w for w in WORDS if self.most * addends < 2 ** (8 * w.itemsize - 1))

    def bytes(self, addends: int) -> int:
        """The bytes of one masked message."""
        return 8 * self.reals.size + self.word(addends).itemsize * self.integers.size

    def pack(self, message: Any, addends: int) -> dict[str, np.ndarray]:
        """The vectors of a message before they are masked; numbers that do not fit are refused."""
        leaves = jax.tree.leaves(message)
        if len(leaves) != len(self.short):
            raise ValueError(f"the message has {len(leaves)} arrays, expected are {self.short}")
        reals, integers = _parted(leaves, self.short)
        packed = {MASKED: to_fixed(self.reals.pack(reals), addends)}
        if self.integers.size:
            whole = np.concatenate([np.asarray(leaf).ravel() for leaf in integers])
            if int(np.abs(whole.astype(np.int64)).max()) > self.most:
                raise UserError("an integer is too large for a sum in few bits")
            packed[SHORT] = whole.astype(self.word(addends))
        return packed

    def fits(self, packed: Mapping[str, np.ndarray], addends: int) -> bool:
        """Whether these are the masked vectors of a message."""
        due = self.nothing(addends)
        return all(
            name in packed and (packed[name].dtype, packed[name].shape) == (own.dtype, own.shape)
            for name, own in due.items()
        )

    def nothing(self, addends: int) -> dict[str, np.ndarray]:
        """The sum of no message."""
        zero = {MASKED: np.zeros(self.reals.size, np.uint64)}
        if self.integers.size:
            zero[SHORT] = np.zeros(self.integers.size, self.word(addends))
        return zero

    def unpack(self, total: Mapping[str, np.ndarray]) -> Any:
        """The sum of messages; short integers are added up to int64."""
        reals = iter(self.reals.unpack(from_fixed(total[MASKED])))
        integers: Any = iter(())
        if self.integers.size:
            words = total[SHORT]
            wide = words.view(f"i{words.itemsize}").astype(np.int64)
            long = self.integers._replace(dtypes=(np.dtype(np.int64),) * len(self.integers.dtypes))
            integers = iter(long.unpack(wide))
        leaves = [next(integers if short else reals) for short in self.short]
        return jax.tree.unflatten(self.structure, leaves)


def _parted(leaves: Sequence[Any], short: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """The leaves with real numbers, and those with short integers."""
    pairs = list(zip(leaves, short, strict=True))
    return [leaf for leaf, is_ in pairs if not is_], [leaf for leaf, is_ in pairs if is_]
