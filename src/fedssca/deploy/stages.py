"""Who answers in which stage of a run, and the shapes of what is asked and answered.

    probe     step sizes before round 1          the client objects of `fedssca.client`
    train     the rounds                         the same
    measure   F_m and rates over all rows        sums over own rows; parties with columns: h_i of
                                                 a chunk goes to the one that speaks for all
    slope     gradients over all rows            sums over own rows; or a round on a chunk
    predict   scores of new rows                 parties with columns only: as in measure

Both ends call these functions with the same problem, so both know what must arrive.
"""

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
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import CHUNK, added, everything, full_passes, held_out
from fedssca.methods.algorithm import Algorithm, Message, Request, State, publish, start
from fedssca.methods.calibrate import probe
from fedssca.methods.surrogate import gradients
from fedssca.privacy.noise.gaussian import MessageNoise, SecretNoise
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.rounds.client import SERVER, ColumnClient, Outgoing, RowClient
from fedssca.rounds.exchange import Exchange, Pairwise
from fedssca.rounds.roles import Roles, evaluation_roles, roles_of
from fedssca.rounds.shapes import round_shapes
from fedssca.run.build import Job, probing
from fedssca.run.privacy import hides_columns

__all__ = [
    "PASSED",
    "STAGES",
    "Shapes",
    "Stage",
    "algorithm_of",
    "blind",
    "phases_of",
    "readers_of",
    "shapes_of",
    "stage",
]

Part = dict[str, np.ndarray]
STAGES = ("probe", "train", "measure", "slope", "predict")


class Stage(NamedTuple):
    """One stage at one site."""

    handle: Callable[[str, Any], Outgoing]
    receive: Callable[[int, Any], None]


class Shapes(NamedTuple):
    """What a site is asked, and what it answers to the server; -1: any number of rows."""

    asked: Any
    answer: Any
    shared: Any = ()
    """What it answers in the phase "share"."""


PASSED = {
    "h": jax.ShapeDtypeStruct((-1,), np.uint64),
    "seal": jax.ShapeDtypeStruct((-1,), np.uint8),
}
"""What the server passes on to a reader of hidden h_i: their sum, which it cannot read."""


def blind(job: Job) -> bool:
    """The parties hide their h_i: only the sum reaches those who need it."""
    return hides_columns(job.config, job.problem)


def slopes(problem: Problem, rows: int) -> Algorithm:
    """Gradients of all terms over a batch, as a method whose rounds change nothing."""

    def reply(terms: Terms, asked: Request, batch: Batch) -> Message:
        return gradients(problem, terms, asked.w, batch)

    def stay(state: State, total: Message) -> State:
        del total
        return state

    return Algorithm("slopes", rows, 1, lambda w: start(problem, w, ()), publish, reply, stay)


def algorithm_of(name: str, job: Job) -> Algorithm:
    """The method whose messages a stage sends."""
    return _method_of(name, job)[0]


def _method_of(name: str, job: Job) -> tuple[Algorithm, MessageNoise | None]:
    """The method whose messages a stage sends, and their noise."""
    if name == "probe":
        first = probe(job.problem, job.algorithm.batch)
        return probing(job.config, job.problem, job.clients, first)
    if name == "slope":
        return slopes(job.problem, min(CHUNK, job.clients.total)), None
    return job.algorithm, job.noise


def stage_roles(name: str, clients: Rows | Columns) -> Roles:
    """The roles in a stage."""
    return evaluation_roles(clients) if name in ("measure", "predict") else roles_of(clients)


def phases_of(name: str, clients: Rows | Columns) -> tuple[str, ...]:
    """The phases of a stage, in order."""
    return stage_roles(name, clients).phases


def speaker_of(clients: Columns) -> int:
    """The party that speaks for w_0 and for the labels."""
    return roles_of(clients).speaker


def shapes_of(name: str, job: Job, number: int) -> Shapes:
    """What site `number` gets in the first phase of a stage, and sends in its last."""
    problem, clients = job.problem, job.clients
    w = jax.ShapeDtypeStruct(problem.start.shape, problem.start.dtype)
    if isinstance(clients, Rows):
        if name == "measure":
            return Shapes({"w": w}, _sums_shape(problem, clients))
        if name == "slope":
            terms = problem.combine.shape[1]
            return Shapes({"w": w}, {"slopes": jax.ShapeDtypeStruct((terms, w.size), w.dtype)})
        return Shapes(*round_shapes(problem, clients, algorithm_of(name, job)))
    split = problem.vertical
    assert split is not None
    whole = {
        "round": jax.ShapeDtypeStruct((), np.int32),
        "w": jax.ShapeDtypeStruct((len(split.blocks[number + 1]),), w.dtype),
        "w0": jax.ShapeDtypeStruct((len(split.blocks[0]),), w.dtype),
        "indices": jax.ShapeDtypeStruct((-1,), np.int32),
        "weights": (),
    }
    speaks = number == speaker_of(clients)
    shared = _shares(job, name, number)
    if name == "measure":
        asked = whole | {"test": jax.ShapeDtypeStruct((), np.int32)}
        one, _ = _sums_shape(problem, clients)
        return Shapes(asked, one if speaks else (), shared)
    if name == "predict":
        scores = {"scores": jax.ShapeDtypeStruct((-1, job.dataset.classes), w.dtype)}
        return Shapes(whole, scores if speaks else (), shared)
    request, message = round_shapes(problem, clients, algorithm_of(name, job))

    def piece(block: int) -> Message:
        size = len(split.blocks[block])
        vectors = jax.tree.map(
            lambda s: jax.ShapeDtypeStruct((*s.shape[:-1], size), s.dtype), message.vectors
        )
        return Message(message.scalars if block == 0 else (), vectors)

    own = [0, number + 1] if speaks else [number + 1]
    answer = {block: piece(block) for block in own}
    return Shapes(whole | {"weights": request.weights}, answer, shared)


def readers_of(name: str, clients: Columns) -> list[int]:
    """The parties that need the h_i of all in a stage."""
    return list(stage_roles(name, clients).readers)


def _shares(job: Job, name: str, number: int) -> Any:
    """Own h under masks; the first reader's with sealed seeds for the others."""
    if not blind(job):
        return ()
    assert isinstance(job.clients, Columns)
    shared = {"h": jax.ShapeDtypeStruct((-1,), np.uint64)}
    if number == readers_of(name, job.clients)[0]:
        shared["seals"] = jax.ShapeDtypeStruct((-1,), np.uint8)
    return shared


def stage(
    name: str,
    job: Job,
    number: int,
    train: Part,
    test: Part,
    new: Part,
    veil: SecretNoise,
    exchange: Exchange | None = None,
) -> Stage:
    """The object that answers at site `number`; `new` rows are for predictions.

    Noise comes from `veil`, the site's own, and hidden messages are of batches that it draws unseen
    too: the server knows the run's seed.
    """
    problem, clients = job.problem, job.clients
    if isinstance(clients, Rows):
        if name in ("measure", "slope"):
            return Stage(_row_sums(name, problem, number, train, test), _nobody)
        algorithm, noise = _method_of(name, job)
        noisy = noise is not None and noise.ledger is not None
        seed = secrets.randbits(63) if noisy else job.config.run.seed
        perturbation = veil.perturbation(noise)
        row = RowClient(number, problem, algorithm, train, clients.total, seed, perturbation)
        return Stage(row.handle, _nobody)
    if name in ("measure", "predict"):
        parts = [train, test] if name == "measure" else [new]
        judge = ColumnJudge(number, job, parts, exchange)
        return Stage(judge.handle, judge.receive)
    algorithm, noise = _method_of(name, job)
    perturbation = veil.perturbation(noise)
    column = ColumnClient(
        number, problem, algorithm, train, roles_of(clients), exchange, perturbation
    )
    if noise is not None and noise.ledger is not None:
        return Stage(_as_counted(column.handle, job, algorithm), column.receive)
    return Stage(column.handle, column.receive)


def _as_counted(
    handle: Callable[[str, Any], Outgoing], job: Job, algorithm: Algorithm
) -> Callable[[str, Any], Outgoing]:
    """Only the rows that the seed names are used: how often each is was accounted for."""
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


def _nobody(sender: int, payload: Any) -> None:
    raise RuntimeError(f"sites that hold rows send each other nothing, site {sender} did")


def _sums_shape(problem: Problem, clients: Rows | Columns) -> Any:
    """(terms and rates of the training rows, rates of the test rows)."""
    like = {
        name: jax.ShapeDtypeStruct((1, *column.shape[1:]), column.dtype)
        for name, column in clients.columns.items()
    }
    like["client"] = jax.ShapeDtypeStruct((1,), np.int32)
    like["weight"] = jax.ShapeDtypeStruct((1,), np.float32)
    one = jax.eval_shape(full_passes(problem).sums, problem.start, like)
    return one, one[1]


def _row_sums(
    name: str, problem: Problem, number: int, train: Part, test: Part
) -> Callable[[str, Any], Outgoing]:
    """Full passes over the rows of one site."""
    passes = full_passes(problem)
    client = np.full(len(train["x"]), number, np.int32)
    own, held = everything(train, client), held_out(test)

    def handle(phase: str, asked: Any) -> Outgoing:
        del phase
        w = jnp.asarray(asked["w"])
        if name == "slope":
            return {SERVER: {"slopes": passes.jacobian(w, own)}}
        one = passes.sums(w, own)
        none = jax.tree.map(jnp.zeros_like, one[1])
        return {SERVER: (one, none if held is None else passes.sums(w, held)[1])}

    return handle


class ColumnJudge:
    """Evaluates with peers, a chunk of rows at a time: all h_i go to the one who has labels.

    Rows of which nobody has labels are scored.
    """

    def __init__(self, number: int, job: Job, parts: list[Part], exchange: Exchange | None) -> None:
        assert job.problem.vertical is not None
        assert isinstance(job.clients, Columns)
        self._split, self._number = job.problem.vertical, number
        self._speaker = speaker_of(job.clients)
        self._parts = [
            {name: jnp.asarray(column) for name, column in part.items()} for part in parts
        ]
        self._exchange = exchange or Pairwise(number, job.clients.count)
        self._local = jax.jit(self._split.locals[number])
        self._sums = jax.jit(partial(_chunk_sums, job.problem))
        assert self._split.scores is not None
        self._scores = jax.jit(self._split.scores)

    def receive(self, sender: int, payload: Any) -> None:
        """Take what a peer sent."""
        self._exchange.receive(sender, payload)

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """Share the chunk's h_i, then (the speaker only) add up."""
        part, index = self._parts[int(asked.get("test", 0))], asked["indices"]
        if phase == "share":
            h = self._local(asked["w"], part["x"][index])
            return self._exchange.send(h, [self._speaker])
        if self._number != self._speaker:
            return {SERVER: ()}
        hs = self._exchange.collect()
        batch = {name: column[index] for name, column in part.items() if name != "x"}
        if not batch:
            return {SERVER: {"scores": self._scores(asked["w0"], hs)}}
        return {SERVER: self._sums(asked["w0"], hs, batch)}


def _chunk_sums(problem: Problem, w0: Array, hs: list[Array], batch: Batch) -> Any:
    split = problem.vertical
    assert split is not None
    assert split.measure is not None
    weight = jnp.ones(len(hs[0]), w0.dtype)
    batch["client"] = jnp.zeros(len(hs[0]), jnp.int32)
    return split.head(w0, hs, batch) @ weight, added(split.measure(w0, hs, batch), weight)
