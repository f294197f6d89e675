"""Before training on columns: the rows that all parties have, by their ids (`privacy.psi`).

    ids          are these the same rows in the same order? then nothing else happens
    align/open   a site multiplies its own points and sends them to the next, sealed for that site
    align/turn   the points of another come on; from the last station they go to the server
    align/keep   the server tells each site which of its points all have; sites tell each other
    align/agree  a digest of the rows they now keep, and go on only if it is one and the same

The server sees points that all parties multiplied. It can count what they have in common, in all
and among some of them, and cannot test an id that it guesses, not even together with a party.
"""

from __future__ import annotations

import csv
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.ids import Form, canonical, form_of, misfit
from fedssca.deploy.holding import digest
from fedssca.deploy.sheet import Sheet, fresh_rows, picked, read_sheet
from fedssca.errors import UserError
from fedssca.privacy.psi.protocol import (
    PsiParty,
    check_points,
    common_positions,
    rows_by_part,
    tagged_ids,
)
from fedssca.rounds.codec import Letter, WireError, encode, note, read_note
from fedssca.run.schema import SiteFile

__all__ = ["PEER", "Aligner", "Post", "align", "same_rows"]

Post = Callable[[Mapping[str, bytes], float], None]
"""Sends each peer its letter, encrypted, within so many seconds; returns when all have it."""
Ask = Callable[[str, int, Sequence[dict[str, np.ndarray]]], list[Letter]]
"""(kind, hop, arrays for each site) -> the answers of all sites."""
PEER = "align"
"""The kind of a letter from site to site."""
CALLED = {"rows": "its rows", "test": "its test rows", "new": "its new rows"}


def same_rows(names: Sequence[str], said: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all sites bring the same ids in the same order; UserError if they never can."""
    if all(each["ids"] == said[0]["ids"] for each in said):
        return True
    for name, each in zip(names, said, strict=True):
        if each["parts"] != said[0]["parts"]:
            one, two = (" and ".join(CALLED[p] for p in s["parts"]) for s in (each, said[0]))
            raise UserError(
                f"{name}: it brings {one}, {names[0]} brings {two}; test rows come apart "
                "(NPZ: x_test) at all parties or at none"
            )
    if line := misfit({n: Form(*each["form"]) for n, each in zip(names, said, strict=True)}):
        raise UserError(line)
    return False


def align(ask: Ask, names: Sequence[str], said: Sequence[Mapping[str, Any]], seconds: float) -> int:
    """The server's part; how many rows all sites keep."""
    count = len(names)
    told = note({"session": secrets.token_hex(16), "names": list(names), "seconds": seconds})
    everyone = [told] * count
    ask("align/open", 0, everyone)
    for hop in range(1, count):
        letters = ask("align/turn", hop, everyone)
    sets = []
    for owner, each in enumerate(said):
        last = (owner - 1) % count
        try:
            sets.append(check_points(letters[last].arrays.get("points"), each["count"], valid=True))
        except WireError as error:
            raise UserError(f"{names[last]}: what it sent cannot be aligned: {error}") from None
    places = common_positions(sets)
    if not len(places[0]):
        sizes = ", ".join(f"{n} {each['count']}" for n, each in zip(names, said, strict=True))
        raise UserError(
            f"no id is at all sites (rows: {sizes}); is id in every site.toml the column that "
            "names the same things, written alike?"
        )
    ask("align/keep", 0, [told | {"places": own} for own in places])
    ask("align/agree", 0, everyone)
    return len(places[0])


class Aligner:
    """A site's part: its sheets, which shrink to the common rows."""

    def __init__(self, name: str, source: SiteFile, secure: bool) -> None:
        self._name, self._source, self._secure = name, source, secure
        self._sheets: dict[str, Sheet] = {}
        self._parts: dict[str, list[str]] = {}
        self._member: PsiParty | None = None
        self._session = ""
        self._names: list[str] = []
        self._kept: dict[str, np.ndarray] = {}
        self._mark = np.zeros(0, np.uint8)
        self._inbox: dict[tuple[str, str, int], np.ndarray] = {}
        self._mail = threading.Lock()

    def sheet(self, which: str) -> Sheet:
        """The rows with their test rows, or the "new" ones, as they now are."""
        if which not in self._sheets:
            raise WireError(f"nobody asked for the ids of {CALLED[which]}")
        test = self._sheets.get("test") if which == "rows" else None
        return self._sheets[which]._replace(test=test)

    def receive(self, sender: str, letter: Letter) -> None:
        """Keep a peer's letter until its turn; what is of another session is never looked at."""
        said, body = read_note(letter), letter.arrays.get("body")
        if body is None or not isinstance(said, dict) or not isinstance(said.get("session"), str):
            raise WireError(f"the letter of {sender} is not complete")
        with self._mail:
            self._inbox[said["session"], sender, letter.round] = body

    def answer(self, letter: Letter, post: Post) -> dict[str, np.ndarray]:
        """Answer the server."""
        told = read_note(letter)
        if letter.kind == "ids":
            return note(self._bring(told))
        if letter.kind == "align/open":
            return self._open(letter, told, post)
        if told["session"] != self._session:
            raise WireError(f"{letter.kind} is of another alignment")
        if letter.kind == "align/turn":
            return self._turn(letter, told, post)
        if letter.kind == "align/keep":
            return self._keep(letter, told, post)
        if letter.kind == "align/agree":
            return self._agree()
        raise WireError(f"there is no phase {letter.kind!r}")

    def _bring(self, told: dict[str, Any]) -> dict[str, Any]:
        """What there is, each id in its canonical spelling."""
        if told["which"] == "new":
            sheets = {"new": fresh_rows(self._source, told["label"])}
        else:
            whole = read_sheet(self._source, told["label"])
            sheets = {"rows": whole._replace(test=None)}
            sheets |= {"test": whole.test} if whole.test is not None else {}
        self._parts = {}
        for part, sheet in sheets.items():
            if sheet.ids is None:
                raise UserError(
                    f"parties that hold columns need ids of {CALLED[part]}: set id in site.toml to "
                    "the column that names them (NPZ: an array ids)"
                )
            # An error goes to the server: it tells the row and never the id.
            ids = canonical(sheet.ids.tolist(), CALLED[part], tell=False)
            self._parts[part] = ids
            self._sheets[part] = sheet._replace(ids=np.array(ids, object))
            self._write_order(part, np.arange(len(ids)))
        every = tagged_ids(self._parts)
        return {
            "parts": list(self._parts),
            "count": len(every),
            "ids": digest(told["run"], every, None),
            "form": form_of([name for ids in self._parts.values() for name in ids]),
        }

    def _open(self, letter: Letter, told: dict[str, Any], post: Post) -> dict[str, np.ndarray]:
        if not self._secure:
            raise UserError(
                "this kit has no certificates, so what parties exchange could not be encrypted; "
                "use a kit from fedssca deploy provision"
            )
        names = told["names"]
        if self._name not in names or len(set(names)) != len(names) or len(names) < 2:
            raise WireError(f"{self._name} is to align with others, each once, itself among them")
        self._session, self._names, self._kept = told["session"], names, {}
        with self._mail:
            self._inbox = {
                key: body for key, body in self._inbox.items() if key[0] == self._session
            }
        self._member = PsiParty(tagged_ids(self._parts))
        self._send([self._peer(1)], letter, self._member.encrypt_own(), told, post)
        return {}

    def _opened(self) -> PsiParty:
        if self._member is None:
            raise WireError("align/open comes first")
        return self._member

    def _turn(self, letter: Letter, told: dict[str, Any], post: Post) -> dict[str, np.ndarray]:
        hop = letter.round
        if not 0 < hop < len(self._names):
            raise WireError(f"there is no hop {hop} among {len(self._names)} parties")
        points = self._opened().encrypt(self._take(self._peer(-1), hop - 1))
        if hop == len(self._names) - 1:
            return {"points": points}
        self._send([self._peer(1)], letter, points, told, post)
        return {}

    def _keep(self, letter: Letter, told: dict[str, Any], post: Post) -> dict[str, np.ndarray]:
        places = letter.arrays.get("places", np.zeros(0))
        member = self._opened()
        rows = member.rows_at(places)
        self._kept = rows_by_part(self._parts, rows)
        common = [member.ids[row] for row in rows.tolist()]
        self._mark = np.frombuffer(digest(self._session, common, None).encode(), np.uint8)
        others = [name for name in self._names if name != self._name]
        self._send(others, letter._replace(round=len(self._names)), self._mark, told, post)
        return {}

    def _agree(self) -> dict[str, np.ndarray]:
        """The server may have told each site other rows: sites believe each other."""
        if set(self._kept) != set(self._parts):
            raise WireError("align/agree came before align/keep")
        for name in self._names:
            if name != self._name and not np.array_equal(
                self._take(name, len(self._names)), self._mark
            ):
                raise UserError(f"{name} found other common rows: align anew")
        for part, rows in self._kept.items():
            self._sheets[part] = picked(self._sheets[part], rows)
            self._write_order(part, rows)
        self._session = ""  # one alignment, one secret number
        self._member = None
        return {}

    def _peer(self, step: int) -> str:
        return self._names[(self._names.index(self._name) + step) % len(self._names)]

    def _send(
        self,
        peers: Sequence[str],
        letter: Letter,
        body: np.ndarray,
        told: dict[str, Any],
        post: Post,
    ) -> None:
        arrays = note({"session": self._session}) | {"body": body}
        data = encode(letter._replace(kind=PEER, arrays=arrays))
        post(dict.fromkeys(peers, data), 0.8 * told["seconds"])

    def _take(self, sender: str, hop: int) -> np.ndarray:
        with self._mail:
            body = self._inbox.pop((self._session, sender, hop), None)
        if body is None:
            raise WireError(f"nothing came from {sender} in step {hop} of this alignment")
        return body

    def _write_order(self, part: str, rows: np.ndarray) -> None:
        """For the site's own use: which row is which id, in the order that counts."""
        if not self._source.order:
            return
        try:
            folder = Path(self._source.order)
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / f"{part}.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["row", "id"])
                writer.writerows([row + 1, self._parts[part][row]] for row in rows.tolist())
        except OSError as error:
            raise UserError(f"order = ... in site.toml: {error.strerror}") from None
