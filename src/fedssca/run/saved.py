"""The saved model of a run directory in plain values, checked: whole, unchanged, of this format."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedssca.errors import UserError
from fedssca.run.record import RunDirectory

__all__ = ["FORMAT", "MODEL_FILES", "digest_of_files", "read_saved"]

MODEL_FILES = ("model/weights.npz", "model/model.json")
"""The files in the order in which they are written."""
FORMAT = 1
_DAMAGED = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
Made = TypeVar("Made")


def read_saved(path: Path, make: Callable[[dict[str, Any], np.ndarray, str], Made]) -> Made:
    """make(state, w, digest) of the model that a finished run has saved; else a UserError."""
    if RunDirectory.open(path).result() is None:
        raise UserError(
            f"{path} holds no finished run, so no model yet: wait for it, or continue it with "
            f"fedssca run --resume {path}"
        )
    if not (path / "model").is_dir():
        raise UserError(
            f"{path} has no folder model/: it was written by an earlier version of fedssca; "
            "run it again"
        )
    try:
        weights, text = ((path / name).read_bytes() for name in MODEL_FILES)
        state = json.loads(text)
        told = state.pop("digest")
        if state["format"] != FORMAT:
            raise UserError(
                f"{path / 'model'} has format {state['format']}, this version of fedssca reads "
                f"{FORMAT}: use the version that wrote it, {state['versions']['fedssca']}"
            )
        if told != digest_of_files(state, weights):
            raise ValueError("its digest is another")
        with np.load(BytesIO(weights), allow_pickle=False) as held:
            w = np.asarray(held["w"])
        return make(state, w, told)
    except UserError:
        raise
    except _DAMAGED as error:
        raise UserError(
            f"{path / 'model'} is damaged or was changed ({error}): restore that folder from a "
            "copy, or run again"
        ) from None


def digest_of_files(state: dict[str, Any], weights: bytes) -> str:
    """The sha256 of both files of a model."""
    plain = json.dumps(state, sort_keys=True).encode()
    return hashlib.sha256(plain + hashlib.sha256(weights).digest()).hexdigest()
