"""One run from a Config to a finished run directory; what `fedssca run` calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from fedssca.build import RUNTIMES, build
from fedssca.config import Config, parse, render
from fedssca.errors import UserError
from fedssca.record import RunDirectory, versions
from fedssca.simulate import Result, simulate

__all__ = ["execute"]

Row = dict[str, Any]


def execute(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Train as `config` says and fill the run directory `out`; returns what result.json holds.

    With `resume` the run in `out` goes on from its last checkpoint, to the same bits as an unbroken
    run; a complete run is left as it is.
    """
    with jax.enable_x64(config.run.precision == "float64"):
        return _execute(config, out, resume, on_row)


def _execute(
    config: Config, out: Path, resume: bool, on_row: Callable[[Row], None]
) -> dict[str, Any]:
    if resume and (done := RunDirectory.open(out).result()) is not None:
        return done
    if config.run.checkpoint_every < 0:
        raise UserError(
            f"run.checkpoint_every = {config.run.checkpoint_every}: it must be >= 0 (0: never)"
        )
    job = build(config)
    folder = RunDirectory.open(out) if resume else RunDirectory.create(out, render(config))
    start = folder.load_state(job.algorithm.init(job.problem.start)) if resume else None
    earlier = folder.keep_rows(int(start[0].round) if start else -1) if resume else []
    for row in earlier:
        on_row(row)

    def record(row: Row) -> None:
        folder.append(row)
        on_row(row)

    result = simulate(
        job.problem,
        job.clients,
        job.algorithm,
        config.algorithm.rounds,
        config.run.seed,
        test=job.dataset.test,
        evaluate_every=config.run.evaluate_every,
        runtime=RUNTIMES[config.run.runtime],
        resume=start,
        on_row=record,
        checkpoint_every=config.run.checkpoint_every,
        on_checkpoint=folder.save_state,
    )
    folder.save_model(w=result.w)
    summary = summarise(config, job.problem.names, result, [*earlier, *result.rows][-1])
    folder.save_result(summary)
    return summary


def summarise(config: Config, names: tuple[str, ...], result: Result, final: Row) -> dict[str, Any]:
    """What result.json holds: the final row and the judgement."""
    return final | {
        "feasible": result.feasible,
        "kkt_residual": result.kkt_residual,
        "constraint_names": list(names),
        "limits": [entry.limit for entry in config.problem.constraint],
        "seed": config.run.seed,
        "versions": versions(),
    }


def load_config(path: Path) -> Config:
    """The configuration of an existing run."""
    return parse(RunDirectory.open(path).config, source=str(path / "config.toml"))
