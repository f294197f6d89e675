"""The files of a saved model: `model/model.json` and `model/weights.npz` in a run directory.

    model.json     network, classes, encoder, configuration, counts for limits, versions, digest
    weights.npz    w, the same vector as in model.npz

The digest is the sha256 of both. It is compared when the model is loaded, so that a model whose
files were damaged, changed or mixed up is not used.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.encode import Encoder
from fedssca.errors import UserError
from fedssca.problem.networks import Network
from fedssca.run.model.counted import CountedRows
from fedssca.run.model.trained import TrainedModel
from fedssca.run.record import RunDirectory

__all__ = ["MODEL_FILES", "digest_of", "load_model", "save_model"]

MODEL_FILES = ("model/weights.npz", "model/model.json")
"""The files in the order in which they are written."""
FORMAT = 1
_DAMAGED = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


def save_model(folder: RunDirectory, model: TrainedModel) -> str:
    """Write the files of a model into its run directory; returns their digest."""
    weights, state = _weights(model), _state(model)
    digest = _digest(state, weights)
    text = json.dumps(state | {"digest": digest}, indent=2, ensure_ascii=False)
    for name, content in zip(MODEL_FILES, (weights, text.encode()), strict=True):
        folder.write(name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    return digest


def digest_of(model: TrainedModel) -> str:
    """The digest that the files of a model would have."""
    return _digest(_state(model), _weights(model))


def _weights(model: TrainedModel) -> bytes:
    stream = BytesIO()
    np.savez(stream, w=model.w)
    return stream.getvalue()


def load_model(run: str | Path) -> TrainedModel:
    """Load the trained model of a finished run, simulated or deployed, from its run directory.

    >>> model = load_model("runs/first")                        # doctest: +SKIP
    >>> model.predict("new.csv"), model.predict_proba(frame)    # doctest: +SKIP
    """
    path = Path(run).expanduser()
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
        if told != _digest(state, weights):
            raise ValueError("its digest is another")
        return replace(_model(state, weights), digest=told)
    except UserError:
        raise
    except _DAMAGED as error:
        raise UserError(
            f"{path / 'model'} is damaged or was changed ({error}): restore that folder from a "
            "copy, or run again"
        ) from None


def _state(model: TrainedModel) -> dict[str, Any]:
    held = {
        "format": FORMAT,
        "versions": model.versions,
        "network": model.network._asdict(),
        "classes": list(model.classes),
        "features": list(model.features),
        "encoder": None if model.encoder is None else model.encoder.state(),
        "config": model.settings,
        "counted": model.counted.state(),
        "kinds": model.kinds,
        "positive": model.positive,
        "blocks": model.blocks,
        "apart": model.apart,
    }
    plain: dict[str, Any] = json.loads(json.dumps(held))
    return plain


def _model(state: dict[str, Any], weights: bytes) -> TrainedModel:
    with np.load(BytesIO(weights), allow_pickle=False) as held:
        w = np.asarray(held["w"])
    return TrainedModel(
        Network(**state["network"]),
        w,
        tuple(state["classes"]),
        tuple(state["features"]),
        None if state["encoder"] is None else Encoder.from_state(state["encoder"]),
        state["config"],
        CountedRows.from_state(state["counted"]),
        {name: tuple(kinds) for name, kinds in state["kinds"].items()},
        state["positive"],
        tuple(tuple(block) for block in state["blocks"]),
        state["apart"],
        state["versions"],
    )


def _digest(state: dict[str, Any], weights: bytes) -> str:
    plain = json.dumps(state, sort_keys=True).encode()
    return hashlib.sha256(plain + hashlib.sha256(weights).digest()).hexdigest()
