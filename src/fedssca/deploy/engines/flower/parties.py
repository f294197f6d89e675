"""A site's side of runs: one `Party` per run, which answers the records of the server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from fedssca.deploy.engines.flower.records import Record, mail_of, text, with_mail
from fedssca.deploy.site.party import Party
from fedssca.errors import UserError
from fedssca.rounds.codec import InvalidMessage

__all__ = ["SiteRuns"]

LOG = logging.getLogger(__name__)

KEPT = 2
"""The number of runs that a site keeps in memory; the server submits one after the other."""


class SiteRuns:
    """All runs of one site; `begin` makes the party of a new run."""

    def __init__(self, name: str, begin: Callable[[], Party], simulated: int = 0) -> None:
        """`simulated` is the number of sites in a simulation, where all are on one machine."""
        self._name, self._begin, self._simulated = name, begin, simulated
        self._parties: dict[int, Party] = {}
        self._lock = threading.Lock()

    def reply(self, run: int, record: Record) -> Record:
        """Answer one message of the server; what is wrong with it goes back as one line."""
        kind = text(record, "kind")
        if kind == "hello":
            known = {"simulated": self._simulated} if self._simulated else {}
            return {"kind": "hello", "site": self._name, **known}
        if kind == "bye":
            with self._lock:
                self._parties.pop(run, None)
            return {"kind": "bye"}
        try:
            if kind != "ask":
                raise UserError("this is no message of a server of fedssca")
            return self._answer(self._party(run), record)
        except UserError as error:
            return {"kind": "error", "error": str(error)}
        except Exception:
            LOG.exception("%s could not answer", self._name)
            return {"kind": "error", "error": f"{self._name} could not answer: see its log"}

    def _answer(self, party: Party, record: Record) -> Record:
        """Take the mail of other sites, then answer the envelope of the server."""
        for sender, data in mail_of(record):
            try:
                party.receive(sender, data)
            except InvalidMessage as error:  # the phase that needs it will say that it is missing
                LOG.warning("%s: %s", self._name, error)
        mail: list[tuple[str, bytes]] = []

        def post(envelopes: Mapping[str, bytes], timeout: float) -> None:
            del timeout
            mail.extend(envelopes.items())

        answer = party.handle(record.get("data"), post)
        return with_mail({"kind": "answer", "data": answer}, mail)

    def _party(self, run: int) -> Party:
        with self._lock:
            if run not in self._parties:
                while len(self._parties) >= KEPT:
                    del self._parties[next(iter(self._parties))]
                self._parties[run] = self._begin()
            return self._parties[run]
