"""All that happens at a site, behind letters: no engine in here, so tests need none.

ids, align/...   parties with columns: whether their rows are the same, and which ones are
facts     what the site says of its data
prepare   the problem, built here as at the server; its fingerprint goes back
offer     where the h_i are hidden: this run's public key, signed with the site's certificate
meet      the keys of all peers, by way of the server; forged ones are refused
fresh     how many new rows there are to predict
<stage>/<phase>   a phase of a round; letters to peers leave through `post`
sum/<phase>       what a hidden sum needs besides; what a site with rows answers goes through it too
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.deploy.align import PEER, Aligner, Post
from fedssca.deploy.census import Census, blank
from fedssca.deploy.holding import Holding
from fedssca.deploy.identity import Known
from fedssca.deploy.sheet import Sheet, read_sheet
from fedssca.deploy.stages import PASSED, STAGES, Stage, blind, phases_of, shapes_of, stage
from fedssca.deploy.sums import SUM, SiteHalf, plain_part
from fedssca.errors import UserError
from fedssca.privacy.noise.gaussian import SecretNoise
from fedssca.rounds.client import SERVER
from fedssca.rounds.codec import (
    Letter,
    WireError,
    arrays_of,
    decode,
    encode,
    note,
    read_note,
    tree_of,
)
from fedssca.rounds.exchange import Exchange
from fedssca.run.build import Job, plan
from fedssca.run.config import parse, render
from fedssca.run.schema import SiteFile

if TYPE_CHECKING:
    from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

__all__ = ["Party", "Post", "Unreached", "fingerprint"]


class Unreached(RuntimeError):
    """A peer did not take its letter."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer} did not take its letter: {why}")
        self.peer = peer


class Party:
    """One site of one job. Letters of one phase come one at a time; peers' at any time."""

    def __init__(self, name: str, source: SiteFile, secure: bool, known: Known) -> None:
        """`known`: who this site is to its peers."""
        self._name, self._source, self._secure, self._known = name, source, secure, known
        self._blind: ExchangeKeys | None = None
        self._half: SiteHalf | None = None
        self._run = b""
        self._aligner: Aligner | None = None
        self._holding: Holding | None = None
        self._census: Census | None = None
        self._job: Job | None = None
        self._stages: dict[str, tuple[Stage, Any]] = {}
        self._asked: tuple[str, int, Any] = ("", 0, None)
        self._parts: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None = None
        self._new: dict[str, np.ndarray] = {}
        self._early: dict[tuple[str, int], dict[int, np.ndarray]] = {}
        self._veil = SecretNoise()
        self._lock, self._mail = threading.Lock(), threading.Lock()

    def handle(self, data: Any, post: Post) -> bytes:
        """Answer one letter; what goes wrong here goes back as one line."""
        letter = Letter("?", bytes(16), 0, {})
        try:
            letter = decode(data)
            with self._lock, _precision(self._job):
                arrays = self._answer(letter, post)
        except (UserError, ValueError, RuntimeError) as error:
            said = {"message": " ".join(str(error).split())[:500]}
            if isinstance(error, Unreached):
                said["peer"] = error.peer
            return encode(letter._replace(kind="error", arrays=note(said)))
        return encode(letter._replace(arrays=arrays))

    def receive(self, sender: str, data: Any) -> None:
        """Take a peer's letter; it counts from the end of this phase on."""
        letter = decode(data)
        if self._aligner is not None and letter.kind == PEER and letter.run == self._run:
            self._aligner.receive(sender, letter)
            return
        if self._census is None or letter.run != self._run:
            raise WireError(f"a letter from {sender} for another run")
        number = self._census.names.index(sender)
        payload = letter.arrays.get("h")
        if payload is None or payload.dtype.kind != "f" or not np.isfinite(payload).all():
            raise WireError(f"what {sender} sent is not finite numbers")
        with self._mail:
            self._early.setdefault((letter.kind, letter.round), {})[number] = payload

    def _answer(self, letter: Letter, post: Post) -> dict[str, np.ndarray]:
        if letter.kind == "ids" and read_note(letter)["which"] == "rows":
            self._run = letter.run
            self._aligner = Aligner(self._name, self._source, self._secure)
        if letter.kind == "facts":
            asked = read_note(letter)
            self._run, self._parts, self._blind, self._half = letter.run, None, None, None
            self._holding = Holding(self._rows(asked), asked)
            return note(self._holding.facts(self._secure))
        if letter.run != self._run:
            raise WireError(f"a letter of another run came to {self._name}")
        if letter.kind == "prepare":
            return note(self._prepare(read_note(letter)))
        if letter.kind == "ids" or letter.kind.startswith("align/"):
            return self._the_aligner().answer(letter, post)
        if letter.kind in ("offer", "meet"):
            return self._agree(letter)
        if letter.kind == "fresh":
            if self._holding is None or self._census is None:
                raise WireError("fresh came before prepare")
            self._new, said = self._holding.fresh(self._the_aligner().sheet("new"), self._census)
            self._stages.pop("predict", None)
            return note(said)
        if letter.kind.startswith(f"{SUM}/"):
            if self._half is None:
                raise WireError(f"{letter.kind} came before prepare")
            return self._half.aside(letter.kind.partition("/")[2], letter.arrays)
        return self._phase(letter, post)

    def _rows(self, asked: dict[str, Any]) -> Sheet:
        """All that this site has; of parties with columns the rows that all have."""
        if asked["columns"]:
            return self._the_aligner().sheet("rows")
        return read_sheet(self._source, asked["label"])

    def _the_aligner(self) -> Aligner:
        if self._aligner is None:
            raise WireError("parties with columns are asked for their ids first")
        return self._aligner

    def _prepare(self, told: dict[str, Any]) -> dict[str, Any]:
        if self._holding is None:
            raise WireError("prepare came before facts")
        self._census = Census(**told["census"])
        config = parse(told["config"], source="the run's config")
        if self._source.hidden and not (config.privacy.secure_sum or config.privacy.homomorphic):
            raise UserError(
                "this site takes part in hidden sums only (hidden in its site.toml): set "
                "privacy.secure_sum = true in the run"
            )
        with jax.enable_x64(config.run.precision == "float64"):
            self._job, self._stages = plan(config, *blank(self._census, config)), {}
            if self._parts is None:
                self._parts = self._holding.columns(self._census)
            if isinstance(self._job.clients, Columns) and not self._secure:
                raise UserError("without certificates parties with columns do not run")
            names = self._census.names
            if self._half is None and not self._census.columns:  # one for all stages of a run
                number = names.index(self._name)
                self._half = SiteHalf(
                    config, self._run, number, sum(self._census.sizes), names, self._known
                )
            return {"fingerprint": fingerprint(self._job, self._census)}

    def _agree(self, letter: Letter) -> dict[str, np.ndarray]:
        """Keys with all peers, for an exchange that hides the h_i."""
        if self._census is None:
            raise WireError(f"{letter.kind} came before prepare")
        names = self._census.names
        if letter.kind == "offer":
            from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

            own = names.index(self._name)
            self._blind = ExchangeKeys(own, len(names), self._run, self._known(names))
            self._stages = {}
            return self._blind.offer()
        if self._blind is None:
            raise WireError("meet came before offer")
        offers = {
            i: {"key": letter.arrays[f"key {i}"], "signature": letter.arrays[f"signature {i}"]}
            for i in range(len(names))
            if {f"key {i}", f"signature {i}"} <= letter.arrays.keys()
        }
        self._blind.agree(offers)
        return {}

    def _phase(self, letter: Letter, post: Post) -> dict[str, np.ndarray]:
        name, _, phase = letter.kind.partition("/")
        job, census = self._job, self._census
        if job is None or census is None or self._parts is None:
            raise WireError(f"{letter.kind} came before prepare")
        phases = phases_of(name, job.clients)
        if phase not in phases or name not in STAGES:
            raise WireError(f"there is no phase {letter.kind!r}")
        number, key = census.names.index(self._name), (name, letter.round)
        if name not in self._stages:
            due = shapes_of(name, job, number).asked
            parts = (*self._parts, self._new)
            exchange = self._exchange(name, job)
            self._stages[name] = stage(name, job, number, *parts, self._veil, exchange), due
        one, due = self._stages[name]
        if phase == phases[0]:
            with self._mail:
                self._early = {k: v for k, v in self._early.items() if k[1] == letter.round}
            asked = tree_of(due, plain_part(letter.arrays))
            self._check_indices(name, asked)
            self._asked = (*key, asked)
        elif self._asked[:2] != key:
            raise WireError(f"{letter.kind} of round {letter.round}: its first phase is missing")
        else:
            before = f"{name}/{phases[phases.index(phase) - 1]}"
            with self._mail:
                letters = self._early.pop((before, letter.round), {})
            for sender, payload in letters.items():
                one.receive(sender, payload)
            if letter.arrays:
                one.receive(SERVER, tree_of(PASSED, letter.arrays))
        if isinstance(job.clients, Rows):
            assert self._half is not None
            return self._half.reply(name, letter.arrays, lambda: one.handle(phase, asked)[SERVER])
        out = one.handle(phase, self._asked[2])
        mine = out.pop(SERVER, None)
        if out:
            post(
                {
                    census.names[peer]: encode(letter._replace(arrays={"h": np.asarray(payload)}))
                    for peer, payload in out.items()
                },
                0.8 * job.config.deploy.timeout,  # before the server loses patience with us
            )
        return {} if mine is None else arrays_of(mine)

    def _exchange(self, name: str, job: Job) -> Exchange | None:
        if not blind(job):
            return None
        if self._blind is None:
            raise WireError("the parties' h are to be hidden: their keys come first")
        return self._blind.exchange(name)

    def _check_indices(self, name: str, asked: Any) -> None:
        if not isinstance(asked, dict) or "indices" not in asked or self._parts is None:
            return
        part = self._new if name == "predict" else self._parts[int(asked.get("test", 0)) & 1]
        rows = len(part.get("x", ()))
        index = asked["indices"]
        if len(index) and not (index.min() >= 0 and index.max() < rows):
            raise WireError(f"row numbers outside 0 to {rows - 1} were asked for")


def fingerprint(job: Job, census: Census) -> str:
    """Parties whose fingerprints agree train the same model on the same terms."""
    hasher = hashlib.sha256(render(job.config).encode())
    hasher.update(repr(census).encode())
    problem = job.problem
    for part in (problem.start, problem.combine, problem.known, problem.limits):
        hasher.update(np.ascontiguousarray(part).tobytes())
    hasher.update(repr(problem.names).encode())
    return hasher.hexdigest()


def _precision(job: Job | None) -> Any:
    """Double precision, where the run asks for it, holds in one thread only."""
    return jax.enable_x64(job is not None and job.config.run.precision == "float64")
