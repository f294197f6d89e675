"""The objects that answer at a site, one for each stage of a run."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.data.sampling import batch_indices
from fedssca.deploy.stages import method_of, stage_roles
from fedssca.errors import UserError
from fedssca.evaluate.passes import added, everything, full_passes, held_out, tallied
from fedssca.methods.algorithm import Algorithm
from fedssca.privacy.noise.messages import MessageNoise, SecretNoise
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.client import SERVER, ColumnClient, Outgoing, RowClient
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.exchange import Exchange, Pairwise
from fedssca.run.build import Job
from fedssca.run.privacy import hides_sums

__all__ = ["Parts", "StageClient", "stage_client"]


class Parts(NamedTuple):
    """A site's encoded rows, by what they are for."""

    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    new: dict[str, np.ndarray]
    """Rows to predict."""


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
) -> StageClient:
    """The object that answers in a stage at site `number`.

    Its noise comes from `own_noise`, the site's own randomness. If its messages carry noise, the
    site draws the batches by a seed of its own too, because the server knows the run's seed.
    """
    problem, clients = job.problem, job.clients
    if isinstance(clients, Rows):
        if stage in ("measure", "tally", "slope"):
            # Where sums are hidden, those of a site's own held-out rows are not told apart.
            owner = -1 if hides_sums(job.config) else number
            return StageClient(_row_sums(stage, problem, number, parts, owner), _no_peers)
        algorithm, noise = method_of(stage, job)
        seed = secrets.randbits(63) if _is_noisy(noise) else job.config.run.seed
        perturb = own_noise.perturbation(noise)
        row = RowClient(number, problem, algorithm, parts.train, clients.total, seed, perturb)
        return StageClient(row.handle, _no_peers)
    if stage in ("measure", "tally", "predict"):
        rows = [parts.new] if stage == "predict" else [parts.train, parts.test]
        evaluation = ColumnEvaluation(stage, number, job, rows, exchange)
        return StageClient(evaluation.handle, evaluation.receive)
    algorithm, noise = method_of(stage, job)
    perturb, roles = own_noise.perturbation(noise), stage_roles(stage, clients)
    column = ColumnClient(number, problem, algorithm, parts.train, roles, exchange, perturb)
    if _is_noisy(noise):
        return StageClient(_only_counted_rows(column.handle, job, algorithm), column.receive)
    return StageClient(column.handle, column.receive)


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
    passes = full_passes(problem)
    client = np.full(len(parts.train["x"]), number, np.int32)
    owners = {"client": np.full(len(parts.test["x"]), owner)} if parts.test else {}
    own, held = everything(parts.train, client), held_out(parts.test | owners)

    def handle(phase: str, asked: Any) -> Outgoing:
        del phase
        w = jnp.asarray(asked["w"])
        if stage == "slope":
            return {SERVER: {"slopes": passes.jacobian(w, own)}}
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
        self._sums = jax.jit(partial(CHUNK_SUMS.get(stage, _chunk_sums), job.problem))
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
        return {SERVER: self._sums(asked["w0"], hs, batch)}


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


CHUNK_SUMS: dict[str, Callable[..., Any]] = {"measure": _chunk_sums, "tally": _chunk_tally}
"""The stages in which the speaker adds up over a chunk, and how."""


def _as_one(hs: list[Array], batch: Batch) -> Batch:
    """The batch as rows of one client, of equal weight."""
    client = jnp.zeros(len(hs[0]), jnp.int32)
    return batch | {"client": client, "weight": jnp.ones(len(hs[0]), jnp.float32)}
