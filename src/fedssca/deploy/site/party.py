"""One site of one run: it answers the server's envelopes, whichever engine carries them.

<stage>/<phase>   a phase of a round; what goes to peers leaves through `post`
sign              the certificate about new rows, at the end (`site.signing`)
sum/<phase>       a further exchange that a hidden sum over the sites' rows needs
others            the preparation before round 1 (`site.preparation`)

Everything that leaves, to the server and to peers, passes the guard (`site.guard`).
"""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedssca.data import Rows
from fedssca.deploy.alignment import PEER
from fedssca.deploy.engine import Post
from fedssca.deploy.notes import check_peer, check_request
from fedssca.deploy.site.answered import AnsweredQuestions, question_digest
from fedssca.deploy.site.calibration import calibration_folder
from fedssca.deploy.site.guard import About, Guard
from fedssca.deploy.site.identity import IdentityAmong
from fedssca.deploy.site.inbox import PeerInbox
from fedssca.deploy.site.ledger import DataLedger
from fedssca.deploy.site.preparation import PREPARATION, Prepared, SitePreparation
from fedssca.deploy.site.signing import certificate_to_sign
from fedssca.deploy.site.stages import StageClient, stage_client
from fedssca.deploy.stages import (
    PASSED_ON,
    STAGES,
    hides_h,
    is_chunk,
    method_of,
    shapes_of,
    spending_of,
    stage_roles,
)
from fedssca.deploy.sums import SUM, for_stage, for_sum, marked, weight_of
from fedssca.privacy.noise.secret import SecretNoise
from fedssca.rounds.aggregate import Arrays
from fedssca.rounds.broadcast import RequestMemory
from fedssca.rounds.client import SERVER
from fedssca.rounds.codec import (
    Envelope,
    InvalidMessage,
    arrays_of,
    decode,
    encode,
    fitting_tree,
    read_note,
    tree_of,
)
from fedssca.rounds.exchange import Exchange
from fedssca.run.build import Job
from fedssca.run.privacy import hides_sums
from fedssca.run.schema import SiteFile

__all__ = ["Party"]

LOG = logging.getLogger(__name__)
POST_SHARE = 0.8
"""The share of the server's timeout in which peers must have received what a site sends them."""


class Party:
    """One site of one run.

    The server's envelopes are answered one at a time; those of peers may arrive at any time.
    """

    def __init__(
        self, name: str, source: SiteFile, secure: bool, identity: IdentityAmong, ledger: Path
    ) -> None:
        """`secure` says whether the engine encrypts what goes to peers; `ledger` is a file."""
        self._name, self._identity = name, identity
        uses = DataLedger(ledger, source)
        self._guard = Guard(source, uses)
        folder = calibration_folder(ledger)
        self._preparation = SitePreparation(name, source, secure, identity, uses, folder)
        self._stages: dict[tuple[str, bool], tuple[StageClient, Any]] = {}
        """For each stage, what answers in it and the shapes of what it is asked; with True, what
        answers in rounds that an earlier job of the run has answered."""
        self._known_requests: dict[str, RequestMemory] = {}
        """For each stage with rounds, what this site remembers of their requests."""
        self._memory = ledger.with_suffix(".answered")
        self._answered: dict[bytes, AnsweredQuestions] = {}
        self._message: Any = None
        """The last message that was to be hidden, in case it is asked for under new masks."""
        self._stages_of: Prepared | None = None
        self._asked: tuple[str, int, Any] = ("", 0, None)
        """Stage, round and request of the phase that began last."""
        self._from_peers = PeerInbox[tuple[str, int]]()
        """(stage and phase, round) -> what each peer sent."""
        self._noise = SecretNoise()
        self._last: Envelope | None = None
        """The envelope of the server that came last; it may wait while another is answered."""
        self._lock = threading.Lock()

    def handle(self, data: Any, post: Post) -> bytes:
        """Answer one envelope of the server; an error goes back as one line.

        Only errors that were written for the server are told in their own words. What else goes
        wrong may contain data, so it stays in this site's log.
        """
        envelope = Envelope("?", bytes(16), 0, {})
        try:
            envelope = check_request(decode(data))
            self._last = envelope
            with self._lock, _precision(self._preparation.prepared):
                if self._last is not envelope:
                    raise InvalidMessage("the server has sent a later envelope: this one is over")
                about, seal = lambda: self._about(envelope), self._preparation.seal
                guarded = self._guard.to_peers(post, about, seal)
                arrays = self._answer(envelope, guarded)
                return self._guard.answer(envelope._replace(arrays=arrays), self._about(envelope))
        except Exception as error:
            return self._guard.error(envelope, error)

    def _about(self, envelope: Envelope) -> About:
        """What is behind the numbers that answer this envelope."""
        ready, stage = self._preparation.prepared, envelope.kind.partition("/")[0]
        if ready is None or stage not in STAGES:
            return About()
        columns = not isinstance(ready.job.clients, Rows)
        algorithm, noise = method_of(stage, ready.job)
        spending = spending_of(stage, noise)
        if columns:
            asked = self._asked[2]
            return About(len(np.unique(asked["indices"])), True, spending)
        if stage in ("probe", "train"):
            return About(algorithm.batch * algorithm.steps, False, spending)
        if stage == "evidence" and ready.parts.aside:
            return About(len(ready.parts.aside["x"]), False, spending)
        parts = [len(part["x"]) for part in ready.parts[:2] if part and len(part["x"])]
        return About(min(parts), False, spending)

    def receive(self, sender: str, data: Any) -> None:
        """Take a peer's sealed envelope, used in the next phase; an InvalidMessage refuses it."""
        try:
            self._receive(sender, check_peer(self._preparation.opened(sender, data)))
        except InvalidMessage:
            raise
        except Exception:
            LOG.exception("%s could not read what %s sent", self._name, sender)
            raise InvalidMessage(f"what {sender} sent cannot be read") from None

    def _receive(self, sender: str, envelope: Envelope) -> None:
        if envelope.kind == PEER:
            self._preparation.check_run(envelope)
            self._preparation.receive(sender, envelope)
            return
        ready = self._preparation.prepared
        if ready is None or envelope.run != self._preparation.run:
            raise InvalidMessage(f"an envelope from {sender} for another run")
        payload = envelope.arrays.get("h")
        if payload is None or payload.dtype.kind != "f" or not np.isfinite(payload).all():
            raise InvalidMessage(f"what {sender} sent is not finite numbers")
        if sender not in ready.census.names or payload.size > ready.largest_h:
            raise InvalidMessage(f"what {sender} sent is not for this site, or too large")
        self._from_peers.put(sender, (envelope.kind, envelope.round), payload)

    def _answer(self, envelope: Envelope, post: Post) -> Arrays:
        stage, _, phase = envelope.kind.partition("/")
        if stage in PREPARATION:
            return self._preparation.answer(envelope, post)
        self._preparation.check_run(envelope)
        early = self._preparation.hidden_census
        if stage == SUM and early is not None and self._preparation.prepared is None:
            return early.further(phase, envelope.arrays)
        ready = self._preparation.after(envelope.kind)
        if stage == "sign":
            return self._sign(envelope, ready)
        if stage == SUM:
            if ready.sum_client is None:
                raise InvalidMessage("parties with columns add up nothing at the server")
            asked = for_sum(envelope.arrays)
            if "alive" in asked:
                self._questions(ready).check_opening(asked["alive"].tolist())
            return marked(ready.sum_client.handle(phase, asked, _no_message))
        client, asked = self._begin_phase(envelope, stage, phase, ready)
        if isinstance(ready.job.clients, Rows):
            return self._reply_to_sum(envelope, stage, ready, client, asked)
        out = client.handle(phase, asked)
        to_server = out.pop(SERVER, None)
        if out:
            sent = {
                ready.census.names[peer]: encode(
                    envelope._replace(arrays={"h": np.asarray(payload)})
                )
                for peer, payload in out.items()
            }
            post(sent, POST_SHARE * ready.job.config.deploy.timeout)
        return {} if to_server is None else arrays_of(to_server)

    def _sign(self, envelope: Envelope, ready: Prepared) -> Arrays:
        """This site's signature of the certificate, if that says what this site knows."""
        if not ready.job.config.calibration_fraction:
            raise InvalidMessage("this run has no certificate about new rows")
        blocks = {name: array for name, array in envelope.arrays.items() if name in ("w", "w0")}
        text, used = read_note(envelope)["statement"], self._preparation.calibration
        certificate = certificate_to_sign(text, blocks, ready, used)
        signed = self._identity(ready.census.names).sign(certificate.signed_bytes)
        return {"signature": np.frombuffer(signed, np.uint8)}

    def _begin_phase(
        self, envelope: Envelope, stage: str, phase: str, ready: Prepared
    ) -> tuple[StageClient, Any]:
        """What answers in this phase, with all that peers sent before, and what it is asked."""
        phases = stage_roles(stage, ready.job.clients).phases
        if phase not in phases or stage not in STAGES:
            raise InvalidMessage(f"there is no phase {envelope.kind!r}")
        answered, key = self._questions(ready), (stage, envelope.round)
        client, due = self._stage(stage, ready, answered.repeats(*key))
        if phase == phases[0]:
            self._from_peers.keep(lambda key: key[1] == envelope.round)
            asked = fitting_tree(due, for_stage(envelope.arrays))
            _check_indices(stage, asked, ready)
            question = question_digest(stage, for_stage(envelope.arrays))
            if not answered.begin(*key, question, hidden=hides_sums(ready.job.config)):
                self._message = None
            self._asked = (*key, asked)
        elif self._asked[:2] != key:
            raise InvalidMessage(
                f"{envelope.kind} of round {envelope.round}: its first phase is missing"
            )
        else:
            before = f"{stage}/{phases[phases.index(phase) - 1]}"
            for sender, payload in self._from_peers.take((before, envelope.round)).items():
                client.receive(ready.census.names.index(sender), payload)
            if envelope.arrays:
                client.receive(SERVER, tree_of(PASSED_ON, envelope.arrays))
        return client, self._asked[2]

    def _questions(self, ready: Prepared) -> AnsweredQuestions:
        """What this site has answered in the run."""
        run = self._preparation.run
        if run not in self._answered:
            hidden = hides_sums(ready.job.config)
            file = self._memory / f"{run.hex()}.txt" if hidden else None
            self._answered[run] = AnsweredQuestions(file)
        return self._answered[run]

    def _stage(self, stage: str, ready: Prepared, again: bool) -> tuple[StageClient, Any]:
        if ready is not self._stages_of:
            self._stages, self._known_requests, self._stages_of = {}, {}, ready
        if (stage, again) not in self._stages:
            job = _with_other_batches(ready.job) if again else ready.job
            if isinstance(job.clients, Rows) and stage in ("probe", "train"):
                known_requests = RequestMemory(job.problem, method_of(stage, job)[0])
                self._known_requests.setdefault(stage, known_requests)
            exchange: Exchange | None = None
            if hides_h(ready.job):
                if self._preparation.exchange_keys is None:
                    raise InvalidMessage("the parties' h are to be hidden: their keys come first")
                exchange = self._preparation.exchange_keys.exchange(stage)
            shapes = shapes_of(stage, ready.job, ready.number)
            due = [form for form in (shapes.asked, shapes.brief) if form is not None]
            self._stages[stage, again] = (
                stage_client(
                    stage,
                    job,
                    ready.number,
                    ready.parts,
                    self._noise,
                    exchange,
                    self._preparation.calibration,
                    self._known_requests.get(stage),
                ),
                due,
            )
        return self._stages[stage, again]

    def _reply_to_sum(
        self, envelope: Envelope, stage: str, ready: Prepared, client: StageClient, asked: Any
    ) -> Arrays:
        """The answer of a site that holds rows: it leaves through the site's half of the sum."""
        assert ready.sum_client is not None
        if self._message is None:
            self._message = client.handle("reply", asked)[SERVER]
        message = self._message
        if not hides_sums(ready.job.config):
            return arrays_of(ready.sum_client.handle("reply", {}, lambda: message))
        weight = weight_of(stage, sum(ready.census.sizes), ready.job.config)
        weighed = message
        if weight != 1:
            weighed = jax.tree.map(lambda leaf: np.asarray(leaf, float) / weight, message)
        return marked(ready.sum_client.handle("reply", for_sum(envelope.arrays), lambda: weighed))


def _with_other_batches(job: Job) -> Job:
    """The job with batches that nobody else can name, for rounds that are repeated."""
    seed = secrets.randbits(31)
    return job._replace(config=replace(job.config, run=replace(job.config.run, seed=seed)))


def _check_indices(stage: str, asked: Any, ready: Prepared) -> None:
    if not isinstance(asked, dict) or "indices" not in asked:
        return
    part = ready.parts.test if int(asked.get("test", 0)) & 1 else ready.parts.train
    others = {"predict": ready.parts.new, "evidence": ready.parts.aside}
    rows = len(others.get(stage, part).get("x", ()))
    index = asked["indices"]
    if len(index) and not (index.min() >= 0 and index.max() < rows):
        raise InvalidMessage(f"row numbers outside 0 to {rows - 1} were asked for")
    if stage in ("measure", "tally", "slope", "evidence") and not is_chunk(index, rows):
        raise InvalidMessage("sums are evaluated over whole chunks of rows, and not over others")


def _no_message() -> Any:
    raise InvalidMessage("a sum asks for a message in its reply only")


def _precision(ready: Prepared | None) -> Any:
    """Double precision, if the run asks for it; JAX keeps this setting for each thread."""
    return jax.enable_x64(ready is not None and ready.job.config.run.precision == "float64")
