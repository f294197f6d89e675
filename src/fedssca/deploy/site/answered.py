"""Which questions of a run a site has answered: rounds only increase, and each is answered once.

Two sums over the same numbers of almost the same sites differ by the message of one site. So where
sums are hidden the site also remembers, in a folder beside its site.toml,

- the rounds that it answered in earlier jobs of the run: if a resumed run repeats one, the site
  draws a new batch, which no earlier sum is about;
- who was in the sums over all of its rows: the same question is answered again in a sum of the
  same sites only.

A line is written before the answer leaves. It survives the end of the process at any moment, but is
not forced to the disk in every round: a power failure may lose the last lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from fedssca.errors import UserError
from fedssca.methods.calibrate import PROBES
from fedssca.rounds.codec import InvalidMessage

__all__ = ["AnsweredQuestions", "question_digest"]


def question_digest(stage: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Identifies what a site is asked in a stage, wherever and whenever it is asked."""
    found = sha256(stage.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class AnsweredQuestions:
    """The memory of one site for one run."""

    def __init__(self, file: Path | None) -> None:
        """Read what earlier jobs of the run wrote to `file`; None: keep nothing on disk."""
        self._file = file
        self._rounds: dict[str, int] = {}
        """The last round of each stage that earlier jobs have answered."""
        self._sums: dict[str, str] = {}
        """The question of a sum over all rows -> the sites in that sum."""
        self._last: dict[str, tuple[int, str]] = {}
        """The last round of each stage in this job, and its question."""
        self._probed: set[str] = set()
        self._current = ("", "")
        self._opened = False
        if file is not None and file.exists():
            self._read(file.read_text())

    def begin(self, stage: str, round_: int, question: str, *, hidden: bool) -> bool:
        """Take a question; returns whether it is the last one again, which was not yet summed up.

        A hidden sum that cannot be opened is asked for again under new masks. Other questions of
        a round that was answered, and of earlier rounds, are refused.
        """
        if hidden and not self._opened and self._current == (stage, question):
            return True
        if stage == "probe":
            self._probed.add(question)
            if len(self._probed) > PROBES or (self._current == (stage, question)):
                raise InvalidMessage(f"a site answers {PROBES} probes, each once")
        elif stage in self._last and round_ <= self._last[stage][0]:
            raise InvalidMessage(
                f"{stage}, round {round_}: rounds only increase, and each is answered once; the "
                f"last one was {self._last[stage][0]}"
            )
        self._last[stage] = (round_, question)
        self._current, self._opened = (stage, question), False
        if hidden and stage in ("probe", "train"):
            self._write(f"{stage} {round_}")
        return False

    def repeats(self, stage: str, round_: int) -> bool:
        """Whether an earlier job of this run has answered this round already."""
        return stage in self._rounds and (stage == "probe" or round_ <= self._rounds[stage])

    def check_opening(self, alive: Sequence[int]) -> None:
        """Refuse to open a sum over all rows that was opened before with other sites in it."""
        stage, question = self._current
        if stage not in ("", "probe", "train"):
            who = ",".join(map(str, sorted(alive)))
            if self._sums.setdefault(question, who) != who:
                raise UserError(
                    "this site has answered the same question in a sum of other sites, and the two "
                    "sums would differ by the message of single sites"
                )
            self._write(f"sum {question} {who}")
        self._opened = True

    def _read(self, text: str) -> None:
        for line in text.splitlines():
            match line.split():
                case ["sum", question, who]:
                    self._sums[question] = who
                case [stage, number] if number.lstrip("-").isdigit():
                    self._rounds[stage] = max(int(number), self._rounds.get(stage, -1))

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            with open(self._file, "a") as file:
                file.write(line + "\n")
        except OSError as error:
            raise UserError(
                f"this site cannot remember what it answers ({error.strerror}): the folder of "
                "site.toml must be writable"
            ) from None
