"""All that a server adds up from sites that hold rows, in training and judging alike: one place.

What the sum needs besides the stage's own request and answer travels in the same letters, under
names of its own, or in letters of kind "sum/...".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.deploy.crew import Away, Crew, finite
from fedssca.deploy.identity import Known
from fedssca.errors import UserError
from fedssca.rounds.aggregate import Arrays, Gathered
from fedssca.rounds.codec import WireError, arrays_of
from fedssca.run.config import Config
from fedssca.run.privacy import answerer, hides_sums, server_half

__all__ = ["SUM", "SiteHalf", "SiteSums", "plain_part"]

SUM = "sum"
MARK = "sum:"


def weight_of(stage: str, rows: int) -> float:
    """By what a hidden answer is divided: sums over all rows would outgrow the range of masks."""
    return float(rows) if stage in ("measure", "slope") else 1.0


class SiteSums:
    """The server's half of a run's sums, for all stages; `rows` are those of all sites."""

    def __init__(self, crew: Crew, config: Config, run: bytes, rows: int) -> None:
        self._crew, self._hidden, self._rows = crew, hides_sums(config), rows
        self._adder = server_half(config, run, len(crew.names))

    def gather(
        self,
        stage: str,
        round_: int,
        published: Any,
        asked: Sequence[int],
        due: Any,
        *,
        double: bool = False,
    ) -> Gathered:
        """What the answers of those of `asked` who live add up to; `due` has an answer's shapes.

        `double` adds in double precision.
        """
        crew, request = self._crew, arrays_of(published)
        like = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float64 if double else leaf.dtype), due
        )

        def read(number: int, arrays: Arrays) -> Any:
            del number
            return _own(arrays) if self._hidden else _clear(due, arrays, like)

        def ask(phase: str, sent: Mapping[int, Arrays]) -> dict[int, Any]:
            with_it = request if phase == "reply" else {}
            kind = f"{stage}/reply" if phase == "reply" else f"{SUM}/{phase}"
            letters = {number: with_it | _marked(arrays) for number, arrays in sent.items()}
            return crew.exchange(kind, round_, letters, read)

        here = [number for number in asked if number in crew.live]
        try:
            found = self._adder.gather(ask, here, like)
        except UserError as error:
            if isinstance(error, Away):
                raise
            gone = [number for number in asked if number not in crew.live]
            said = f"round {round_}: {error}; {crew.told(asked)}"
            if gone:
                raise Away([crew.names[number] for number in gone], said) from error
            raise UserError(said) from error
        if asked and not found.who:
            crew.all_or_away(asked, {}, round_)
        weight = weight_of(stage, self._rows) if self._hidden else 1.0
        if weight == 1:
            return found
        total = jax.tree.map(lambda leaf: leaf * np.asarray(weight, leaf.dtype), found.total)
        return found._replace(total=total)


class SiteHalf:
    """A site's half: what it answers leaves through here."""

    def __init__(
        self, config: Config, run: bytes, number: int, rows: int, names: Sequence[str], known: Known
    ) -> None:
        self._hidden, self._rows = hides_sums(config), rows
        identity = known(names) if self._hidden else None
        self._half = answerer(config, run, len(names), number, identity)

    def aside(self, phase: str, arrays: Arrays) -> Arrays:
        """A letter of the sum's own."""
        return _marked(self._half.handle(phase, _own(arrays), _no_message))

    def reply(self, stage: str, arrays: Arrays, answer: Callable[[], Any]) -> Arrays:
        """The answer to a stage's request, hidden where the run says so."""
        if not self._hidden:
            return arrays_of(self._half.handle("reply", {}, answer))
        weight = weight_of(stage, self._rows)

        def weighed() -> Any:
            return jax.tree.map(lambda leaf: np.asarray(leaf, float) / weight, answer())

        return _marked(self._half.handle("reply", _own(arrays), weighed))


def plain_part(arrays: Arrays) -> Arrays:
    """The arrays of a letter that belong to the stage."""
    return {name: array for name, array in arrays.items() if not name.startswith(MARK)}


def _own(arrays: Arrays) -> Arrays:
    """The arrays of a letter that belong to the sum."""
    return {name.removeprefix(MARK): a for name, a in arrays.items() if name.startswith(MARK)}


def _marked(arrays: Arrays) -> Arrays:
    return {MARK + name: array for name, array in arrays.items()}


def _clear(due: Any, arrays: Arrays, like: Any) -> Any:
    """A message that came as it is, in the precision in which it is added."""
    tree = finite(due, arrays)
    return jax.tree.map(lambda leaf, as_: leaf.astype(as_.dtype, copy=False), tree, like)


def _no_message() -> Any:
    raise WireError("a sum asks for a message in its reply only")
