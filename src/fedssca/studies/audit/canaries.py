"""An audit of epsilon: canary rows in the mechanism of a run, and what an attacker finds of them.

The client with the highest sampling rate holds canaries: row j has the gradient C e_j, the longest
that counts and in a direction of its own, which is the worst case for its privacy. Half of them, at
random, are taken out (their gradient is 0). The client then sends what a site would send in the
run: the same clipping, sampling, noise and number of messages, with the randomness of a real site.
The attacker sees all messages and knows everything but who is in. His score is the likelihood
ratio: with y_tj = (message t)_j / (a C), and k messages about each batch g,

    score_j  =  sum_g log(1 - q + q exp((sum_(t in g) y_tj - k / 2) / sigma^2)).

`one_run` turns his guesses into a lower bound on epsilon, which must stay below the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.data import Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state, publish
from fedssca.methods.calibrate import PROBES, probe
from fedssca.methods.surrogate import gradients
from fedssca.privacy.noise.ledger import Ledger
from fedssca.privacy.noise.messages import MessageNoise, with_noise
from fedssca.privacy.noise.secret import SecretNoise
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.rounds.client import SERVER, RowClient
from fedssca.run.build import build
from fedssca.run.config import Config
from fedssca.studies.audit.one_run import lower_bound

__all__ = ["Mechanism", "audit_epsilon", "mechanism_of", "requests_of", "scores_of"]

MOST = 2000
"""The largest number of canaries."""

Answer = Callable[[Request], Message]
"""What the client with the canaries sends."""


class Mechanism(NamedTuple):
    """One client with canaries, and the noise of a run."""

    problem: Problem
    algorithm: Algorithm
    noise: MessageNoise
    rows: dict[str, np.ndarray]
    inside: np.ndarray
    """Which canaries are in the data."""
    rate: float
    """q, the probability that a row is in a batch."""
    claimed: Ledger
    """The account of the run."""


def mechanism_of(
    ledger: Ledger, rows: int, batch: int, rng: np.random.Generator, most: int = MOST
) -> Mechanism:
    """The mechanism of a run whose account is `ledger`, with at most `most` canaries."""
    canaries = min(rows, most)
    inside = rng.random(canaries) < 0.5
    data = {
        "canary": np.minimum(np.arange(rows), canaries - 1).astype(np.int32),
        "counts": np.concatenate([inside, np.zeros(rows - canaries, bool)]).astype(np.float32),
    }
    problem = _problem(canaries)
    algorithm, noise = with_noise(
        _gradients(problem, batch),
        problem,
        Rows(data, (rows,)),
        clip=1.0,
        noise_multiplier=ledger.sigma,
        delta=ledger.delta,
        rounds=ledger.count(ledger.rounds) - ledger.probes + 1,
        probes=ledger.probes,
        sampling="fixed" if ledger.batch else "poisson",
        evaluate_every=0,
    )
    return Mechanism(problem, algorithm, noise, data, inside, min(1.0, batch / rows), ledger)


def _problem(canaries: int) -> Problem:
    """One linear term per row, whose gradient is that of its canary."""

    def terms(w: Array, batch: Batch) -> Array:
        return (batch["counts"] * w[batch["canary"]])[None]

    return Problem(
        terms=terms,
        start=jnp.zeros(canaries, jnp.float32),
        unravel=lambda w: w,
        combine=np.ones((1, 1)),
        known=np.zeros(1),
        limits=np.zeros(0),
        names=(),
        measure=lambda w, batch: {},
    )


def _gradients(problem: Problem, batch: int) -> Algorithm:
    def reply(terms: Terms, asked: Request, data: Batch) -> Message:
        return gradients(problem, terms, asked.w, data)

    def stay(state: State, total: Message) -> State:
        del total
        return state

    return Algorithm(
        "canaries", batch, 1, lambda w: first_state(problem, w, ()), publish, reply, stay
    )


def requests_of(mechanism: Mechanism, *, noised: bool = True) -> list[Request]:
    """All requests of a run: of the probes as the calibration makes them, then of the rounds.

    `noised` is False for probes that share one batch, as they do in runs without noise.
    """
    problem, ledger = mechanism.problem, mechanism.claimed
    probes = probe(problem, mechanism.algorithm.batch, noised=noised)
    state = probes.init(problem.start)

    def asked(done: int) -> Request:
        """A probe at a point of its own; for gradients that are constant any direction will do."""
        aside = state.memory._replace(direction=jnp.zeros_like(problem.start).at[done].set(1.0))
        return probes.request(state._replace(round=jnp.asarray(done), memory=aside))

    first = [asked(done) for done in range(ledger.probes)]
    assert ledger.probes in (0, PROBES)
    last = ledger.count(ledger.rounds) - ledger.probes
    return first + [Request(jnp.asarray(t), problem.start) for t in range(1, last + 1)]


def at_a_site(mechanism: Mechanism) -> Answer:
    """The client as a site of a deployment: its noise and its batches are its own."""
    secret, rows = SecretNoise(), mechanism.rows
    total = len(rows["canary"])
    client = RowClient(
        0,
        mechanism.problem,
        mechanism.algorithm,
        rows,
        total,
        0,
        secret.perturbation(mechanism.noise),
        secret.batches(mechanism.algorithm, total),
    )

    def answer(request: Request) -> Message:
        message: Message = client.handle("reply", request)[SERVER]
        return message

    return answer


def scores_of(mechanism: Mechanism, answer: Answer, requests: Sequence[Request]) -> np.ndarray:
    """The attacker's score of every canary."""
    sums: dict[int, Any] = {}
    for request in requests:
        seen = np.asarray(answer(request).vectors["gradient"], float)[0]
        total, count = sums.get(int(request.round), (0.0, 0))
        sums[int(request.round)] = total + seen * mechanism.algorithm.batch, count + 1
    q, variance = mechanism.rate, mechanism.noise.vector**2
    score = np.zeros(len(mechanism.inside))
    for total, count in sums.values():
        ratio = (total - count / 2) / variance
        score += np.logaddexp(np.log1p(-q), np.log(q) + ratio) if q < 1 else ratio
    return score


def audit_epsilon(config: Config, seed: int = 0) -> dict[str, Any]:
    """The claimed epsilon of a run beside what an attack on its mechanism proves."""
    job = build(config)
    ledger = None if job.noise is None else job.noise.ledger
    if ledger is None:
        raise UserError(
            "audit --privacy: the run has no noise; set privacy.clip and privacy.epsilon"
        )
    if not isinstance(job.clients, Rows) or ledger.unit != "sample":
        raise UserError(
            'audit --privacy: canaries are rows; use data.split = "sample" and '
            'privacy.unit = "sample"'
        )
    rows, batch = min(job.clients.sizes), job.algorithm.batch
    mechanism = mechanism_of(ledger, rows, batch, np.random.default_rng(seed))
    scores = scores_of(mechanism, at_a_site(mechanism), requests_of(mechanism))
    independent = bool(mechanism.algorithm.places) or mechanism.rate >= 1
    found = lower_bound(scores, mechanism.inside, ledger.delta, independent=independent)
    claimed = ledger.exact()
    return {
        "claimed_epsilon": claimed,
        "delta": ledger.delta,
        "lower_bound": found.epsilon,
        "confidence": found.confidence,
        "holds": found.epsilon <= claimed,
        "canaries": len(mechanism.inside),
        "found": found.how,
        "rows": rows,
        "messages": ledger.count(ledger.rounds),
        "noise_multiplier": ledger.sigma,
        "sampling": ledger.report(ledger.rounds)["sampling"],
        "sampling_rate": mechanism.rate,
    }
