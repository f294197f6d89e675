"""What a deployment needs from an engine; everything else in `deploy` is the same for all engines.

An engine makes startup kits, runs the processes of the server and of the sites, carries encoded
envelopes between them, and lets the submitting side start and watch jobs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedssca.errors import UserError
from fedssca.run.schema import ProjectFile

__all__ = [
    "UNREACHABLE",
    "Answer",
    "Engine",
    "JobNotReady",
    "JobOrder",
    "Kit",
    "Link",
    "Patience",
    "PeerUnreachable",
    "Post",
    "ServerUnreachable",
    "Session",
    "check_kind",
]


class Answer(NamedTuple):
    """What came back from a site. `data` is None if nothing came, for the reason in `error`."""

    data: Any
    error: str = ""
    seconds: float = 0.0
    late: bool = False
    """Nothing came yet, and nobody waits for it."""


class Patience(NamedTuple):
    """How long all answers are waited for, and how many are enough after that."""

    seconds: float
    enough: int


class Link(Protocol):
    """The server's connection to the sites."""

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        """Send each named site its envelope, all at once; return one answer for each of them.

        With `patience` the answers that have not come after so many seconds are late, once enough
        others are there. A site that was late is sent its next envelope when it has answered the
        earlier one; if it never does, it is an answer without data that says so.
        """

    def busy(self) -> Collection[str]:
        """The sites that were late and have not answered since."""

    def late_answers(self) -> Mapping[str, Answer]:
        """What sites that were late have answered since the last look."""


Post = Callable[[Mapping[str, bytes], float], None]
"""Sends each named peer its envelope, encrypted for that peer alone, within so many seconds.

It returns when all of them have it, and raises `PeerUnreachable` otherwise."""


class PeerUnreachable(RuntimeError):
    """A peer did not receive its envelope."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer} did not receive its envelope: {why}")
        self.peer = peer


UNREACHABLE = 20.0
"""The seconds without an answer after which the server counts as unreachable."""


class ServerUnreachable(UserError):
    """The server does not answer the submitting side."""


class JobNotReady(Exception):
    """The job is not running yet, or no longer."""


class JobOrder(NamedTuple):
    """What the submitting side asks the server to do."""

    run: str
    """The run's identifier, 32 hexadecimal digits; a resumed run keeps it."""
    sites: list[str]
    """The sites in the order in which their messages are added."""
    config: str
    """The run's configuration as TOML."""
    resume: bool = False
    task: str = "train"
    """ "train" for a run, "predict" for scores of the parties' new rows."""
    longer: str = ""
    """A setting of `run.more.longer`, if a run that exists is to have more rounds."""


class Kit(Protocol):
    """A party's startup kit: its certificate, and where the server is."""

    @property
    def name(self) -> str:
        """The party's name."""

    @property
    def address(self) -> str:
        """The server's host and port."""

    @property
    def sites(self) -> list[str]:
        """All sites of the project in their order."""

    @property
    def path(self) -> Path:
        """The kit's folder."""

    @property
    def log(self) -> Path:
        """The file that the kit's process writes its output to."""

    def start(
        self, data: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the kit's process, which ends with this one; `data` is a site's site.toml."""


def check_kind(path: Path, kind: str, wanted: str) -> None:
    """Raise a UserError if a kit is not of the kind that a command needs; "" takes any."""
    if wanted and kind != wanted:
        raise UserError(f"{path} is the kit of a {kind}: this command needs a {wanted}'s")


class Session(Protocol):
    """The submitting side's connection to the server, reopened when it breaks."""

    def connected(self, patience: float | None = None) -> dict[str, float]:
        """The sites that are connected, and when the server last heard from each."""

    def submit(self, order: JobOrder) -> str:
        """Start a job and return its identifier."""

    def command(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Send a command to a running job and return its answer; see `server.job`."""

    def status(self, job: str) -> str:
        """The engine's word for the state of a job."""

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the server knows."""

    def abort(self, job: str) -> None:
        """End a job, if it still exists."""


class Engine(Protocol):
    """One way to run a deployment."""

    def require(self) -> None:
        """Raise a UserError that says what to install if the engine is missing."""

    def app_files(self, project: ProjectFile, run: str, out: str) -> Mapping[str, str]:
        """The files, by path, of an app that the engine's own commands start.

        `run` is its TOML, `out` the folder for run directories. Empty if there are no such apps.
        """

    def provision(self, project: ProjectFile, out: Path) -> dict[str, Path]:
        """Make the kits of all parties below `out`, and the certificate authority's folder."""

    def is_kit(self, path: Path) -> bool:
        """Whether this folder is a kit of this engine."""

    def open_kit(self, path: Path, kind: str = "") -> Kit:
        """Open a kit; a UserError if it is not one of this kind (server, site or submit)."""

    def open_session(self, kit: Kit) -> AbstractContextManager[Session]:
        """Connect to the server with the submitter's kit."""
