"""The objects that answer at a site, one for each stage of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.data.sampling import batch_indices
from fedssca.deploy.evidence import own_tester
from fedssca.deploy.site.calibration import CalibrationUse
from fedssca.deploy.site.evidence import ColumnEvidence, RowEvidence, chunk_evidence
from fedssca.deploy.site.noised_counts import NoisedColumnCounts, NoisedRowCounts
from fedssca.deploy.stages import is_chunk, method_of, spending_of, stage_roles
from fedssca.deploy.sums import finest_of
from fedssca.errors import UserError
from fedssca.evaluate.confidence.counts import counts_added
from fedssca.evaluate.passes import added, everything, full_passes, held_out, tallied
from fedssca.methods.algorithm import Algorithm
from fedssca.privacy.noise.evaluation import bounded
from fedssca.privacy.noise.messages import MessageNoise
from fedssca.privacy.noise.secret import SecretNoise
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.broadcast import RequestMemory
from fedssca.rounds.client import SERVER, ColumnClient, Outgoing
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.exchange import Exchange, Pairwise
from fedssca.rounds.personal import row_client, view_of
from fedssca.run.build import Job
from fedssca.run.privacy import hides_sums

__all__ = ["Parts", "StageClient", "stage_client"]


class Parts(NamedTuple):
    """A site's encoded rows, by what they are for."""

    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    new: dict[str, np.ndarray]
    """Rows to predict."""
    aside: Mapping[str, np.ndarray] = MappingProxyType({})
    """Calibration rows."""


class StageClient(NamedTuple):
    """What answers in one stage."""

    handle: Callable[[str, Any], Outgoing]
    """A phase and its request -> what goes to the server and to peers."""
    receive: Callable[[int, Any], None]
    """Takes what came from a peer, or by way of the server."""


def stage_client(
    stage: str,
    job: Job,
    number: int,
    parts: Parts,
    own_noise: SecretNoise,
    exchange: Exchange | None = None,
    calibration: CalibrationUse | None = None,
    known_requests: RequestMemory | None = None,
) -> StageClient:
    """The object that answers in a stage at site `number`.

    Its noise comes from `own_noise`, the site's own randomness. If its messages carry noise, the
    site draws the batches from it too, because the server knows the run's seed.
    """
    problem, clients = job.problem, job.clients
    if stage in EVALUATION and _is_noisy(job.noise):
        _check_noised(stage, job)
        problem = bounded(problem, job.config.privacy.value_clip or job.config.privacy.clip)
    if isinstance(clients, Rows):
        if stage == "evidence":
            used = calibration or CalibrationUse()
            if _is_noisy(job.noise):
                counts = NoisedRowCounts(job, number, parts.aside, used, own_noise)
                return StageClient(counts.handle, _no_peers)
            return StageClient(RowEvidence(job, number, parts.aside, used).handle, _no_peers)
        if stage in EVALUATION:
            # Where sums are hidden, those of a site's own held-out rows are not told apart.
            owner = -1 if hides_sums(job.config) else number
            sums = _row_sums(stage, problem, number, parts, owner)
            return StageClient(_noised_sums(sums, job, number, parts, own_noise), _no_peers)
        algorithm, noise = method_of(stage, job)
        perturb = own_noise.perturbation(noise, finest_of(stage, clients.total, job.config))
        held = len(parts.train["x"])
        draw = own_noise.batches(algorithm, held) if _is_noisy(noise) else None
        seed = job.config.run.seed
        held_rows = parts.train, clients.total, seed
        row = row_client(
            number, problem, algorithm, *held_rows, perturb, draw, known_requests=known_requests
        )
        return StageClient(row.handle, _no_peers)
    if stage == "evidence":
        used = calibration or CalibrationUse()
        evidence = ColumnEvaluation(stage, number, job, [dict(parts.aside)], exchange)
        if _is_noisy(job.noise):
            noised = NoisedColumnCounts(job, evidence.handle, used, own_noise)
            return StageClient(noised.handle, evidence.receive)
        return StageClient(ColumnEvidence(job, evidence.handle, used).handle, evidence.receive)
    if stage in ("measure", "tally", "predict"):
        rows = [parts.new] if stage == "predict" else [parts.train, parts.test]
        evaluation = ColumnEvaluation(stage, number, job._replace(problem=problem), rows, exchange)
        handle: Callable[[str, Any], Outgoing] = evaluation.handle
        if stage == "measure":
            sizes = [len(part.get("x", ())) for part in rows]
            handle = _noised_chunks(handle, job, sizes, own_noise)
        return StageClient(handle, evaluation.receive)
    algorithm, noise = method_of(stage, job)
    perturb, roles = own_noise.perturbation(noise), stage_roles(stage, clients)
    column = ColumnClient(number, problem, algorithm, parts.train, roles, exchange, perturb)
    if _is_noisy(noise):
        return StageClient(_only_counted_rows(column.handle, job, algorithm), column.receive)
    return StageClient(column.handle, column.receive)


EVALUATION = ("measure", "tally", "slope", "evidence")
"""The stages about all rows."""


def _check_noised(stage: str, job: Job) -> None:
    """In a run with noise a site sends sums with noise, and no others."""
    if spending_of(stage, job.noise) is None:
        raise UserError(
            f"privacy: exact sums over all rows ({stage}) are not sent in a run with noise"
        )


def _noised_sums(
    sums: Callable[[str, Any], Outgoing],
    job: Job,
    number: int,
    parts: Parts,
    own_noise: SecretNoise,
) -> Callable[[str, Any], Outgoing]:
    """`sums` with noise, no more often than was accounted for; unchanged in runs without noise.

    The same point gets the same answer again, which tells nothing new.
    """
    noise = job.noise
    if noise is None or noise.ledger is None or noise.evaluation is None:
        return sums
    most, ratio = noise.ledger.evaluations, noise.evaluation.ratio
    rows = len(parts.test.get("x", ()))
    spread = noise.evaluation.deviations(job.problem, job.clients, number, rows)
    finest = finest_of("measure", job.clients.total, job.config)
    last: dict[bytes, Outgoing] = {}

    def handle(phase: str, asked: Any) -> Outgoing:
        point = np.asarray(asked["w"]).tobytes()
        if point not in last:
            own_noise.count_evaluation("rows", most)
            (terms, train), test = sums(phase, asked)[SERVER]

            noised = partial(own_noise.evaluated, ratio=ratio, finest=finest)
            both = noised(terms, spread.terms), noised(train, spread.train)
            held = noised(test, spread.test) if rows or finest else test
            last.clear()
            last[point] = {SERVER: (both, held)}
        return last[point]

    return handle


def _noised_chunks(
    handle: Callable[[str, Any], Outgoing],
    job: Job,
    sizes: Sequence[int],
    own_noise: SecretNoise,
) -> Callable[[str, Any], Outgoing]:
    """`handle`, whose sums over chunks of rows get noise; unchanged in runs without noise.

    `sizes` are the numbers of training and of test rows.
    """
    noise = job.noise
    if noise is None or noise.ledger is None or noise.evaluation is None:
        return handle
    most, ratio = noise.ledger.evaluations, noise.evaluation.ratio
    spread = noise.evaluation.deviations(job.problem, job.clients, None, 0)

    def counted(phase: str, asked: Any) -> Outgoing:
        out = handle(phase, asked)
        if phase != "reply" or not out.get(SERVER):
            return out
        index, test = np.asarray(asked["indices"]), int(asked.get("test", 0)) & 1
        if not is_chunk(index, sizes[test]):
            raise UserError("privacy: only whole chunks of rows are evaluated in a run with noise")
        own_noise.count_evaluation((test, int(index[0])), most)
        terms, rates = out[SERVER]
        size = spread.test if test else spread.train
        noised = partial(own_noise.evaluated, ratio=ratio, finest=0.0)
        return {SERVER: (noised(terms, spread.terms), noised(rates, size))}

    return counted


def _is_noisy(noise: MessageNoise | None) -> bool:
    """Whether messages carry noise; otherwise they are clipped at most."""
    return noise is not None and noise.ledger is not None


def _only_counted_rows(
    handle: Callable[[str, Any], Outgoing], job: Job, algorithm: Algorithm
) -> Callable[[str, Any], Outgoing]:
    """`handle`, which refuses rows other than those that the privacy accountant counted."""
    seed, rows = job.config.run.seed, np.array([job.clients.total])

    def counted(phase: str, asked: Any) -> Outgoing:
        due = batch_indices(seed, asked["round"], np.zeros(1, np.int32), rows, algorithm.batch)[0]
        if not np.array_equal(asked["indices"], due):
            raise UserError(
                f"privacy: round {int(asked['round'])} was asked for other rows than the run's seed"
                " names, which were not accounted for"
            )
        return handle(phase, asked)

    return counted


def _no_peers(sender: int, payload: Any) -> None:
    raise InvalidMessage(f"sites that hold rows send each other nothing, but site {sender} did")


def _row_sums(
    stage: str, problem: Problem, number: int, parts: Parts, owner: int
) -> Callable[[str, Any], Outgoing]:
    """Sums over all rows of a site that holds rows; its held-out rows belong to `owner`."""
    view = view_of(problem, number)
    passes = full_passes(view.problem)
    client = np.full(len(parts.train["x"]), number, np.int32)
    owners = {"client": np.full(len(parts.test["x"]), owner)} if parts.test else {}
    own, held = everything(parts.train, client), held_out(parts.test | owners)

    def handle(phase: str, asked: Any) -> Outgoing:
        del phase
        w = view.point(asked["w"])
        if stage == "slope":
            return {SERVER: {"slopes": view.common(passes.jacobian(w, own))}}
        if stage == "tally":
            train = passes.tally(w, own, 0)
            nothing = jax.tree.map(jnp.zeros_like, train)
            test = nothing if held is None else passes.tally(w, held, 0)
            return {SERVER: {"train": train, "test": test}}
        one = passes.sums(w, own)
        none = jax.tree.map(jnp.zeros_like, one[1])
        return {SERVER: (one, none if held is None else passes.sums(w, held)[1])}

    return handle


class ColumnEvaluation:
    """Evaluates a chunk of rows with the peers: all h_i go to the speaker, which adds up.

    Rows without labels are scored instead.
    """

    def __init__(
        self,
        stage: str,
        number: int,
        job: Job,
        parts: list[dict[str, np.ndarray]],
        exchange: Exchange | None,
    ) -> None:
        assert job.problem.vertical is not None
        assert isinstance(job.clients, Columns)
        self._split, self._number = job.problem.vertical, number
        self._roles = stage_roles(stage, job.clients)
        self._parts = [
            {name: jnp.asarray(column) for name, column in part.items()} for part in parts
        ]
        self._exchange = exchange or Pairwise(number, job.clients.count)
        self._local = jax.jit(self._split.locals[number])
        sums = partial(CHUNK_SUMS.get(stage, _chunk_sums), job.problem)
        if stage == "evidence":
            added_up = _chunk_counts if _is_noisy(job.noise) else _chunk_evidence
            sums = partial(added_up, job.problem, own_tester(job).clips)
        self._sums = jax.jit(sums)
        assert self._split.scores is not None
        self._scores = jax.jit(self._split.scores)

    def receive(self, sender: int, payload: Any) -> None:
        """Take what a peer sent."""
        self._exchange.receive(sender, payload)

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """Share the chunk's h_i; in the phase "reply" the speaker adds up."""
        part, index = self._parts[int(asked.get("test", 0))], asked["indices"]
        if phase == "share":
            h = self._local(asked["w"], part["x"][index])
            return self._exchange.send(h, self._roles.readers)
        if self._number != self._roles.speaker:
            return {SERVER: ()}
        hs = self._exchange.collect()
        batch = {name: column[index] for name, column in part.items() if name != "x"}
        if not batch:
            return {SERVER: {"scores": self._scores(asked["w0"], hs)}}
        more = [asked["theta"]] if "theta" in asked else []
        return {SERVER: self._sums(asked["w0"], hs, batch, *more)}


def _chunk_evidence(
    problem: Problem,
    clip_of: dict[str, float],
    w0: Array,
    hs: list[Array],
    batch: Batch,
    theta: dict[str, Array],
) -> Any:
    split, batch = problem.vertical, _as_one(hs, batch)
    assert split is not None
    assert split.measure is not None
    return chunk_evidence(split.measure(w0, hs, batch), batch, theta, clip_of)


def _chunk_counts(
    problem: Problem,
    clip_of: dict[str, float],
    w0: Array,
    hs: list[Array],
    batch: Batch,
    theta: Any,
) -> Any:
    del theta  # there are no bets under noise
    split, batch = problem.vertical, _as_one(hs, batch)
    assert split is not None
    assert split.measure is not None
    counts = counts_added(split.measure(w0, hs, batch), batch, clip_of)
    return {"sums": {name: own[0] for name, own in counts.items()}}


def _chunk_sums(problem: Problem, w0: Array, hs: list[Array], batch: Batch) -> Any:
    split, batch = problem.vertical, _as_one(hs, batch)
    assert split is not None
    assert split.measure is not None
    weight = batch["weight"].astype(w0.dtype)
    return split.head(w0, hs, batch) @ weight, added(split.measure(w0, hs, batch), weight)


def _chunk_tally(problem: Problem, w0: Array, hs: list[Array], batch: Batch) -> Any:
    split, batch = problem.vertical, _as_one(hs, batch)
    assert split is not None
    assert split.measure is not None
    return tallied(problem, split.measure(w0, hs, batch), batch)


CHUNK_SUMS: dict[str, Callable[..., Any]] = {
    "measure": _chunk_sums,
    "tally": _chunk_tally,
}
"""The stages in which the speaker adds up over a chunk, and how."""


def _as_one(hs: list[Array], batch: Batch) -> Batch:
    """The batch as rows of one client, of equal weight."""
    client = jnp.zeros(len(hs[0]), jnp.int32)
    return batch | {"client": client, "weight": jnp.ones(len(hs[0]), jnp.float32)}
