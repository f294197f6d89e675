"""A site's side of the census under masks: its words, counts and sums, each as a secure sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedssca.deploy.census import Question
from fedssca.deploy.site.rows import SiteRows
from fedssca.deploy.sums import for_sum, marked
from fedssca.deploy.totals import CensusLayout, SiteTotals
from fedssca.deploy.words import Word, as_numbers, bucket_counts, fits, table_size, word_table
from fedssca.rounds.aggregate import Answerer, Arrays
from fedssca.rounds.codec import Envelope, InvalidMessage, read_note

__all__ = ["HiddenCensus"]

MOST_SUMS = 8
"""The number of sums that a site adds to before round 1."""
MOST_NUMBERS = 1 << 24
"""The length of the longest vector that a site adds to a sum."""


class HiddenCensus:
    """What one site adds to the sums of the census."""

    def __init__(self, rows: SiteRows, asked: Question, run: bytes, client: Answerer) -> None:
        self._rows, self._asked, self._run, self._client = rows, asked, run, client
        self._summaries = rows.summaries()
        self._sums = 0

    def facts(self) -> dict[str, Any]:
        """What the server needs to know to lay out the sums: nothing about rows."""
        return {"encodes": list(self._summaries), "bytes": self._rows.takes_most}

    def further(self, phase: str, arrays: Arrays) -> Arrays:
        """Answer a further exchange of a sum."""
        return marked(self._client.handle(phase, for_sum(arrays), _nothing))

    def answer(self, envelope: Envelope) -> Arrays:
        """Add to the sum that the server asks for."""
        told = read_note(envelope)
        self._sums += 1
        if self._sums > MOST_SUMS:
            raise InvalidMessage(f"a census takes at most {MOST_SUMS} sums")
        numbers = as_numbers(self._integers(told))
        asked = for_sum(envelope.arrays)
        return marked(self._client.handle("reply", asked, lambda: {"numbers": numbers}))

    def words(self) -> list[Word]:
        """The values of text, labels and groups that enough rows of this site have."""
        found: list[Word] = []
        for place, summary in enumerate(self._summaries.values()):
            found += [(place, word) for word in summary.counts if fits(word)]
        groups, first = self._rows.groups, len(self._summaries)
        for place, name in enumerate(self._asked["extra"], first):
            found += [(place, value) for value in groups[name]]
        label = first + len(self._asked["extra"])
        found += [(label, value) for value in self._rows.labels]
        if not all(fits(value) for _, value in found):
            raise InvalidMessage("a label or a group has a name that is too long for a hidden sum")
        return found

    def _integers(self, told: dict[str, Any]) -> np.ndarray:
        step = told.get("step")
        if step == "buckets":
            return bucket_counts(self.words(), self._run)
        if step == "words":
            cells = int(told["cells"])
            if not 0 < table_size(cells) <= MOST_NUMBERS or cells % 3:
                raise InvalidMessage(f"there is no table of {cells} cells")
            return word_table(self.words(), cells, self._run)
        if step == "numbers":
            return self._numbers(told)
        raise InvalidMessage(f"a census has no step {step!r}")

    def _numbers(self, told: dict[str, Any]) -> np.ndarray:
        """Counts and sums. Texts that nobody tells count as other ones, whatever is asked for."""
        labels, groups = list(told["labels"]), dict(told["groups"])
        words = {name: list(told["words"].get(name, [])) for name in self._summaries}
        sizes, counts = [], {}
        if self._asked["counted"]:
            sizes = [len(labels), *(len(groups[name]) for name in self._asked["extra"])]
            counts = dict(self._rows.counts(labels, groups))
        layout = CensusLayout(words, sizes, self._rows.takes_most)
        if layout.size > MOST_NUMBERS:
            raise InvalidMessage("the census asks for too many numbers")
        most = self._rows.most if layout.bytes else 0
        return layout.pack(SiteTotals(self._summaries, counts, most))


def _nothing() -> Any:
    raise InvalidMessage("a sum asks for a message in its reply only")
