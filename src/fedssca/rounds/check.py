"""Do problem, clients and algorithm fit together? One clear line when they do not."""

from __future__ import annotations

import jax
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.data.stream import Streams
from fedssca.errors import BatchTooLarge, UserError
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.participation import cohort_of
from fedssca.problem.functions import NEAR
from fedssca.problem.problem import Batch, Problem
from fedssca.problem.programs import once_per_problem
from fedssca.rounds.rounding import FULL
from fedssca.rounds.shapes import batch_shape

__all__ = ["check_fit"]


def check_fit(problem: Problem, clients: Rows | Columns | Streams, algorithm: Algorithm) -> None:
    """Raise a UserError that names what does not fit, and the client."""
    batch = algorithm.batch
    if batch < 1:
        raise UserError(f"batch = {batch}: it must be at least 1")
    if (cohort := cohort_of(algorithm, problem)) is not None:
        if isinstance(clients, Columns):
            raise UserError(
                "cohort: parties that hold columns are needed in every round, leave it out"
            )
        if cohort.clients != clients.count:
            raise UserError(
                f"the cohort is drawn from {cohort.clients} clients, "
                f"but {clients.count} hold data: give participation clients={clients.count}"
            )
    if isinstance(clients, Streams):
        _check_proof(problem, clients)
        return
    _check_labels(problem, clients)
    _check_terms(problem, clients)
    if isinstance(clients, Rows):
        least = min(clients.sizes)
        if batch > least:
            smallest = clients.sizes.index(least)
            raise BatchTooLarge(
                f"batch = {batch} is larger than client {smallest}'s {least} rows: "
                f"use a batch of at most {least}"
            )
        return
    if batch > clients.total:
        raise BatchTooLarge(
            f"batch = {batch} is larger than the {clients.total} rows: use at most that"
        )
    if algorithm.bits < FULL:
        raise UserError(
            f"algorithm.bits = {algorithm.bits}: parties that hold columns send 32 bits, "
            "leave bits out"
        )
    if algorithm.steps > 1:
        raise UserError(
            f"local_steps = {algorithm.steps}: parties that hold columns take one step a round, "
            "use local_steps = 1"
        )
    if problem.vertical is None:
        raise UserError(
            "the parties hold columns but the problem has no vertical form: build it with "
            "fedssca.vertical_problem or fedssca.classifier(..., features=...)"
        )
    if clients.collection == "open" and clients.label_holder is not None:
        raise UserError(
            'collection = "open" hands the labels to the server: it does not go with label_holder, '
            'use collection = "exchange"'
        )
    if len(problem.vertical.locals) != clients.count:
        raise UserError(
            f"the problem is written for {len(problem.vertical.locals)} parties, "
            f"but {clients.count} hold data: build it with features=clients.blocks"
        )
    for number, (own, held) in enumerate(
        zip(problem.vertical.features, clients.blocks, strict=True)
    ):
        if not np.array_equal(own, held):
            raise UserError(
                f"party {number} holds other columns than the problem's features[{number}]: "
                "build the problem with features=clients.blocks"
            )


def _check_labels(problem: Problem, clients: Rows | Columns) -> None:
    """The labels are those that the scores of the model are for."""
    y = clients.columns.get("y")
    if y is None or y.dtype.kind not in "iuf":
        return
    if problem.scores is not None and y.ndim != 1:
        raise UserError(f"y has shape {y.shape}: one number per row is needed, shape ({len(y)},)")
    if problem.at_least is not None and (least := np.min(y, initial=0)) < problem.at_least:
        raise UserError(
            f"the data have y = {least:g}, but y must be at least {problem.at_least:g}: classes "
            "are numbered from 0, and counts are 0 or more"
        )
    if problem.kinds is None or problem.scores is None:
        return
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise UserError(
            f"the data have y = {y[y != np.floor(y)][0]:g}, which is no number of a class: number "
            "the classes 0, 1, ..., or give the problem task=fedssca.regression()"
        )
    scores = _scores(problem, tuple(sorted(batch_shape(clients, 1, problem.start.dtype).items())))
    if (most := int(np.max(y, initial=0))) >= problem.kinds(scores):
        raise UserError(
            f"the model has {scores} scores per row, so that y is at most "
            f"{problem.kinds(scores) - 1}, but the data have y = {most}: build the model with one "
            "score for each class or label"
        )


def _check_terms(problem: Problem, clients: Rows | Columns) -> None:
    """The terms of a row depend on this row only, in functions of (params, batch) of the user.

    Batches of every size and of every client are added up, which is right for such terms alone.
    Those of `scores` have been checked where the problem was made.
    """
    tried = "terms of a row"
    if problem.scores is not None or tried in problem.programs or clients.total < 3:
        return
    problem.programs[tried] = True
    table: Batch = {name: np.asarray(column[:3]) for name, column in clients.columns.items()}
    table |= {"client": np.zeros(3, np.int32), "weight": np.full(3, 1 / 3, np.float32)}
    terms = jax.jit(problem.terms)
    first, other = (
        np.asarray(terms(problem.start, {name: c[[0, row]] for name, c in table.items()}))
        for row in (1, 2)
    )
    if not np.allclose(first[:, 0], other[:, 0], **NEAR):
        raise UserError(
            "the terms of a row change if another row of the batch changes: return one value for "
            "each row, shape (terms, rows), without means or sums over the batch"
        )


@once_per_problem
def _scores(problem: Problem, row: tuple[tuple[str, jax.ShapeDtypeStruct], ...]) -> int:
    """The number of scores of a row."""
    assert problem.scores is not None
    return int(jax.eval_shape(problem.scores, problem.start, dict(row)).shape[1])


def _check_proof(problem: Problem, clients: Streams) -> None:
    """Limits on single clients cannot be judged on held-out rows that belong to nobody."""
    if clients.check.count == clients.count:
        return
    row = {name: column[:1] for name, column in clients.check.columns.items()}
    try:
        jax.eval_shape(problem.terms, problem.start, row)
    except KeyError as error:
        if error.args != ("client",):
            raise
        raise UserError(
            "the problem looks at who holds a row, so check must say it too: give Rows with one "
            f"part for each of the {clients.count} clients"
        ) from None
