"""All that a server adds up from sites that hold rows, in training and judging alike: one place.

What the sum needs besides the stage's own request and answer travels in the same letters, under
names of its own, or in letters of kind "sum/...".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.aggregate import Arrays, Gathered
from fedssca.config import Config
from fedssca.deploy.crew import Away, Crew
from fedssca.errors import UserError
from fedssca.privacy.wiring import hides_sums, server_half
from fedssca.wire import WireError, arrays_of, tree_of

__all__ = ["SUM", "SiteSums", "own", "share", "split_off"]

SUM = "sum"
MARK = "sum:"


class SiteSums:
    """The server's half of a run's sums, for all stages."""

    def __init__(self, crew: Crew, config: Config, run: bytes) -> None:
        self._crew, self._hidden = crew, hides_sums(config)
        self._adder = server_half(config, run, len(crew.names))

    def gather(
        self,
        stage: str,
        round_: int,
        published: Any,
        asked: Sequence[int],
        due: Any,
        *,
        weight: float = 1.0,
        double: bool = False,
    ) -> Gathered:
        """What the answers of those of `asked` who live add up to; `due` has an answer's shapes.

        Hidden answers come divided by `weight` (see `share`); `double` adds in double precision.
        """
        crew, request = self._crew, arrays_of(published)
        like = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float64 if double else leaf.dtype), due
        )

        def read(number: int, arrays: Arrays) -> Any:
            if self._hidden:
                return own(arrays)
            tree = tree_of(due, arrays)
            if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)):
                raise WireError("its answer holds numbers that are not finite")
            return jax.tree.map(lambda a, b: a.astype(b.dtype, copy=False), tree, like)

        def ask(phase: str, sent: Mapping[int, Arrays]) -> dict[int, Any]:
            with_it = request if phase == "reply" else {}
            kind = f"{stage}/reply" if phase == "reply" else f"{SUM}/{phase}"
            letters = {number: with_it | share(arrays) for number, arrays in sent.items()}
            return crew.exchange(kind, round_, letters, read)

        here = [number for number in asked if number in crew.live]
        try:
            found = self._adder.gather(ask, here, like)
        except UserError as error:
            gone = [crew.names[number] for number in asked if number not in crew.live]
            if isinstance(error, Away) or not gone:
                raise
            raise Away(gone, f"round {round_}: {error}") from error
        if asked and not found.who:
            crew.all_or_away(asked, {}, round_)
        if not self._hidden or weight == 1:
            return found
        total = jax.tree.map(lambda leaf: leaf * np.asarray(weight, leaf.dtype), found.total)
        return found._replace(total=total)


def share(arrays: Arrays) -> Arrays:
    """Arrays of a sum's own under the names that they have in a letter."""
    return {MARK + name: array for name, array in arrays.items()}


def own(arrays: Arrays) -> Arrays:
    """The arrays of a letter that belong to the sum alone."""
    return {name.removeprefix(MARK): a for name, a in arrays.items() if name.startswith(MARK)}


def split_off(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """The stage's arrays of a letter, and the sum's."""
    stage = {name: array for name, array in arrays.items() if not name.startswith(MARK)}
    return stage, own(arrays)
