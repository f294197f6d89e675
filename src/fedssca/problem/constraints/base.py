"""The type of a constraint, and constraints on the loss of all data or of every client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import KINDS, KindName
from fedssca.problem.limits import Bound, Limit, sides
from fedssca.problem.losses import LOSS
from fedssca.problem.pickling import portable, remembered
from fedssca.problem.problem import Array, Batch, Rate
from fedssca.problem.task_kinds import METRICS
from fedssca.problem.tasks import CLASSIFICATION, Task

Result = TypeVar("Result")
ScoreTerm: TypeAlias = Callable[[Array, Batch], Array]
"""(scores (B, L), batch) -> one number per sample, (B,)."""
Rates: TypeAlias = Callable[[Array, Batch], Sequence[Rate]]
"""(scores, batch) -> the quantity to report, as a sum of rates."""


class Once:
    """Values of the rows of a batch by name: each is computed once, however many means use it."""

    def __init__(self, scores: Array, batch: Batch, task: Task = CLASSIFICATION) -> None:
        self.scores, self.batch, self.task = scores, batch, task
        self._found: dict[str, Array] = {}

    def value(self, key: str, fn: ScoreTerm) -> Array:
        """fn(scores, batch); functions with the same key must be the same function."""
        if key not in self._found:
            self._found[key] = self.of(fn)
        return self._found[key]

    def of(self, fn: Callable[[Array, Batch], Result]) -> Result:
        """fn(scores, batch), which shares its values with others if it is `Shared`."""
        return fn.make(self) if isinstance(fn, Shared) else fn(self.scores, self.batch)


@dataclass(frozen=True)
class Shared(Generic[Result]):
    """A function of (scores, batch) that shares values with others of the same batch."""

    make: Callable[[Once], Result]

    def __call__(self, scores: Array, batch: Batch) -> Result:
        """The function by itself."""
        return self.make(Once(scores, batch))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (portable(self.make),)


def _loss(now: Once) -> Array:
    return now.task.loss(now.scores, now.batch)


TASK_LOSS: ScoreTerm = Shared(_loss)
"""The loss of every row, whatever the task of the problem is."""


class Constraint(NamedTuple):
    """sum_k weight_k mean f_k(scores, batch) <= limit, with terms = {name: (weight_k, f_k)}."""

    name: str
    terms: Mapping[str, tuple[float, ScoreTerm]]
    limit: float
    rates: Rates | None = None
    """The quantity to report under `name` on training and held-out data, as a sum of rates."""
    stepwise: bool = False
    """Whether the value may be a count of rows, which moves in steps when w moves."""
    bound: Bound | None = None
    """What it demands of which reported quantity; None: `limit` is the largest value of `name`."""
    assumed: bool = False
    """The class that it is about was not named, and the names of the classes were not known."""
    note: str = ""
    """What users should know of the limit before training, such as clients that it leaves out."""
    units: int = 0
    """1 if its value is measured in the unit of the target, 2 in its square, 0 if it has no unit.

    Its terms and rates are in the unit in which the target is trained. Of squares the root is
    reported."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), portable(tuple(self))

    def __deepcopy__(self, _memo: object) -> Constraint:
        return self


def straight_through(hard: Array, proxy: Array) -> Array:
    """The value of `hard`, to the last bit, with the gradient of `proxy`."""
    return jax.lax.stop_gradient(hard) + (proxy - jax.lax.stop_gradient(proxy))


def promised(constraints: Sequence[Constraint], confidence: float | None) -> list[Constraint]:
    """The same constraints, to be kept on new rows with this probability."""
    return [
        made._replace(
            bound=(made.bound or Bound(made.name, high=made.limit))._replace(confidence=confidence)
        )
        for made in constraints
    ]


@remembered
def client_loss_at_most(
    limit: float, sizes: Sequence[int], clients: Sequence[str] = ()
) -> list[Constraint]:
    """Every client's own loss F_i(w) <= limit, with F_i = mean of (N / N_i) 1[client = i] loss.

    `clients` are the names of the clients in results.
    """
    check_limit("client_loss", limit)
    return [
        Constraint(
            f"client_loss_{i}",
            {f"loss[client {i}]": (1.0, term)},
            limit,
            rates,
            bound=_of_client("client_loss", i, "loss", limit, clients),
        )
        for i, (term, rates) in enumerate(client_losses("constraint 'client_loss'", sizes))
    ]


@remembered
def client_loss_gap_at_most(
    limit: float, sizes: Sequence[int], clients: Sequence[str] = ()
) -> list[Constraint]:
    """Every client's own loss F_i(w) <= F(w) + limit, with F the loss over all rows."""
    check_limit("client_loss_gap", limit)
    mean = {LOSS: (-1.0, TASK_LOSS)}

    def gap(own: Rates) -> Rates:
        def rates(now: Once) -> Sequence[Rate]:
            loss = now.of(TASK_LOSS)
            return [*now.of(own), (-1.0, loss, jnp.ones_like(loss))]

        return Shared(rates)

    return [
        Constraint(
            f"client_loss_gap_{i}",
            {f"loss[client {i}]": (1.0, term), **mean},
            limit,
            gap(rates),
            bound=_of_client("client_loss_gap", i, "loss above the mean", limit, clients),
        )
        for i, (term, rates) in enumerate(client_losses("constraint 'client_loss_gap'", sizes))
    ]


def _of_client(kind: KindName, i: int, what: str, limit: float, clients: Sequence[str]) -> Bound:
    called = clients[i] if clients else f"client {i}"
    whole = kind == "client_loss_gap"
    return Bound(f"{kind}_{i}", None, limit, f"{what}, {called}", i, positive=True, whole=whole)


@remembered
def custom(name: str, fn: ScoreTerm, limit: Limit) -> list[Constraint]:
    """mean fn(scores, batch) <= limit for your own function; its mean is reported under `name`.

    A pair (low, high) as the limit bounds the mean from both sides, and None leaves a side open.
    Both sides share one term; the lower one is named `<name>_lower`. `batch` holds the columns of
    the rows: "x", "y", "client" (the number of the client that holds the row) and all others that
    were kept. Counts have no gradient and need `straight_through`. For functions of the parameters
    see `fedssca.custom_problem`.
    """
    if name in ("cost", "", *(each for each, metric in METRICS.items() if metric.summed)):
        raise UserError(f"constraint name {name!r} is taken: choose another")

    def rates(scores: Array, batch: Batch) -> Sequence[Rate]:
        values = fn(scores, batch)
        return [(1.0, values, jnp.ones_like(values))]

    given = sides(name, limit)
    return [
        Constraint(
            side.name,
            {f"custom {name}": (side.sign, fn)},
            side.limit,
            reported,
            stepwise=True,
            bound=side.bound(given[0].name, name),
        )
        for side, reported in zip(given, (rates, None), strict=False)
    ]


def client_losses(what: str, sizes: Sequence[int]) -> list[tuple[ScoreTerm, Rates]]:
    """The loss term and the reported rate of each client; held-out rows belong to no client."""
    if not len(sizes) or min(sizes) < 1:
        raise UserError(f"{what}: client sizes are {list(sizes)}; each needs a row")

    def own(i: int) -> Callable[[Batch], Array]:
        return lambda batch: batch["client"] == i

    return [part_loss(own(i), sum(sizes) / size) for i, size in enumerate(sizes)]


def part_loss(own: Callable[[Batch], Array], factor: float) -> tuple[ScoreTerm, Rates]:
    """The loss over some of the rows as a mean over all, `factor` = N / N_i, and as reported."""

    def term(now: Once) -> Array:
        return jnp.where(own(now.batch), factor, 0.0) * now.of(TASK_LOSS)

    def rates(now: Once) -> Sequence[Rate]:
        inside = own(now.batch).astype(now.scores.dtype)
        return [(1.0, inside * now.of(TASK_LOSS), inside)]

    return Shared(term), Shared(rates)


def check_limit(kind: KindName, limit: float) -> None:
    """Raise unless this kind of constraint can have this limit."""
    allowed = KINDS[kind].limit
    if limit not in allowed:
        raise UserError(
            f"constraint {kind!r}: limit = {limit!r}: it must be {allowed.words('limit')}"
        )
