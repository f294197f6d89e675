"""A site's side of the alignment: its tables, which shrink to the rows that all parties have."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.ids import canonical, form_of
from fedssca.deploy.alignment import PEER, ROWS_OF
from fedssca.deploy.engine import Post
from fedssca.deploy.site.inbox import PeerInbox
from fedssca.deploy.site.raw_table import RawTable, new_rows, picked, read_raw_table
from fedssca.deploy.site.rows import digest
from fedssca.errors import UserError
from fedssca.privacy.psi.protocol import PsiParty, rows_by_part, tagged_ids
from fedssca.rounds.codec import Envelope, InvalidMessage, encode, note, read_note
from fedssca.run.schema import SiteFile

__all__ = ["SiteAlignment"]


class SiteAlignment:
    """The tables of one site, and its part in finding the common rows."""

    def __init__(self, name: str, source: SiteFile, secure: bool) -> None:
        """`secure` says whether the engine encrypts what goes to peers; nothing is sent if not."""
        if not secure:
            raise UserError(
                "this kit has no certificates, so what parties exchange could not be encrypted; "
                "use a kit from fedssca deploy provision"
            )
        self._name, self._source = name, source
        self._tables: dict[str, RawTable] = {}
        self._parts: dict[str, list[str]] = {}
        self._psi: PsiParty | None = None
        self._session = ""
        self._hop = 0
        """The last hop of this session that the site has answered."""
        self._names: list[str] = []
        self._kept: dict[str, np.ndarray] = {}
        self._digest = np.zeros(0, np.uint8)
        self._inbox = PeerInbox[tuple[str, int]]()
        """(session, hop) -> what each peer sent."""

    def table(self, which: str) -> RawTable:
        """The "rows" with their test rows, or the "new" rows, as aligned so far."""
        if which not in self._tables:
            raise InvalidMessage(f"the ids of {ROWS_OF[which]} were not asked for")
        test = self._tables.get("test") if which == "rows" else None
        return self._tables[which]._replace(test=test)

    def receive(self, sender: str, envelope: Envelope) -> None:
        """Keep a peer's envelope until it is needed; those of another session are never read."""
        said, body = read_note(envelope), envelope.arrays.get("body")
        if body is None:
            raise InvalidMessage(f"the envelope of {sender} is not complete")
        self._inbox.put(sender, (said["session"], envelope.round), body)

    def answer(self, envelope: Envelope, post: Post) -> dict[str, np.ndarray]:
        """Answer the server."""
        told = read_note(envelope)
        if envelope.kind == "ids":
            return note(self._read(told))
        if envelope.kind == "align/open":
            return self._open(envelope, told, post)
        if told["session"] != self._session:
            raise InvalidMessage(f"{envelope.kind} is of another alignment")
        if envelope.kind == "align/turn":
            return self._turn(envelope, told, post)
        if envelope.kind == "align/keep":
            return self._keep(envelope, told, post)
        if envelope.kind == "align/agree":
            return self._agree()
        raise InvalidMessage(f"there is no phase {envelope.kind!r}")

    def _read(self, told: dict[str, Any]) -> dict[str, Any]:
        """Read the tables and describe their ids, each in its canonical spelling."""
        if told["which"] == "new":
            tables = {"new": new_rows(self._source, told["label"])}
        else:
            whole = read_raw_table(self._source, told["label"])
            tables = {"rows": whole._replace(test=None)}
            tables |= {"test": whole.test} if whole.test is not None else {}
        self._parts, self._psi = {}, None
        for part, table in tables.items():
            if table.ids is None:
                raise UserError(
                    f"parties that hold columns need ids of {ROWS_OF[part]}: set id in site.toml "
                    "to the column that names them (NPZ: an array ids)"
                )
            # An error goes to the server: it names the row and never the id.
            ids = canonical(table.ids.tolist(), ROWS_OF[part], tell=False)
            self._parts[part] = ids
            self._tables[part] = table._replace(ids=np.array(ids, object))
            self._write_order(part, np.arange(len(ids)))
        every = tagged_ids(self._parts)
        return {
            "parts": list(self._parts),
            "count": len(every),
            "ids": digest(told["run"], every, None),
            "form": form_of([name for ids in self._parts.values() for name in ids]),
        }

    def _open(self, envelope: Envelope, told: dict[str, Any], post: Post) -> dict[str, np.ndarray]:
        names = told["names"]
        if self._name not in names or len(set(names)) != len(names) or len(names) < 2:
            raise InvalidMessage(
                f"{self._name} is to align with others, each once and itself included"
            )
        if self._psi is not None:
            raise InvalidMessage(
                "an alignment is under way: a site begins one for each list of ids"
            )
        self._session, self._names, self._kept, self._hop = told["session"], names, {}, 0
        self._inbox.keep(lambda key: key[0] == self._session)
        self._psi = PsiParty(tagged_ids(self._parts))
        self._send([self._peer(1)], envelope, self._psi.encrypt_own(), told, post)
        return {}

    def _opened_psi(self) -> PsiParty:
        if self._psi is None:
            raise InvalidMessage("align/open comes first")
        return self._psi

    def _turn(self, envelope: Envelope, told: dict[str, Any], post: Post) -> dict[str, np.ndarray]:
        hop = envelope.round
        if not 0 < hop < len(self._names):
            raise InvalidMessage(f"there is no hop {hop} among {len(self._names)} parties")
        if hop != self._hop + 1:
            raise InvalidMessage(f"hop {hop} is not the next one: each is answered once")
        self._hop = hop
        points = self._opened_psi().encrypt(self._take(self._peer(-1), hop - 1))
        if hop == len(self._names) - 1:
            return {"points": points}
        self._send([self._peer(1)], envelope, points, told, post)
        return {}

    def _keep(self, envelope: Envelope, told: dict[str, Any], post: Post) -> dict[str, np.ndarray]:
        places = envelope.arrays.get("places", np.zeros(0))
        psi = self._opened_psi()
        if self._kept:
            raise InvalidMessage("the common rows of this alignment were told before")
        rows = psi.rows_at(places)
        self._kept = rows_by_part(self._parts, rows)
        common = [psi.ids[row] for row in rows.tolist()]
        self._digest = np.frombuffer(digest(self._session, common, None).encode(), np.uint8)
        others = [name for name in self._names if name != self._name]
        self._send(others, envelope._replace(round=len(self._names)), self._digest, told, post)
        return {}

    def _agree(self) -> dict[str, np.ndarray]:
        """Compare what all sites keep: the server may have told each of them other rows."""
        if set(self._kept) != set(self._parts):
            raise InvalidMessage("align/agree came before align/keep")
        for name in self._names:
            if name != self._name and not np.array_equal(
                self._take(name, len(self._names)), self._digest
            ):
                raise UserError(f"{name} found other common rows: align anew")
        for part, rows in self._kept.items():
            self._tables[part] = picked(self._tables[part], rows)
            self._write_order(part, rows)
        self._session = ""  # the secret number of an alignment is used once
        self._psi = None
        return {}

    def _peer(self, step: int) -> str:
        return self._names[(self._names.index(self._name) + step) % len(self._names)]

    def _send(
        self,
        peers: Sequence[str],
        envelope: Envelope,
        body: np.ndarray,
        told: dict[str, Any],
        post: Post,
    ) -> None:
        arrays = note({"session": self._session}) | {"body": body}
        data = encode(envelope._replace(kind=PEER, arrays=arrays))
        post(dict.fromkeys(peers, data), 0.8 * told["seconds"])

    def _take(self, sender: str, hop: int) -> np.ndarray:
        body = self._inbox.take_from(sender, (self._session, hop))
        if body is None:
            raise InvalidMessage(f"nothing came from {sender} in step {hop} of this alignment")
        return body

    def _write_order(self, part: str, rows: np.ndarray) -> None:
        """Write, for the site's own use, which row has which id, in the order of training."""
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
