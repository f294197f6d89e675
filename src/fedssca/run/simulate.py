"""simulate(): trains a model from a problem, clients and an algorithm, and records the run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.data.stream import Streams
from fedssca.errors import UserError
from fedssca.evaluate.biases import biases
from fedssca.evaluate.certificate import BestPoints, no_better_than_constant
from fedssca.evaluate.confidence import Calibration
from fedssca.evaluate.evaluator import Evaluator, state_row
from fedssca.evaluate.traffic import Sent, Traffic, traffic_in
from fedssca.methods.algorithm import Algorithm, State
from fedssca.methods.calibrate import probe
from fedssca.methods.staleness import clock_of
from fedssca.privacy.noise.messages import MessageNoise, simulated
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused
from fedssca.rounds.loop import Runtime, run
from fedssca.rounds.perturb import Perturbation
from fedssca.rounds.streaming import Streaming
from fedssca.run.aim import count_noise
from fedssca.run.certified import with_certificate
from fedssca.run.conclude import conclude, last_steps
from fedssca.run.privacy import evaluator_for
from fedssca.run.progress import showing_rounds
from fedssca.run.result import Result
from fedssca.run.safeguard import Safeguard

__all__ = ["Checkpoint", "simulate"]

Row = dict[str, Any]


class Checkpoint(NamedTuple):
    """What is needed to continue: the server's state, the best points, and the time spent."""

    state: State
    points: BestPoints
    seconds: float
    reached: tuple[float, float] = (math.inf, math.inf)
    """Violation and objective of what the stage before this one reached; see `run.stages`."""
    ended: bool = False
    """A run ended here, and is to go on for more rounds."""


def simulate(
    problem: Problem,
    clients: Rows | Columns | Streams | Sequence[Mapping[str, np.ndarray]],
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    *,
    test: Mapping[str, np.ndarray] | None = None,
    evaluate_every: int = 10,
    evaluate_at: Sequence[int] = (),
    noise: MessageNoise | None = None,
    calibration: Calibration | None = None,
    runtime: Callable[[Problem, Rows | Columns, Algorithm, int, Perturbation], Runtime] = Fused,
    evaluator: Evaluator | None = None,
    bytes_of: Callable[[Problem, Rows | Columns, Algorithm], Sent] = traffic_in,
    probes: int = 0,
    resume: Checkpoint | None = None,
    earlier: Sequence[Row] = (),
    on_row: Callable[[Row], None] | None = None,
    checkpoint_every: int = 0,
    on_checkpoint: Callable[[Checkpoint], None] | None = None,
    progress: bool | None = None,
) -> Result:
    """Train for `rounds` rounds: T - 1 updates, as the paper counts them.

    `clients` are rows (or columns) of data; a list of {"x": ..., "y": ...} means one client each.
    The same seed gives the same batches, and the same bits, on every run. `noise` belongs to an
    algorithm that was made by `with_noise`. `calibration` rows, which no client trains on, certify
    that limits hold on new rows (`evaluate/confidence`). `evaluate_at` lists rounds to evaluate
    instead of every `evaluate_every`-th. `evaluator` replaces the one that is made for `clients`
    and `test`, and `bytes_of` the function that tells the bytes of rounds. `probes` messages were
    spent on calibration and are counted. `resume` continues from a checkpoint whose rows were
    `earlier`. `on_row` and `on_checkpoint` are called with every row and checkpoint as soon as it
    is there. `progress` shows a progress line on stderr; None: if that is a terminal.

    `Streams` are evaluated on their held-out rows and have a `runtime` of their own. Nothing is
    drawn, so the seed does not matter. A stream cannot be rewound: `resume` continues with the rows
    that come next. When a source ends, training does too, and `Result.notes` says so.
    """
    if not isinstance(problem, Problem) or not isinstance(algorithm, Algorithm):
        raise UserError(
            "simulate takes a problem, the clients, an algorithm and rounds, in this order"
        )
    if rounds < 1:
        raise UserError(f"rounds = {rounds}: at least 1 is needed")
    if not 0 <= seed < 2**63:
        raise UserError(f"seed = {seed}: it must be a whole number from 0 to 2^63 - 1")
    if evaluate_every < 1:
        raise UserError(f"evaluate_every = {evaluate_every}: it must be at least 1")
    stream, parties, evaluated = _parties(problem, clients, algorithm)
    if calibration and noise and noise.ledger:
        if noise.calibration is None:
            raise UserError(
                "the counts of calibration rows need noise too: make the noise with "
                "with_noise(..., calibration=True)"
            )
        calibration = calibration._replace(
            noise=count_noise(
                problem, parties, noise.calibration, len(calibration.rows["client"]), seed
            )
        )
    if stream and calibration:
        raise UserError(
            "clients that stream hold no calibration rows: leave the confidence out, or train on "
            "rows that are held"
        )
    if stream and runtime is not Fused:
        raise UserError("clients that stream have a runtime of their own: leave runtime out")
    if stream and noise is not None:
        raise UserError(
            "clients that stream add no noise: train on rows that are held, or leave the noise out"
        )
    engine = stream or runtime(problem, parties, algorithm, seed, simulated(noise, seed))
    evaluator = evaluator or evaluator_for(problem, evaluated, test, noise, seed)
    training = bytes_of(problem, parties, algorithm)
    probing = bytes_of(problem, parties, probe(problem, algorithm.batch)) if probes else training
    at = resume or Checkpoint(algorithm.init(problem.start), BestPoints(), 0.0)
    begun, last, points = time.perf_counter() - at.seconds, rounds - 1, replace(at.points)
    rows, ledger = list(earlier), noise.ledger if noise else None
    chosen = {last}.union(evaluate_at or range(0, last, evaluate_every))
    if ledger and ledger.covers_evaluations and len(chosen) > ledger.evaluations:
        raise UserError(
            f"{len(chosen)} evaluations are asked for, but the noise was made for "
            f"{ledger.evaluations}: give with_noise the same evaluate_every as simulate"
        )
    safeguard = Safeguard(None if resume is None else at.state)

    def observe(state: State) -> State | bool:
        done = int(state.round)
        over = stream is not None and stream.ended is not None
        if (done in chosen or over) and _new(rows, done):
            row = state_row(state) | evaluator.row(state.w)
            row |= _sent(training, state, parties.count, probing(probes))
            if ledger:
                row["epsilon"] = ledger.spent(done)
            row |= {"seconds": time.perf_counter() - begun}
            if (verdict := safeguard.see(state, row)) is not None:
                return verdict
            rows.append(row)
            points.see(state.w, rows[-1])
            tell(rows[-1])
        due = checkpoint_every and (done % checkpoint_every == 0 or done == last or over)
        if on_checkpoint and due:
            spent = time.perf_counter() - begun
            on_checkpoint(Checkpoint(state, replace(points), spent, at.reached))
        return over

    first = int(at.state.round)
    stops = chosen.union(range(0, last, checkpoint_every) if checkpoint_every else ())
    first_stop = 0 if resume is None else first + 1
    ahead = sorted(stop for stop in stops if first_stop <= stop <= last)
    with showing_rounds(rounds, progress, on_row) as tell:
        state = safeguard.end(run(engine, at.state, ahead, observe))
    chosen_by = None if ledger else points
    steps = 0 if stream or ledger else last_steps(algorithm, problem, parties, state)
    thresholds = biases(problem, parties) if chosen_by and problem.stepwise else None
    result = conclude(problem, evaluator, chosen_by, state, rows, steps, thresholds)
    if calibration:
        result = with_certificate(problem, evaluator, parties, result, calibration)
    constant = evaluator.constant if problem.plain else None
    known = [] if calibration else no_better_than_constant(constant, result.final)
    notes = known + safeguard.notes(state) + _end(stream, int(state.round), last) + result.notes
    result = replace(result, points=points, diverged=safeguard.ended)
    if ledger:
        said = COVERED if ledger.covers_evaluations else MODEL_ONLY
        said += COUNTED if ledger.calibrations else ""
        return replace(result, notes=[said, *notes], privacy=ledger.report(int(state.round)))
    return replace(result, notes=notes)


COVERED = (
    "epsilon covers the messages and the evaluations, so also the returned model, which is the "
    "last iterate; all values of losses, rates and limits carry noise"
)
COUNTED = "; it covers the noised counts of calibration rows too"
MODEL_ONLY = (
    "epsilon is that of the released model, which is the last iterate, and of the messages; it "
    "does not cover the metrics, the certificate and these notes, computed from exact data"
)


def _parties(
    problem: Problem,
    clients: Rows | Columns | Streams | Sequence[Mapping[str, np.ndarray]],
    algorithm: Algorithm,
) -> tuple[Streaming | None, Rows | Columns, Rows | Columns]:
    """The stream if it is one, who takes part, and the rows on which models are judged."""
    if isinstance(clients, Streams):
        return Streaming(problem, clients, algorithm), clients.sample, clients.check
    parties = clients if isinstance(clients, Rows | Columns) else Rows.of(clients)
    return None, parties, parties


def _new(rows: Sequence[Row], done: int) -> bool:
    """This round is not evaluated yet (it is if a stream ends right after an evaluation)."""
    return not rows or bool(rows[-1]["round"] != done)


def _end(stream: Streaming | None, done: int, last: int) -> list[str]:
    """What ended the training early, if anything did."""
    if stream is None or stream.ended is None:
        return []
    client, rows = stream.ended
    return [
        f"client {client}'s rows ended after {rows:,} rows, in round {done + 1:,} of {last:,}: "
        f"the model was trained for {done:,} rounds; give it more rows or ask for fewer rounds"
    ]


def _sent(training: Sent, state: State, clients: int, probing: Traffic) -> Row:
    """The bytes of all rounds so far; clients that are late send less than one message in each."""
    clock, rounds = clock_of(state), training(int(state.round))
    if clock is not None:
        full = float(clock.came) / clients
        rounds = Traffic(*(round(full * way) for way in training(1)))
    pairs = zip(Traffic._fields, rounds, probing, strict=True)
    return {f"bytes_{way}": in_rounds + in_probes for way, in_rounds, in_probes in pairs}
