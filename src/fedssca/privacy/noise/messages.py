"""Differential privacy, a combinator: clipped messages under Gaussian noise, and the account of it.

Let a unit that weighs 1 count at most C in its gradients and V in each of its m values (`clip`).
In a message it weighs a: N_i / (B N) for one of the B samples of client i, N_i / N for client i
itself. One unit more or less moves the gradients by a C and each value by a V. Noise of standard
deviation a C s on the gradients and a V r on the values makes the stacked message, each part over
its noise, one Gaussian mechanism with

    1 / sigma^2 = 1 / s^2 + m / r^2,        r = QUIET s,

sigma the noise multiplier: values are noised and accounted in the same mechanism, with r > s
because one number is averaged over the rounds far more easily than a hundred thousand.

Who sees what decides on a. If the server sees each client's message, each client adds the noise of
its own a. If it sees only sums, a is that of the heaviest unit, and every client adds its share
1 / survivors of the variance: the smallest sum that can be opened still has all of it. Parties that
hold columns send blocks that are put side by side, not added: each adds the full noise.

The noise is a `Perturbation` of messages. In a simulation (`simulated`) it comes from the run's
seed, as the batches do, so that a run can be repeated: it has the right size, and it protects
nothing. At the sites of a deployment both come from the operating system (`secret`), because the
server knows the seed and could subtract such noise again.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.sampling import TAIL, batch_indices, places_for, words
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request
from fedssca.methods.participation import Cohort, asked_in, cohort_of
from fedssca.privacy.noise.accountant import COARSE, busiest, multiplier, sigma_of
from fedssca.privacy.noise.calibration import CalibrationNoise, counted_quantities
from fedssca.privacy.noise.clip import ReadChange, per_client, per_sample
from fedssca.privacy.noise.discrete import FEW_STEPS, off_grid
from fedssca.privacy.noise.evaluation import EvaluationNoise, numbers_of
from fedssca.privacy.noise.gaussian import disturbed
from fedssca.privacy.noise.ledger import Ledger
from fedssca.problem.problem import Array, Problem
from fedssca.rounds.perturb import Perturb, Perturbation, unperturbed

__all__ = ["MessageNoise", "evaluations_in", "simulated", "with_noise"]

QUIET = 3.0
"""Noise on a value over noise on a gradient, both relative to their bounds."""
SHARE = 0.2
"""What evaluations alone spend, as a share of the epsilon of a run."""
UNTIL = 0.99
"""What counts of calibration rows spend, as a share of the epsilon of all other rows."""
SERVER = np.zeros(1, np.int32)
"""The number under which batches of parties that hold columns are drawn."""


class MessageNoise(NamedTuple):
    """The noise on the messages of a run, and the account of what it spends."""

    scalar: float
    """Standard deviation of the noise on values, for a unit that weighs 1."""
    vector: float
    """Standard deviation of the noise on gradients, for a unit that weighs 1."""
    weight: Callable[[Any], Any]
    """N_i / N -> the factor of client i's noise: how much a unit weighs in what is seen of it."""
    ledger: Ledger | None
    """What is spent; None where messages are clipped only and no noise is added."""
    change: ReadChange | None = None
    """How changes of w carry gradients, where clients send changes."""
    separate: bool = False
    """Messages of single clients are clipped, so that no batches of clients can be joined."""
    due: Callable[[int, int], bool] = lambda number, round_: False
    """(client, round) -> whether a message was accounted for; probes have rounds from 0 down."""
    evaluation: EvaluationNoise | None = None
    """The noise on evaluations; None: they are exact, and the account does not cover them."""
    sums_only: bool = False
    """The server sees sums only: what clients send must stay on the grid of these sums."""
    ratio: float = 0.0
    """The largest noise standard deviation of a part, over what a unit can change in that part."""
    calibration: CalibrationNoise | None = None
    """The noise on counts of calibration rows; None: there are none."""

    def spread(self, request: Request) -> tuple[float, Any]:
        """Standard deviations of values and of vectors, for a unit that weighs 1."""
        unit = jnp.abs(self.change(request).unit) if self.change else 1.0
        return self.scalar, self.vector * unit


def with_noise(
    algorithm: Algorithm,
    problem: Problem,
    clients: Rows | Columns,
    *,
    clip: float,
    value_clip: float = 0.0,
    unit: str = "sample",
    noise_multiplier: float = 0.0,
    epsilon: float = 0.0,
    delta: float = 1e-5,
    rounds: int,
    seed: int = 0,
    probes: int = 0,
    survivors: int = 0,
    change: ReadChange | None = None,
    sampling: str = "poisson",
    evaluate_every: int = 10,
    calibration: bool = False,
) -> tuple[Algorithm, MessageNoise]:
    """`algorithm` with clipped messages, and the noise that protects one `unit`.

    A unit is a "sample" or a whole "client". Give `noise_multiplier`, or `epsilon`: what `rounds`
    rounds, `probes` probing messages and an evaluation in every `evaluate_every`-th round may spend
    together; with neither, messages are clipped only. With `evaluate_every` = 0 evaluations are
    exact, and epsilon does not cover them. `sampling` says how samples are drawn: "poisson", each
    of them independently, or "fixed", batches of one size, whose epsilon is far larger.
    `survivors` > 0 says that the server sees only sums, and none of fewer clients than that.
    A cohort is drawn before (`participation`), with the same `seed`; batches of parties that hold
    columns are drawn from it too. `change` is given where clients send changes of w. With
    `calibration`, counts of calibration rows get noise too, so that limits can be certified.

    Train with `simulate(problem, clients, algorithm, rounds, seed, noise=noise)`.
    """
    calibration = calibration and bool(noise_multiplier or epsilon)
    _check(algorithm, clients, clip, unit, noise_multiplier, epsilon, calibration)
    bounds = clip, value_clip or clip
    made = _clipped(algorithm, problem, clients, unit, bounds, change)
    separate = unit == "client"
    if not noise_multiplier and not epsilon:
        return made, MessageNoise(0.0, 0.0, lambda share: share, None, change, separate)
    cohort = cohort_of(algorithm, problem)
    rate, uses = _takes_part(algorithm, cohort, clients, unit, rounds, seed)
    sizes = clients.sizes if isinstance(clients, Rows) else (clients.total,)
    poisson = rate < 1 and sampling == "poisson"
    if poisson:
        made = made._replace(places=places_for(sizes, algorithm.batch))
    messages = rounds - 1 + probes
    # No message has more numbers: two vectors for each term, and its value.
    numbers = 2 * problem.combine.shape[1] * (problem.dimension + 1)
    evaluations = evaluations_in(rounds, evaluate_every) if evaluate_every else 0
    reported = numbers_of(problem, clients) if evaluations else 0
    ledger = Ledger(
        sigma=noise_multiplier,
        delta=delta,
        unit=unit,
        rate=rate,
        rounds=rounds - 1,
        uses=uses,
        batch=(algorithm.batch, min(sizes)) if rate < 1 and not poisson else None,
        probes=probes,
        evaluations=evaluations,
        calibrations=int(calibration),
        lost=poisson * TAIL * messages
        + off_grid(messages, numbers)
        + off_grid(evaluations, reported, FEW_STEPS),
        calibration_lost=off_grid(int(calibration), 4 * len(problem.bounds), FEW_STEPS),
    )
    ledger = settled(ledger, epsilon)
    s = ledger.sigma * math.sqrt(1 + len(problem.valued) / QUIET**2)
    weight = 1.0 if unit == "client" else 1 / algorithm.batch
    heaviest = max(sizes) / sum(sizes) * weight / math.sqrt(max(survivors, 1))
    sums_only = survivors > 0 and isinstance(clients, Rows)
    noise = MessageNoise(
        scalar=QUIET * s * bounds[1],
        vector=s * bounds[0],
        weight=lambda share: 0 * share + heaviest if sums_only else share * weight,
        ledger=ledger,
        change=change,
        separate=separate,
        due=partial(_due, cohort, seed, rounds, probes),
        evaluation=EvaluationNoise(
            ledger.evaluation_sigma,
            bounds[1],
            unit,
            sizes,
            survivors if sums_only else 0,
            reported,
        )
        if ledger.evaluations
        else None,
        sums_only=sums_only,
        ratio=QUIET * s,
        calibration=CalibrationNoise(
            ledger.calibration_sigma, counted_quantities(problem), survivors if sums_only else 0
        )
        if calibration
        else None,
    )
    return made, noise


def settled(ledger: Ledger, epsilon: float) -> Ledger:
    """The ledger with the noise of evaluations and, where `epsilon` is given, of messages.

    Evaluations alone spend `SHARE` of epsilon, or of what the messages spend. Together both spend
    little more than the larger one: this share adds 1 to 2 % to the noise of the messages. Counts
    of calibration rows may spend as much as all others together: they are about other rows.
    """
    alone = replace(ledger, evaluations=0, calibrations=0)
    counts, ledger = ledger.calibrations, replace(ledger, calibrations=0)
    ledger = _with_messages(ledger, alone, epsilon)
    if not counts:
        return ledger
    target = UNTIL * (epsilon or ledger.exact(fine=COARSE))
    sigma = (2 if ledger.batch else 1) * sigma_of(target, ledger.delta, counts)
    return replace(ledger, calibrations=counts, calibration_sigma=sigma)


def _with_messages(ledger: Ledger, alone: Ledger, epsilon: float) -> Ledger:
    """The ledger without calibration rows; `alone` has no evaluations either."""
    if count := ledger.evaluations:
        target = SHARE * (epsilon or alone.exact(fine=COARSE))
        halved = 2 if ledger.batch else 1
        sigma = halved * sigma_of(target, ledger.delta, count)
        ledger = replace(ledger, evaluation_sigma=sigma)
    if not epsilon:
        return ledger
    if ledger.count(ledger.rounds) == 0:
        raise UserError("privacy.epsilon: a run without a round spends nothing, train for longer")
    sigma = multiplier(epsilon, lambda s: replace(ledger, sigma=s).exact(fine=COARSE))
    return replace(ledger, sigma=sigma)


def evaluations_in(rounds: int, every: int) -> int:
    """How many rounds of a run are evaluated: every so many, and the last one."""
    return len({rounds - 1, *range(0, rounds - 1, every)})


def _due(cohort: Cohort | None, seed: int, rounds: int, probes: int, number: int, t: int) -> bool:
    """Whether the message of client `number` in round t was accounted for."""
    if not -probes < t < rounds or (t <= 0 and not probes):
        return False
    return cohort is None or number in np.asarray(asked_in(jnp.int32(t), cohort, seed))


def _clipped(
    algorithm: Algorithm,
    problem: Problem,
    clients: Rows | Columns,
    unit: str,
    bounds: tuple[float, float],
    change: ReadChange | None,
) -> Algorithm:
    if unit == "client":
        return per_client(algorithm, *bounds, change)
    split = problem.vertical if isinstance(clients, Columns) else None
    return per_sample(algorithm, *bounds, () if split is None else split.blocks, change)


def _check(
    algorithm: Algorithm,
    clients: Rows | Columns,
    clip: float,
    unit: str,
    noise_multiplier: float,
    epsilon: float,
    calibration: bool,
) -> None:
    """One line for what cannot be."""
    if not clip > 0:
        raise UserError(
            "privacy: noise needs privacy.clip, the longest gradient that counts; start with the "
            "length of a typical one, about 1 for the ready-made networks"
        )
    if noise_multiplier and epsilon:
        raise UserError(
            "privacy.noise_multiplier and privacy.epsilon both say how much noise: keep one of them"
        )
    if unit == "sample" and algorithm.steps > 1:
        raise UserError(
            f"algorithm.local_steps = {algorithm.steps}: a sample is hidden in messages of one "
            'step only; use local_steps = 1, or privacy.unit = "client"'
        )
    if calibration and unit == "client":
        raise UserError(
            'privacy.unit = "client": noise that hides all calibration rows of a client hides '
            'their counts as well; use "sample", or leave the confidence out'
        )
    if isinstance(clients, Columns):
        if unit == "client":
            raise UserError(
                'privacy.unit = "client": parties that hold columns know of the same people, '
                'use "sample"'
            )
        if clients.collection == "open":
            raise UserError(
                'data.collection = "open" sends the data themselves, which no noise hides: use '
                '"exchange"'
            )
        if noise_multiplier or epsilon:
            warnings.warn(
                "privacy: noise hides samples from the server only; the h_i that parties exchange "
                "carry none, and peers see them (with secure_sum: their sum)",
                stacklevel=4,
            )


def _takes_part(
    algorithm: Algorithm,
    cohort: Cohort | None,
    clients: Rows | Columns,
    unit: str,
    rounds: int,
    seed: int,
) -> tuple[float, tuple[int, ...] | None]:
    """How likely a unit is in a message, unseen by the server; and the busiest one's rounds.

    The server knows the cohort, and it names the rows where parties hold columns: no chance is left
    there, only a count. Clients with rows draw their batches unseen.
    """
    if isinstance(clients, Columns):
        return 1.0, _rounds_of_rows(seed, algorithm.batch, clients.total, rounds)
    part = 1.0 if unit == "client" else algorithm.batch / min(clients.sizes)
    if cohort is None:
        return part, None
    return part, _count(lambda t: asked_in(t, cohort, seed), rounds, clients.count)


@functools.lru_cache(maxsize=16)
def _rounds_of_rows(seed: int, batch: int, total: int, rounds: int) -> tuple[int, ...]:
    """How often the busiest row takes part, where the seed draws a batch for all parties."""
    everybody = np.array([total])
    return _count(lambda t: batch_indices(seed, t, SERVER, everybody, batch)[0], rounds, total)


def _count(members: Callable[[Array], Array], rounds: int, total: int) -> tuple[int, ...]:
    """How often the busiest takes part, from who does in rounds t = 1, 2, ..."""
    some, chunk = jax.jit(jax.vmap(members)), 256

    def each() -> Iterator[np.ndarray]:
        for first in range(1, rounds, chunk):
            here = np.asarray(some(np.arange(first, first + chunk, dtype=np.int32)))
            yield from here[: rounds - first]

    return busiest(each(), total)


def simulated(noise: MessageNoise | None, seed: int) -> Perturbation:
    """Noise from (seed, round, client): for simulations, which must give the same bits again."""
    if noise is None or noise.ledger is None:
        return unperturbed._replace(separate=noise is not None and noise.separate)

    @jax.jit
    def disturb(message: Message, request: Request, number: Array, share: Array) -> Message:
        factor = noise.weight(share)
        return _disturbed(noise, message, request, factor, words(seed), number)

    def client(number: int, share: float) -> Perturb:
        return lambda message, request: disturb(message, request, number, share)

    def joint(total: Message, request: Request, shares: Array, seed: Any) -> Message:
        """Noise as large as that of all clients together."""
        each = jnp.where(shares > 0, noise.weight(shares), 0)
        factor = jnp.sqrt(jnp.sum(jnp.square(each)))
        return _disturbed(noise, total, request, factor, seed, -1)

    return Perturbation(client, joint, noise.separate)


def _disturbed(
    noise: MessageNoise, message: Message, request: Request, factor: Any, seed: Any, number: Any
) -> Message:
    scalar, vector = noise.spread(request)
    return disturbed(message, request, (factor * scalar, factor * vector), seed, number)
