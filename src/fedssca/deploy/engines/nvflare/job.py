"""The classes that an NVFlare job names, and the calls between them.

They are installed with the package at every party. A site's kit allows these classes and nothing
else, and no code that comes with a job: the submitter chooses the numbers of a run, not what the
sites execute.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.collab import collab

from fedssca.deploy.engine import JobOrder, PeerUnreachable
from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.engines.nvflare.kit import SITE_FILE, SITE_KIT, SITES, TOPIC
from fedssca.deploy.engines.nvflare.link import collab_call
from fedssca.deploy.notes import check_request
from fedssca.deploy.server.job import ServerJob
from fedssca.deploy.site.guard import error_answer
from fedssca.deploy.site.identity import certified
from fedssca.deploy.site.ledger import ledger_of
from fedssca.deploy.site.party import Party
from fedssca.deploy.site.raw_table import read_source
from fedssca.errors import UserError
from fedssca.rounds.codec import InvalidMessage, decode
from fedssca.system import end_with_parent

__all__ = ["JobServer", "JobSite"]

TENSORS = "nvflare.app_opt.pt.decomposers"
"""The module with which the engine sends tensors of PyTorch."""


class JobServer:
    """The server's object of a job."""

    def __init__(
        self,
        config: str,
        sites: list[str],
        run: str,
        resume: bool,
        task: str = "train",
        longer: str = "",
    ) -> None:
        self._job = ServerJob(JobOrder(run, sites, config, resume, task, longer))

    @collab.main
    def main(self) -> None:
        """Carry out the order; its outcome waits for the submitting side."""
        end_with_parent()
        collab.fl_ctx.get_engine().register_app_command(TOPIC, self._command)
        runs = Path(collab.workspace.get_root_dir()) / "runs"
        self._job.run(CallLink(collab_call), {proxy.name for proxy in collab.clients}, runs)

    def _command(self, topic: str, asked: Any, fl_ctx: Any) -> dict[str, Any]:
        del topic, fl_ctx
        return self._job.command(asked)


class JobSite:
    """A site's object of a job."""

    def __init__(self) -> None:
        # The engine would load PyTorch, if it is installed, to send tensors: 180 MB for each site.
        # A name that stands for no module cannot be imported. Jobs of ours send bytes only.
        sys.modules.setdefault(TENSORS, None)  # type: ignore[arg-type]
        self._party: Party | None = None
        self._refusal: UserError | None = None

    @collab.init
    def begin(self) -> None:
        """Find this site's data; a site that has none tells the server so."""
        end_with_parent()
        try:
            self._party = self._found()
        except UserError as error:
            self._refusal = error

    def _found(self) -> Party:
        file = _named(SITE_FILE) or Path(collab.workspace.get_site_config_dir()) / "site.toml"
        if not file.is_file():
            raise UserError(
                "it has no site.toml, which describes its data: start it with fedssca deploy site "
                "KIT --data site.toml, or put that file into the folder local of its workspace"
            )
        cell = collab.fl_ctx.get_engine().get_cell()
        secure = _simulated() or bool(cell.core_cell.supports_secure_messages())
        kit = (_named(SITE_KIT) or Path(collab.workspace.get_root_dir())) / "startup"
        files = (kit / "client.key", kit / "client.crt", kit / "rootCA.pem")
        identity = certified(*files, kit.parent / SITES)
        source, ledger = read_source(file), ledger_of(file)
        return Party(collab.site_name, source, secure, identity, ledger)

    @collab.publish
    def handle(self, data: bytes) -> bytes:
        """Answer the server."""
        if collab.caller != "server":
            raise UserError(f"{collab.caller} asked what only the server may ask")
        if self._party is None:
            assert self._refusal is not None
            return error_answer(check_request(decode(data)), self._refusal)
        return self._party.handle(data, _post)

    @collab.publish
    def put(self, data: bytes) -> bool:
        """Take a peer's envelope; False if it is refused."""
        assert self._party is not None
        try:
            self._party.receive(collab.caller, data)
        except InvalidMessage:
            return False
        return True


def _named(variable: str) -> Path | None:
    """The path that an environment variable of this site names."""
    place = os.environ.get(variable)
    return Path(place.replace("{site}", collab.site_name)) if place else None


def _simulated() -> bool:
    """Whether this is NVFlare's simulator: all sites are processes of one user on one machine."""
    return bool(collab.fl_ctx.get_prop(FLContextKey.SIMULATE_MODE, False))


def _post(envelopes: Mapping[str, bytes], timeout: float) -> None:
    """Call `put` at each peer, encrypted for that peer alone; return when all have answered.

    The simulator has no certificates; there the parties' own seals protect what they send.
    """
    how = {"blocking": False, "secure": not _simulated(), "timeout": timeout}
    waiting = {
        peer: collab.get_clients([peer])(**how).put(data) for peer, data in envelopes.items()
    }
    for peer, results in waiting.items():
        if not [done for _, done in results if done is True]:
            raise PeerUnreachable(peer, str(results.failures.get(peer)))
