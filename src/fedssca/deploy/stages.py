"""The stages of a run: who answers in which phase, and the shapes of requests and answers.

    stage     what it finds                            how
    probe     step sizes, before round 1               a round of training without an update
    train     the model                                a round of training
    measure   F_m and rates over all rows              rows: sums over a site's own rows
                                                       columns: the h_i of a chunk go to the speaker
    tally     counts and sums of all measures,         as in measure
              for groups of rows too
    evidence  sums of calibration rows, for limits     as in measure
              on new rows (`deploy.evidence`)
    slope     gradients over all rows                  rows: sums over a site's own rows
                                                       columns: a round on a chunk
    predict   scores of new rows (columns only)        as in measure

The server and the sites call these functions with the same job, so both know what must arrive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.deploy.evidence import evidence_shapes
from fedssca.evaluate.passes import CHUNK, full_passes
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state, publish
from fedssca.methods.calibrate import probe
from fedssca.methods.surrogate import gradients
from fedssca.privacy.noise.ledger import Spending
from fedssca.privacy.noise.messages import MessageNoise
from fedssca.problem.problem import Batch, Problem, Terms
from fedssca.problem.programs import once_per_problem
from fedssca.rounds.broadcast import brief, whole
from fedssca.rounds.roles import Roles, evaluation_roles, roles_of
from fedssca.rounds.shapes import h_shapes, round_shapes
from fedssca.run.build import Job, probing, task_of
from fedssca.run.privacy import hides_columns, noisy

__all__ = [
    "PASSED_ON",
    "STAGES",
    "Shapes",
    "chunks",
    "hides_h",
    "is_chunk",
    "largest_h",
    "method_of",
    "shapes_of",
    "spending_of",
    "stage_roles",
]

STAGES = ("probe", "train", "measure", "tally", "slope", "evidence", "predict")

PASSED_ON = {
    "h": jax.ShapeDtypeStruct((-1,), np.uint64),
    "seal": jax.ShapeDtypeStruct((-1,), np.uint8),
}
"""What the server passes on to a reader of hidden h_i: their sum, which it cannot read."""


class Shapes(NamedTuple):
    """What a site is asked, and what it answers; a length of -1 stands for any number of rows."""

    asked: Any
    answer: Any
    shared: Any = ()
    """What it answers in the phase "share"."""
    brief: Any = None
    """What a site is asked that answered the round before; None: the same."""


def stage_roles(stage: str, clients: Rows | Columns) -> Roles:
    """The phases of a stage, and the parties with a special task in it."""
    evaluates = stage in ("measure", "tally", "evidence", "predict")
    return evaluation_roles(clients) if evaluates else roles_of(clients)


def hides_h(job: Job) -> bool:
    """Whether the parties hide their h_i, so that only the sum reaches the readers."""
    return hides_columns(job.config, job.problem)


def largest_h(job: Job) -> int:
    """The number of entries of the largest array that one party sends another; 0 with rows.

    It is d f_k(n) / d h_j(n) of one chunk of rows or one batch, (B, K, H_j).
    """
    if not isinstance(job.clients, Columns):
        return 0
    rows, terms = max(3 * CHUNK // 2, job.algorithm.batch), job.problem.combine.shape[1]
    return max(rows * terms * h.size for h in h_shapes(job.problem, job.clients, 1))


def chunks(rows: int) -> Iterator[np.ndarray]:
    """The rows that parties with columns add up at a time.

    Each has CHUNK rows; a rest of less than half of that joins the last one. There is one way to
    divide the rows: sums over other parts of them would give away single rows by subtraction.
    """
    for begin in _starts(rows):
        yield _chunk(begin, rows)


def is_chunk(index: np.ndarray, rows: int) -> bool:
    """Whether these rows are one of the chunks into which so many rows are divided."""
    begin = int(index[0]) if len(index) else -1
    return begin in _starts(rows) and np.array_equal(index, _chunk(begin, rows))


def _starts(rows: int) -> range:
    last = max(0, CHUNK * math.ceil(rows / CHUNK - 1.5))
    return range(0, min(rows, last + 1), CHUNK)


def _chunk(begin: int, rows: int) -> np.ndarray:
    end = rows if begin == _starts(rows)[-1] else begin + CHUNK
    return np.arange(begin, end, dtype=np.int32)


def method_of(stage: str, job: Job) -> tuple[Algorithm, MessageNoise | None]:
    """The method whose messages a stage sends, and the noise on them."""
    if stage == "probe":
        first = probe(job.problem, job.algorithm.batch, noised=noisy(job.config.privacy))
        return probing(job.config, job.problem, job.clients, first)
    if stage == "slope":
        return _slopes(job.problem, min(CHUNK, job.clients.total)), None
    return job.algorithm, job.noise


def spending_of(stage: str, noise: MessageNoise | None) -> Spending | None:
    """What a run releases under the noise that messages of a stage carry; None: they carry none."""
    if noise is None or noise.ledger is None:
        return None
    noised = {
        "probe": True,
        "train": True,
        "measure": noise.evaluation is not None,
        "evidence": noise.calibration is not None,
    }
    return noise.ledger.spending() if noised.get(stage) else None


@once_per_problem
def _slopes(problem: Problem, rows: int) -> Algorithm:
    """Gradients of all terms over a batch, as a method whose update changes nothing."""

    def reply(terms: Terms, asked: Request, batch: Batch) -> Message:
        return gradients(problem, terms, asked.w, batch)

    def stay(state: State, total: Message) -> State:
        del total
        return state

    return Algorithm("slopes", rows, 1, lambda w: first_state(problem, w, ()), publish, reply, stay)


def shapes_of(stage: str, job: Job, number: int) -> Shapes:
    """What site `number` receives in the first phase of a stage, and sends in the last."""
    if isinstance(job.clients, Rows):
        return _row_shapes(stage, job, job.clients)
    return _column_shapes(stage, job, job.clients, number)


def _row_shapes(stage: str, job: Job, clients: Rows) -> Shapes:
    problem = job.problem
    w = jax.ShapeDtypeStruct(problem.start.shape, problem.start.dtype)
    if stage == "measure":
        return Shapes({"w": w}, _sum_shapes(problem, clients))
    if stage == "tally":
        sums = _tally_shapes(problem, clients)
        return Shapes({"w": w}, {"train": sums, "test": sums})
    if stage == "evidence":
        theta, answer = evidence_shapes(job, w.dtype)
        return Shapes({"w": w, "theta": theta}, answer)
    if stage == "slope":
        terms = problem.combine.shape[1]
        return Shapes({"w": w}, {"slopes": jax.ShapeDtypeStruct((terms, w.size), w.dtype)})
    algorithm = method_of(stage, job)[0]
    asked, answer = round_shapes(problem, clients, algorithm)
    return Shapes(whole(asked), answer, brief=brief(asked, algorithm))


def _column_shapes(stage: str, job: Job, clients: Columns, number: int) -> Shapes:
    problem, split = job.problem, job.problem.vertical
    assert split is not None
    dtype = problem.start.dtype
    whole = {
        "round": jax.ShapeDtypeStruct((), np.int32),
        "w": jax.ShapeDtypeStruct((len(split.blocks[number + 1]),), dtype),
        "w0": jax.ShapeDtypeStruct((len(split.blocks[0]),), dtype),
        "indices": jax.ShapeDtypeStruct((-1,), np.int32),
        "weights": (),
    }
    roles = stage_roles(stage, clients)
    speaks = number == roles.speaker
    shared = {}
    if hides_h(job):  # own h under masks; the first reader adds sealed seeds for the others
        shared["h"] = jax.ShapeDtypeStruct((-1,), np.uint64)
        if number == roles.readers[0]:
            shared["seals"] = jax.ShapeDtypeStruct((-1,), np.uint8)
    if stage in ("measure", "tally"):
        asked = whole | {"test": jax.ShapeDtypeStruct((), np.int32)}
        of_all = stage == "measure"
        one = _sum_shapes(problem, clients)[0] if of_all else _tally_shapes(problem, clients)
        return Shapes(asked, one if speaks else (), shared)
    if stage == "evidence":
        theta, answer = evidence_shapes(job, dtype)
        return Shapes(whole | {"theta": theta}, answer if speaks else (), shared)
    if stage == "predict":
        outputs = task_of(job.config, job.dataset.target).outputs(job.dataset.classes)
        scores = {"scores": jax.ShapeDtypeStruct((-1, outputs), dtype)}
        return Shapes(whole, scores if speaks else (), shared)
    request, message = round_shapes(problem, clients, method_of(stage, job)[0])

    def piece(block: int) -> Message:
        size = len(split.blocks[block])
        vectors = jax.tree.map(
            lambda s: jax.ShapeDtypeStruct((*s.shape[:-1], size), s.dtype), message.vectors
        )
        return Message(message.scalars if block == 0 else (), vectors)

    own = [0, number + 1] if speaks else [number + 1]
    answer = {block: piece(block) for block in own}
    return Shapes(whole | {"weights": request.weights}, answer, shared)


def _sum_shapes(problem: Problem, clients: Rows | Columns) -> Any:
    """The shapes of (terms and rates of the training rows, rates of the test rows)."""
    one = jax.eval_shape(full_passes(problem).sums, problem.start, _one_row(clients))
    return one, one[1]


def _tally_shapes(problem: Problem, clients: Rows | Columns) -> Any:
    """The shapes of the sums over all rows and over the problem's parts."""
    passes = full_passes(problem)
    return jax.eval_shape(
        lambda w, rows: passes.tally(w, rows, 0), problem.start, _one_row(clients)
    )


def _one_row(clients: Rows | Columns) -> dict[str, Any]:
    """The shapes of a batch of one row."""
    like = {
        name: jax.ShapeDtypeStruct((1, *column.shape[1:]), column.dtype)
        for name, column in clients.columns.items()
    }
    like["client"] = jax.ShapeDtypeStruct((1,), np.int32)
    like["weight"] = jax.ShapeDtypeStruct((1,), np.float32)
    return like
