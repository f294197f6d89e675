"""Rounds with sites that hold rows: the server learns the sum of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from fedssca.data import Rows
from fedssca.deploy.server.sites import Sites, SitesMissing, finite
from fedssca.deploy.stages import method_of, shapes_of, stage_roles
from fedssca.deploy.sums import for_sum, weight_of
from fedssca.errors import UserError
from fedssca.methods.algorithm import Request
from fedssca.methods.staleness import counted
from fedssca.rounds.aggregate import Adder, Arrays, Combine, Gathered, plain_sum
from fedssca.rounds.broadcast import Publisher
from fedssca.rounds.codec import arrays_of
from fedssca.rounds.rounding import from_integers, integer_form
from fedssca.run.build import Job
from fedssca.run.privacy import hides_sums

__all__ = ["RowRounds"]


class RowRounds:
    """The `Parties` of one stage. `adder`, the server's half of the sums, serves all stages."""

    def __init__(self, sites: Sites, stage: str, job: Job, adder: Adder) -> None:
        assert isinstance(job.clients, Rows)
        self._sites, self._stage, self._clients, self._adder = sites, stage, job.clients, adder
        self.phases = stage_roles(stage, job.clients).phases
        self._hidden = hides_sums(job.config)
        self._weight = 1.0
        if self._hidden:
            self._weight = weight_of(stage, job.clients.total, job.config)
        self._staleness = job.config.algorithm.staleness if stage == "train" else 0
        self._last: dict[int, tuple[int, Any]] = {}
        """The last message of each site, and the round that it answers; kept with staleness."""
        self._due = shapes_of(stage, job, 0).answer
        self._algorithm = method_of(stage, job)[0]
        self._publisher = Publisher(job.problem, self._algorithm)
        self.combine: Combine = plain_sum
        self.share = 1.0
        """The share of the asked sites' rows that took part in the last round."""
        self.missing: Sequence[int] = ()
        """The asked sites that are not in the sum of the last round."""

    def call(self, phase: str, request: Request) -> Sequence[Any]:
        """One round of training: the sum of the answers, scaled up if some sites are missing."""
        del phase
        clients = self._clients
        asked = list(range(clients.count))
        if request.turnout:
            answers = np.asarray(request.turnout.answers)
            asked = np.asarray(request.turnout.asked)[answers].tolist()
        if self._staleness:
            published = jax.device_get(request._replace(turnout=()))
            return [self._last_messages(int(request.round), published)]
        address = self._publisher.address(jax.device_get(request._replace(turnout=())), asked)
        sent = integer_form(self._due, request.grid, self._algorithm.bits)
        found = self._sum(int(request.round), address, sent, sent)
        found = found._replace(total=from_integers(found.total, request.grid, self._due))
        self._publisher.answered(found.who)
        present = sum(clients.sizes[number] for number in found.who)
        due = sum(clients.sizes[number] for number in asked)
        self.share = present / due if due else 1.0
        self.missing = sorted(set(asked) - set(found.who))
        if present in (0, due):
            return [found.total]
        scale = due / present
        return [jax.tree.map(lambda leaf: leaf * np.asarray(scale, leaf.dtype), found.total)]

    def _last_messages(self, round_: int, published: Any) -> Any:
        """The sum of the last messages of the sites, the late ones that have come among them."""
        sites, clients, stage = self._sites, self._clients, self._stage
        read = partial(self._read, self._due, self._due)
        here = sites.in_time(stage, round_, range(clients.count))
        asked: dict[int, Arrays] = {number: {} for number in here}
        request = dict.fromkeys(asked, arrays_of(published))
        fresh = sites.exchange_for_sum(stage, round_, request, read, "reply", asked)
        self._last |= sites.late(stage, round_, read)
        self._last |= {number: (round_, message) for number, message in fresh.items()}
        if not self._last:
            sites.check_all(range(clients.count), {}, round_)
        who = sorted(self._last)
        age = np.array([round_ - self._last[number][0] for number in who])
        share = np.array([clients.sizes[number] / clients.total for number in who])
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(self._last[i][1] for i in who))
        total, covered = counted(stacked, share, age, self._staleness)
        counts = {number for number, old in zip(who, age, strict=True) if old <= self._staleness}
        self.share, self.missing = float(covered), sorted(set(range(clients.count)) - counts)
        return total

    def gather(
        self, round_: int, published: Any, asked: Sequence[int], *, double: bool = False
    ) -> Gathered:
        """The sum of the answers of those of `asked` that are alive; all are sent the same.

        `double` adds in double precision.
        """
        like = self._due
        if double:
            like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float64), like)
        return self._sum(round_, dict.fromkeys(asked, published), self._due, like)

    def _sum(self, round_: int, published: Mapping[int, Any], due: Any, like: Any) -> Gathered:
        """The sum of the answers of the sites that are alive, to what each of them is sent.

        An answer must have the shapes `due`; it is added up in the precision of `like`.
        """
        sites, asked = self._sites, list(published)
        ask = partial(
            sites.exchange_for_sum,
            self._stage,
            round_,
            _arrays(published),
            partial(self._read, due, like),
        )
        here = sites.in_time(self._stage, round_, asked)
        try:
            found = self._adder.gather(ask, here, like)
        except SitesMissing:
            raise
        except UserError as error:
            gone = [number for number in asked if number not in sites.live]
            said = f"round {round_}: {error}; {sites.with_reasons(asked)}"
            if gone:
                raise SitesMissing([sites.names[number] for number in gone], said) from error
            raise UserError(said) from error
        for number in found.liars:
            sites.drop(number, round_, "it sent wrong shares of the secrets of several sites")
        if asked and not found.who:
            sites.check_all(asked, {}, round_)
        weight = self._weight
        if weight == 1:
            return found
        total = jax.tree.map(lambda leaf: leaf * np.asarray(weight, leaf.dtype), found.total)
        return found._replace(total=total)

    def _read(self, due: Any, like: Any, number: int, arrays: Arrays) -> Any:
        """A site's answer: the arrays of a hidden sum, or a message in the precision of `like`."""
        del number
        if self._hidden:
            return for_sum(arrays)
        tree = finite(due, arrays)
        return jax.tree.map(lambda leaf, as_: leaf.astype(as_.dtype, copy=False), tree, like)


def _arrays(published: Mapping[int, Any]) -> dict[int, Arrays]:
    """What each site is sent, as arrays; those that are sent the same share them."""
    made = {id(tree): arrays_of(tree) for tree in published.values()}
    return {number: made[id(tree)] for number, tree in published.items()}
