"""The guard of a site: every byte that leaves goes through it, and it looks at each message.

Only the guard encodes envelopes, and only it calls the function by which the engine sends to peers.
A message leaves if its kind is known, if it has no other arrays than that kind has, and if what
it holds keeps to the site's [limits]. Whether a message is hidden is read from the message itself:
it is if it consists of what a hidden sum sends (masked integers, ciphertexts, sealed boxes) and of
nothing else. What the run's config or the server say about hiding plays no part in it.

What is counted (jobs, rounds, epsilon) is written to the ledger before the message is returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedssca.deploy.alignment import PEER
from fedssca.deploy.engine import PeerUnreachable, Post
from fedssca.deploy.site.ledger import DataLedger
from fedssca.deploy.site.limits import (
    OPEN_BLOCKS,
    asks_for_hiding,
    asks_for_noise,
    must_be_hidden,
    must_be_noisy,
)
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.deploy.stages import STAGES
from fedssca.deploy.sums import SUM, for_stage, for_sum
from fedssca.errors import UserError
from fedssca.privacy.noise.ledger import Spending
from fedssca.privacy.sums.sum_layout import MASKED, SHORT, WORDS
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode, note, read_note
from fedssca.run.schema import SiteFile

__all__ = ["About", "Guard", "error_answer"]

LONGEST_LINE = 500
"""The number of characters of the longest error that leaves a site."""
HIDDEN = {MASKED: np.uint64, "cipher": np.uint8, "powers": np.int32, "large": np.int32}
"""What a hidden sum sends in place of a message; each stands alone beside keys and boxes."""
CONTROL: dict[str, set[str]] = {
    "terms": {"note"},
    "ids": {"note"},
    "facts": {"note"},
    "count": {"note"},
    "prepare": {"note"},
    "fresh": {"note"},
    "sign": {"signature"},
    "offer": {"key", "signature"},
    "align/open": set(),
    "align/turn": {"points"},
    "align/keep": set(),
    "align/agree": set(),
}
"""The arrays that answers outside the rounds may have."""

TOLD = {"summaries", "counts", "groups", "labels"}
"""What of a census is computed from rows; parties with columns send no summaries."""


Seal = Callable[[str, bytes], bytes]
"""A peer and an encoded envelope -> the envelope, sealed for that peer."""


class About(NamedTuple):
    """What the site knows of the message that it is about to send."""

    rows: int = 0
    """The least number of rows behind any of its numbers."""
    columns: bool = False
    """Whether the site sends it as a party with columns."""
    spending: Spending | None = None
    """What the run's noise spends in all of its rounds; None: the message carries no noise."""


class Guard:
    """What lets the messages of one site pass."""

    def __init__(self, source: SiteFile, ledger: DataLedger) -> None:
        self._source, self._limits, self._ledger = source, source.limits, ledger

    def answer(self, envelope: Envelope, about: About) -> bytes:
        """The bytes of an answer to the server, if it may leave."""
        stage, _, phase = envelope.kind.partition("/")
        arrays = envelope.arrays
        if envelope.kind in CONTROL:
            self._require(set(arrays) <= CONTROL[envelope.kind], envelope)
            if envelope.kind in ("facts", "count"):
                self._check_census(read_note(envelope))
            elif envelope.kind == "fresh" and not self._source.share_ids:
                self._require(set(read_note(envelope)) <= {"rows", "ids"}, envelope)
        elif envelope.kind == "meet":  # sealed boxes for the other parties
            boxes = all(name.startswith("box ") for name in arrays)
            self._require(boxes and _all_bytes(arrays), envelope)
        elif stage == SUM:
            # The party that holds the key of an encrypted sum sends the sum of all sites.
            keys = {n: a for n, a in for_sum(arrays).items() if (phase, n) != ("open", "plain")}
            self._require(not for_stage(arrays) and _all_bytes(keys), envelope)
        elif stage == "census":
            self._require(phase == "reply" and is_hidden(arrays), envelope)
        elif stage in STAGES and phase == "reply":
            self._check_reply(envelope, stage, about)
        elif stage in STAGES and phase in ("share", "head"):
            hidden = {"['h']": np.uint64, "['seals']": np.uint8}
            fitting = all(hidden.get(name) == array.dtype for name, array in arrays.items())
            self._require(fitting, envelope)
        else:
            self._require(False, envelope)
        return encode(envelope)

    def error(self, envelope: Envelope, error: Exception) -> bytes:
        """The bytes of an error: one line, without the words of an error that nobody foresaw."""
        return error_answer(envelope, error)

    def to_peers(self, post: Post, about: Callable[[], About], seal: Seal) -> Post:
        """`post` for messages that may leave; the only way in which the site reaches its peers.

        What leaves is sealed for its receiver, so that nobody between can read or replace it.
        """

        def guarded(envelopes: Mapping[str, bytes], seconds: float) -> None:
            for data in envelopes.values():
                self._check_peer(decode(data), about())
            post({peer: seal(peer, data) for peer, data in envelopes.items()}, seconds)

        return guarded

    def _check_peer(self, envelope: Envelope, about: About) -> None:
        stage, _, phase = envelope.kind.partition("/")
        if envelope.kind == PEER:
            self._require(set(envelope.arrays) == {"note", "body"}, envelope)
            return
        fitting = stage in STAGES and phase in ("share", "head") and set(envelope.arrays) == {"h"}
        self._require(fitting, envelope)
        if asks_for_hiding(self._source):
            raise must_be_hidden(self._source)
        self._check_batch(stage, about)

    def _check_reply(self, envelope: Envelope, stage: str, about: About) -> None:
        """A message of a round, or of an evaluation."""
        arrays, trains = envelope.arrays, stage in ("probe", "train")
        hidden = is_hidden(arrays)
        if not arrays:
            return
        if not hidden:
            self._require(not for_sum(arrays), envelope)
            if asks_for_hiding(self._source):
                if not about.columns:
                    raise must_be_hidden(self._source)
                if not self._limits.open_blocks:
                    raise LimitRefused("limits.open_blocks", False, OPEN_BLOCKS)
        if asks_for_noise(self._source) and about.spending is None and (trains or not hidden):
            raise must_be_noisy(self._source)
        self._check_batch(stage, about)
        run = envelope.run.hex()
        if about.spending is not None:
            self._ledger.spend(run, about.spending)
        if stage == "train":
            self._ledger.add_round(run)

    def _check_batch(self, stage: str, about: About) -> None:
        key = "least_batch" if stage in ("probe", "train") else "least_rows"
        least = getattr(self._limits, key)
        if about.rows < least and stage != "predict":
            raise LimitRefused(f"limits.{key}", least, "a sum over fewer rows is asked for")

    def _check_census(self, said: Mapping[str, Any]) -> None:
        """No number of a census stands for fewer rows than the limit, and no list is too long."""
        told = {"summaries"} if self._limits.open_blocks else TOLD
        if asks_for_hiding(self._source) and told & set(said):
            raise must_be_hidden(self._source)
        least, most = self._limits.least_rows, self._limits.most_kinds
        counts = [said.get("rows", least), *(count for _, count in said.get("counts", []))]
        counts += [said[part] for part in ("held", "calibration") if said.get(part)]
        lists = [
            kinds
            for kinds in said.get("groups", {}).values()
            if all(isinstance(kind, str) for kind in kinds)
        ]
        summaries = [*said.get("summaries", {}).values(), *filter(None, [said.get("target")])]
        for own in summaries:
            moments = [own["moments"], *own["dates"].values()]
            counts += [rows for rows, *_ in filter(None, moments)]
            counts += [count for _, count in [*own["values"], *own["counts"]]]
            counts += [n for n in (own["missing"], own["rows"] - own["missing"]) if n]
            lists.append(own["counts"])
        if min(counts) < least:
            raise LimitRefused("limits.least_rows", least, "a number about fewer rows is asked for")
        if max(map(len, lists), default=0) > most + 1:
            raise LimitRefused("limits.most_kinds", most, "the names of more values are asked for")

    def _require(self, holds: bool, envelope: Envelope) -> None:
        if not holds:
            raise InvalidMessage(f"this site sends no such message: {envelope.kind[:40]!r}")


def is_hidden(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether a message is what a hidden sum sends, and nothing else."""
    own = for_sum(dict(arrays))
    return len(own) == len(arrays) and _is_message(own)


def _is_message(own: Mapping[str, np.ndarray]) -> bool:
    """Whether arrays of a sum hold a hidden message, besides keys and boxes in bytes."""
    found = [name for name in own if name in HIDDEN]
    if found == [MASKED] and SHORT in own:  # masked numbers of few bits
        if own[SHORT].dtype not in WORDS:
            return False
        own = {name: array for name, array in own.items() if name != SHORT}
    others = _all_bytes({name: array for name, array in own.items() if name not in HIDDEN})
    return len(found) == 1 and own[found[0]].dtype == HIDDEN[found[0]] and others


def _all_bytes(arrays: Mapping[str, np.ndarray]) -> bool:
    return all(array.dtype == np.uint8 for array in arrays.values())


def error_answer(envelope: Envelope, error: Exception) -> bytes:
    """The bytes of an error, also for a site that has no data and so no guard of them."""
    known = isinstance(error, UserError | InvalidMessage | PeerUnreachable)
    text = str(error)
    if not known:
        logging.getLogger(__name__).error("an error at this site", exc_info=error)
        text = f"an error of type {type(error).__name__}, see the log of this site"
    said = {"message": " ".join(text.split())[:LONGEST_LINE]}
    if isinstance(error, PeerUnreachable):
        said["peer"] = error.peer
    return encode(envelope._replace(kind="error", arrays=note(said)))
