"""The process that keeps parties in memory between two messages of Flower.

Flower starts a new process for every message at a SuperNode, and gives the messages of a simulated
node to any of its workers. The party of a site has keys, masks, data and compiled programs, which
must outlive a message. So the first message starts a host, and all messages are passed on to it
over a socket in a private folder. A SuperNode has one host with its own party, which ends with the
SuperNode. A simulation has one host with the parties of all sites, which ends with the run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedssca.deploy.engines.flower.app.client import LOOK
from fedssca.deploy.engines.flower.channel import serve
from fedssca.deploy.engines.flower.kit import open_kit
from fedssca.deploy.engines.flower.parties import SiteRuns
from fedssca.deploy.engines.flower.records import Record, packed, unpacked
from fedssca.deploy.local import write_site_files
from fedssca.deploy.processes import still_runs
from fedssca.deploy.project import site_names
from fedssca.deploy.site.ledger import ledger_of
from fedssca.deploy.site.party import Party
from fedssca.deploy.site.raw_table import read_source
from fedssca.errors import UserError
from fedssca.privacy.sums.keys import Identity
from fedssca.run.config import parse

__all__ = ["HostedSites", "main"]


class HostedSites:
    """The sites of a host, which answer messages."""

    def __init__(self, task: Mapping[str, Any], scratch: Path) -> None:
        self._sites, self._scratch = dict[str, SiteRuns](), scratch
        self._simulated, self._lock = int(task.get("sites", 0)), threading.Lock()
        self._owner, self._left = int(task["owner"]), set[str]()
        if "kit" in task:
            from fedssca.deploy.engines.flower.node import begin_party

            kit, data = open_kit(Path(task["kit"]), "site"), Path(task["data"])
            runs = SiteRuns(kit.name, lambda: begin_party(kit.name, data, kit.path))
            self._sites[kit.name] = runs

    def reply(self, record: Record) -> Record:
        """The answer of the site that the record is for."""
        site, run = record.pop("about site"), int(record.pop("about run"))
        try:
            if self._simulated and record.get("kind") == "hello":
                with self._lock:
                    self._share_out(str(record["config"]))
            if record.get("kind") == "bye":
                self._left.add(site)
            return self._sites[site].reply(run, record)
        except UserError as error:
            return {"kind": "error", "error": str(error)}

    def needed(self) -> bool:
        """Whether messages may come: the owner runs, and a simulated run is not over."""
        over = self._simulated and len(self._left) == self._simulated
        return not over and still_runs(self._owner)

    def _share_out(self, config: str) -> None:
        """Give every simulated site its share of the data of a run, once."""
        if self._sites:
            return
        from fedssca.privacy.sums.keys import simulated_identities

        files = write_site_files(parse(config), self._simulated, self._scratch)
        known = simulated_identities(self._simulated)
        for number, name in enumerate(site_names(self._simulated)):
            begin = partial(_simulated_party, name, files[number], known[number])
            self._sites[name] = SiteRuns(name, begin, self._simulated)


def _simulated_party(name: str, file: Path, identity: Identity) -> Party:
    return Party(name, read_source(file), True, lambda _: identity, ledger_of(file))


def main(place: Path, task: Mapping[str, Any]) -> None:
    """Answer the messages of one owner until it has ended."""
    with tempfile.TemporaryDirectory(prefix="fedssca-") as scratch:
        parties = HostedSites(task, Path(scratch))

        def answer(question: bytes) -> bytes:
            record = unpacked(question)
            if record.get("kind") == "listens":
                return packed({"kind": "listens"})
            return packed(parties.reply(record))

        listener = serve(place, answer)
        while parties.needed():
            time.sleep(LOOK)
        listener.close()
    for end in (".sock", ".lock"):
        place.with_suffix(end).unlink(missing_ok=True)
    log = place.with_suffix(".log")
    if log.exists() and not log.stat().st_size:
        log.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
