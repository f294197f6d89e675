"""`fedssca run --resume DIR --more N`: a run, finished or not, gets N more rounds.

The state of the last round goes on with a method that is built for the larger number of rounds. The
files are changed in an order that leaves a usable run at any moment: the checkpoint serves the old
and the new configuration, then result.json is deleted, then config.toml is replaced.

A deployed run is at the server, and the submitting side has a copy of it without checkpoints. There
the submitting side finds the setting that changes (`longer`), and the server applies it
(`made_longer`). The setting is a total, so that a job that is submitted twice adds rounds once.
"""

from __future__ import annotations

import hashlib
from typing import Any

from fedssca.errors import UserError
from fedssca.run.checkpoint import extend_checkpoint, has_checkpoint
from fedssca.run.config import Config, parse, render
from fedssca.run.privacy import noisy
from fedssca.run.record import RunDirectory
from fedssca.run.schema import AUTO

__all__ = ["extend", "longer", "made_longer", "with_more_rounds"]


def with_more_rounds(folder: RunDirectory, more: int) -> Config:
    """The configuration of the run in `folder` with `more` rounds; nothing is written yet."""
    if (folder.path / "deploy.json").exists():
        raise UserError(
            f"--more: {folder.path} was trained by sites, which only the server can ask: "
            f"fedssca deploy submit --resume {folder.path} --more {more}"
        )
    return made_longer(folder, longer(folder, more))


def longer(folder: RunDirectory, more: int) -> str:
    """The setting, such as "algorithm.rounds=1500", that gives the run in `folder` `more` rounds.

    For "auto" this raises max_rounds. A run of "auto" that ended before max_rounds has all the
    rounds that it asked for, so its number of rounds becomes a number.
    """
    if more < 1:
        raise UserError(f"--more {more}: it must be a whole number of rounds, at least 1")
    config, done = _extensible(folder)
    chosen = config.algorithm
    trained = chosen.most_rounds if done is None else int(done["round"]) + 1
    if chosen.rounds == AUTO and trained == chosen.max_rounds:
        return f"algorithm.max_rounds={chosen.max_rounds + more}"
    return f"algorithm.rounds={(trained if chosen.rounds == AUTO else chosen.rounds) + more}"


def made_longer(folder: RunDirectory, setting: str) -> Config:
    """The configuration of the run in `folder` with a setting of `longer`; nothing is written."""
    config, done = _extensible(folder)
    if done is not None and not has_checkpoint(folder):
        raise UserError(
            f"--more: {folder.path} holds no state to go on from (run.checkpoint_every = "
            f"{config.run.checkpoint_every}): start a new run with more rounds"
        )
    return parse(folder.config, [setting])


def extend(folder: RunDirectory, config: Config) -> None:
    """Make the run in `folder` one of `config`, which has more rounds."""
    text, done = render(config).encode(), folder.result()
    extend_checkpoint(folder, hashlib.sha256(text).hexdigest(), ended=done is not None)
    folder.delete("result.json")
    folder.write("config.toml", lambda file: file.write(text))


def _extensible(folder: RunDirectory) -> tuple[Config, dict[str, Any] | None]:
    """The configuration and the result, if there is one, of a run that may get more rounds."""
    config = parse(folder.config, source=str(folder.path / "config.toml"))
    if noisy(config.privacy):
        raise UserError(
            "--more: the noise of this run was chosen for its number of rounds, and its privacy "
            "budget is spent; start a new run with more rounds"
        )
    done = folder.result()
    if done is not None and config.problem.certified:
        raise UserError(
            "--more: the calibration rows of this run were used for its certificate, and a second "
            "test on the same rows would make it wrong more often; start a new run with more rounds"
        )
    return config, done
