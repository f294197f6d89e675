"""One run from a Config to a finished run directory; what `fedssca run` calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from fedssca.data import Rows
from fedssca.evaluate.confidence import Calibration
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.problem.limits import StatedLimit, stated
from fedssca.run.build import Job, build, engine_of, for_horizon
from fedssca.run.certified import with_certificate
from fedssca.run.checkpoint import load_checkpoint, save_checkpoint
from fedssca.run.config import Config, absolute, parse, render
from fedssca.run.data_digest import data_digest
from fedssca.run.model import held_out_metrics, model_from, save_model, save_personal
from fedssca.run.more import extend
from fedssca.run.privacy import evaluator_for, hides_clients, traffic_of
from fedssca.run.promise import openings_of, save_certificate, save_openings, statement_of
from fedssca.run.record import RunDirectory
from fedssca.run.result import Result
from fedssca.run.schema import AUTO
from fedssca.run.simulate import Checkpoint, simulate
from fedssca.run.stages import for_rounds, until_converged
from fedssca.run.versions import versions

__all__ = ["carry_out", "execute", "load_config", "train"]

Row = dict[str, Any]


def train(
    job: Job, *, resume: Checkpoint | None = None, earlier: Sequence[Row] = (), **hooks: Any
) -> Result:
    """`simulate` with everything that a built job says; `hooks` add to its arguments.

    With `algorithm.rounds = "auto"` this is done in stages, until it has converged.
    """
    config = job.config
    said: dict[str, Any] = {
        "test": job.dataset.held_out,
        "evaluate_every": config.run.evaluate_every,
        "runtime": engine_of(config),
        "bytes_of": traffic_of(config),
        "probes": config.algorithm.probes,
        "noise": job.noise,
        "progress": False,
    }

    def trained(rounds: int, begin: Checkpoint | None, rows: Sequence[Row]) -> Result:
        return simulate(
            job.problem,
            job.clients,
            for_horizon(job, rounds).algorithm,
            rounds,
            config.run.seed,
            resume=begin,
            earlier=rows,
            **said | hooks,
        )

    stages = until_converged if config.algorithm.rounds == AUTO else for_rounds
    result = stages(trained, config.algorithm.most_rounds, resume, earlier)
    if job.calibration is None:
        return result
    evaluator = hooks.get("evaluator") or evaluator_over(job.problem, job.clients, said["test"])
    return with_certificate(job.problem, evaluator, job.clients, result, job.calibration)


def execute(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    more: bool = False,
    new_data: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Train as `config` says and fill the run directory `out`; returns what result.json holds.

    With `resume` the run in `out` continues from its last checkpoint, and the result is identical
    to that of an uninterrupted run; a complete run is left as it is. With `more` it continues in
    any case, and `config` is `run.more.with_more_rounds` of it. If the data have changed since the
    checkpoint, the run is refused; with `new_data` it continues with them.
    """
    with jax.enable_x64(config.run.precision == "float64"):
        return _execute(config, out, resume, more, new_data, on_row)


def _execute(
    config: Config,
    out: Path,
    resume: bool,
    more: bool,
    new_data: bool,
    on_row: Callable[[Row], None],
) -> dict[str, Any]:
    if resume and not more and (done := RunDirectory.open(out).result()) is not None:
        return done
    if not resume:
        config = absolute(config)
    job = build(config)
    if more:
        folder = RunDirectory.open(out)
        with folder.locked():
            extend(folder, job.config)
    return carry_out(job, out, resume, on_row, new_data=new_data)


def carry_out(
    job: Job,
    out: Path,
    resume: bool,
    on_row: Callable[[Row], None],
    evaluator: Evaluator | None = None,
    new_data: bool = False,
    **hooks: Any,
) -> dict[str, Any]:
    """Train a built job and fill its run directory; `hooks` add to the arguments of `simulate`."""
    evaluator = evaluator or evaluator_for(
        job.problem, job.clients, job.dataset.held_out, job.noise, job.config.run.seed
    )
    folder = RunDirectory.open(out) if resume else RunDirectory.create(out, render(job.config))
    with folder.locked():
        return _fill(folder, job, resume, new_data, on_row, evaluator, hooks)


def _fill(
    folder: RunDirectory,
    job: Job,
    resume: bool,
    new_data: bool,
    on_row: Callable[[Row], None],
    evaluator: Evaluator,
    hooks: dict[str, Any],
) -> dict[str, Any]:
    config, data, start = job.config, "", None
    if config.run.checkpoint_every:
        data = data_digest(job)
    if resume:
        folder.delete_drafts()
        like = job.algorithm.init(job.problem.start)
        start = load_checkpoint(folder, like, "" if new_data else data)
    folder.save_problem(facts(job))
    earlier = folder.keep_rows(int(start.state.round) if start else -1) if resume else []
    for row in earlier:
        on_row(row)

    def record(row: Row) -> None:
        folder.append(row)
        on_row(row)

    result = train(
        job,
        evaluator=evaluator,
        resume=start,
        earlier=earlier,
        on_row=record,
        checkpoint_every=config.run.checkpoint_every,
        on_checkpoint=partial(save_checkpoint, folder, data),
        **hooks,
    )
    folder.save_model(w=result.w, w_last=result.last)
    model = model_from(job, result.w, versions())
    digest = save_model(folder, model)
    save_personal(folder, job, result.w)
    apart = evaluator.noisy or job.problem.personal is not None
    whole = (
        result.final
        | ({} if apart else held_out_metrics(model, job.dataset.test))
        | result.privacy
        | {
            "feasible": result.feasible,
            "kkt_residual": result.kkt_residual,
            "converged": result.converged,
            "certificate": result.certificate,
            "notes": result.notes,
            "rounds": int(result.rows[-1]["round"]) + 1,
            "last": result.rows[-1],
            **limits_of(job),
            **by_client(job, result),
            "per_group": result.groups,
            "seed": config.run.seed,
            "versions": versions(),
        }
    )
    if isinstance(job.calibration, Calibration):
        openings = openings_of(job.clients, job.calibration)
        save_openings(folder, openings)
        commitments = [opening.committed for opening in openings]
        save_certificate(folder, statement_of(folder, whole, digest, job.clients, commitments))
    return folder.save_result(whole)


def limits_of(job: Job) -> dict[str, Any]:
    """Names and limits of the constraints, and the limits that they are the sides of."""
    worst = job.problem.worst

    def entry(limit: StatedLimit) -> Row:
        free = any(m + 1 in worst for m in limit.constraints)
        return {
            "quantity": limit.quantity,
            "title": limit.title,
            "low": None if free else limit.low,
            "high": None if free else limit.high,
            "constraints": list(limit.constraints),
        }

    return {
        "stated_limits": [entry(limit) for limit in stated(job.problem.bounds)],
        "constraint_names": list(job.problem.names),
        "limits": job.problem.limits.tolist(),
    }


def facts(job: Job) -> dict[str, Any]:
    """What is known of a run before its first round, for those who watch it."""
    return limits_of(job) | {
        "parameters": job.problem.model(job.problem.start).size,
        "clients": job.clients.count,
        "rows": job.clients.total,
    }


def by_client(job: Job, result: Result) -> dict[str, Any]:
    """The results of every client, and its loss alone; or why they are not shown."""
    if why := hides_clients(job.config) or result.hidden:
        return {"per_client": [], "per_client_hidden": why}
    names = job.clients.names if isinstance(job.clients, Rows) else ()
    named: list[Row] = [{"name": name} for name in names] or [{}] * len(result.clients)
    return {
        "per_client": [name | each for name, each in zip(named, result.clients, strict=True)],
        "client_losses": [each["train"].get("cost") for each in result.clients],
    }


def load_config(path: Path) -> Config:
    """The configuration of an existing run."""
    return parse(RunDirectory.open(path).config, source=str(path / "config.toml"))
