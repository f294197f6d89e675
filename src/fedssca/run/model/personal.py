"""The personal parts of a trained model: one file for each client, see `rounds.personal`.

A simulated run has them in `personal/` of its directory, named after the clients. A site keeps its
own, beside its ledger; nobody else has it.
"""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from fedssca.data import Rows
from fedssca.errors import UserError
from fedssca.problem.parts import places_of
from fedssca.rounds.personal import OwnPart, digest_of_point
from fedssca.run.build import Job
from fedssca.run.model.trained import TrainedModel
from fedssca.run.record import RunDirectory

__all__ = ["save_personal", "with_personal"]

FOLDER = "personal"


def save_personal(folder: RunDirectory, job: Job, w: np.ndarray) -> None:
    """Write the personal parts of the simulated clients, as they belong to the returned model."""
    parts = job.problem.personal
    if parts is None or not parts.known:
        return
    assert isinstance(job.clients, Rows)
    point = np.asarray(job.problem.extended(jnp.asarray(w)))
    names = job.clients.names or [str(number) for number in range(job.clients.count)]
    for number, name in enumerate(names):
        final = OwnPart(parts.part(number).at(point))
        final.at(point)
        content = final.content()
        folder.write(f"{FOLDER}/{name}.npz", lambda file, content=content: file.write(content))  # type: ignore[misc]


def with_personal(model: TrainedModel, run: Path, personal: str | Path) -> TrainedModel:
    """The model with the personal parts of one client; without `personal` as training began.

    A UserError says what can be given if it fits nothing.
    """
    names = model.config.model.own_parts
    if not names:
        if personal:
            raise UserError(f"{run} has no personal parts: leave {str(personal)!r} out")
        return model
    told = ", ".join(names)
    if not personal:
        begun = f"that of no client: {told} is as training began; name a client or a file"
        return dataclasses.replace(model, whose=begun)
    file = run / FOLDER / f"{personal}.npz"
    if not file.exists():
        file = Path(personal).expanduser()
    if not file.is_file():
        known = ", ".join(sorted(each.stem for each in (run / FOLDER).glob("*.npz")))
        there = f"its clients are {known}" if known else "its sites keep theirs: give such a file"
        raise UserError(f"{run} has no personal part {str(personal)!r}: {there}")
    places = places_of("model.personal", model.network, names)
    common = np.delete(model.w, places)
    try:
        with np.load(file, allow_pickle=False) as held:
            at = {str(p): part for p, part in zip(held["points"], held["parts"], strict=True)}
        own = at[digest_of_point(common)]
        w = model.w.copy()
        w[places] = own
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{file} is no personal part of the model in {run}: give the file of this run"
        ) from error
    return dataclasses.replace(model, w=w, whose=f"that of {file.stem} ({told})")
