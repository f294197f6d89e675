"""The checkpoint of a run directory: saved in one file, and loaded to continue the run."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.certificate import BestPoints
from fedssca.methods.algorithm import State
from fedssca.run.record import RunDirectory
from fedssca.run.simulate import Checkpoint

__all__ = ["extend_checkpoint", "has_checkpoint", "load_checkpoint", "save_checkpoint"]

FILE = "checkpoint/state.npz"


class ChangedData(UserError):
    """The data of a run are not those that it has been trained on so far."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the data of {path} have changed since its checkpoint: restore them, or go on with "
            f"the new data on purpose: fedssca run --resume {path} --new-data"
        )


UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)


def save_checkpoint(folder: RunDirectory, data_sha256: str, at: Checkpoint) -> None:
    """Replace the checkpoint of a run on data with this digest (`run.data_digest`)."""
    folder.sync_rows()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(at.state)]
    arrays: dict[str, Any] = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
    for name, point in vars(at.points).items():
        if point is not None:
            arrays |= {f"{name}_w": np.asarray(point[0]), f"{name}_row": json.dumps(point[1])}
    arrays |= {"config": folder.config_sha256, "data": data_sha256, "seconds": at.seconds}
    arrays |= {"reached": at.reached, "ended": at.ended}
    folder.write(FILE, lambda file: np.savez(file, **arrays))


def has_checkpoint(folder: RunDirectory) -> bool:
    """Whether the run was saved at some round."""
    return (folder.path / FILE).exists()


def load_checkpoint(folder: RunDirectory, like: State, data_sha256: str) -> Checkpoint | None:
    """Return the last checkpoint of a run, with the structure of `like`; None if there is none.

    A UserError if the run has been on other data than those with this digest; "" is any data.
    """
    if not has_checkpoint(folder):
        return None
    path = folder.path / FILE
    leaves, structure = jax.tree.flatten(like)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
            folder.check_config(*np.atleast_1d(saved["config"]).tolist())
            if data_sha256 and "data" in saved and str(saved["data"]) != data_sha256:
                raise ChangedData(folder.path)
            stored = [saved[f"leaf{i}"] for i in range(len(leaves))]
            more: dict[str, Any] = {"seconds": float(saved["seconds"])}
            if "reached" in saved:
                violation, objective = saved["reached"].tolist()
                more |= {"reached": (violation, objective), "ended": bool(saved["ended"])}
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
    return Checkpoint(state, points, **more)


def extend_checkpoint(folder: RunDirectory, config_sha256: str, ended: bool) -> None:
    """Let the checkpoint, if there is one, serve another configuration too.

    `config_sha256` is that of a run with more rounds. `ended`: the run so far is complete.
    """
    if not has_checkpoint(folder):
        return
    path = folder.path / FILE
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read ({error}): delete it to start the run over"
        ) from error
    folder.check_config(*np.atleast_1d(arrays["config"]).tolist())
    arrays["config"] = np.array([folder.config_sha256, config_sha256])
    arrays |= {"ended": np.array(ended), "reached": arrays.get("reached", np.full(2, np.inf))}
    folder.write(FILE, lambda file: np.savez(file, **arrays))
