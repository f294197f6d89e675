"""The checkpoint of a run directory: saved in one file, and loaded to continue the run."""

from __future__ import annotations

import json
import zipfile
import zlib
from typing import Any

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.certificate import BestPoints
from fedssca.methods.algorithm import State
from fedssca.run.record import RunDirectory
from fedssca.run.simulate import Checkpoint

__all__ = ["load_checkpoint", "save_checkpoint"]

FILE = "checkpoint/state.npz"
UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)


def save_checkpoint(folder: RunDirectory, at: Checkpoint) -> None:
    """Replace the checkpoint of a run."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(at.state)]
    arrays: dict[str, Any] = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
    for name, point in vars(at.points).items():
        if point is not None:
            arrays |= {f"{name}_w": np.asarray(point[0]), f"{name}_row": json.dumps(point[1])}
    arrays |= {"config": folder.config_sha256, "seconds": at.seconds}
    folder.write(FILE, lambda file: np.savez(file, **arrays))


def load_checkpoint(folder: RunDirectory, like: State) -> Checkpoint | None:
    """Return the last checkpoint of a run, with the structure of `like`; None if there is none."""
    path = folder.path / FILE
    if not path.exists():
        return None
    leaves, structure = jax.tree.flatten(like)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
            folder.check_config(str(saved["config"]))
            stored = [saved[f"leaf{i}"] for i in range(len(leaves))]
            seconds = float(saved["seconds"])
            points = BestPoints(
                **{
                    name: (
                        jax.numpy.asarray(saved[f"{name}_w"]),
                        json.loads(str(saved[f"{name}_row"])),
                    )
                    for name in ("best", "last", "least")
                    if f"{name}_w" in saved
                }
            )
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read ({error}): delete it to start the run over"
        ) from error
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(stored, leaves, strict=True)):
        raise UserError(f"{path} does not fit this problem: start a new run with --out")
    state = jax.tree.unflatten(structure, [jax.numpy.asarray(leaf) for leaf in stored])
    return Checkpoint(state, points, seconds)
