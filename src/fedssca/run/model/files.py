"""The files of a saved model: `model/model.json` and `model/weights.npz` in a run directory.

    model.json     network, classes, encoder, configuration, counts for limits, versions, digest
    weights.npz    w, the same vector as in model.npz

The digest is the sha256 of both. It is compared when the model is loaded, so that a model whose
files were damaged, changed or mixed up is not used.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.encode import Encoder, TargetScale
from fedssca.problem.networks import Network
from fedssca.run.model.counted import CountedRows
from fedssca.run.model.personal import with_personal
from fedssca.run.model.trained import TrainedModel
from fedssca.run.record import RunDirectory
from fedssca.run.saved import FORMAT, MODEL_FILES, digest_of_files, read_saved

__all__ = ["digest_of", "load_model", "save_model"]


def save_model(folder: RunDirectory, model: TrainedModel) -> str:
    """Write the files of a model into its run directory; returns their digest."""
    weights, state = _weights(model), _state(model)
    digest = digest_of_files(state, weights)
    text = json.dumps(state | {"digest": digest}, indent=2, ensure_ascii=False)
    for name, content in zip(MODEL_FILES, (weights, text.encode()), strict=True):
        folder.write(name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    return digest


def digest_of(model: TrainedModel) -> str:
    """The digest that the files of a model would have."""
    return digest_of_files(_state(model), _weights(model))


def _weights(model: TrainedModel) -> bytes:
    stream = BytesIO()
    np.savez(stream, w=model.w)
    return stream.getvalue()


def load_model(run: str | Path, personal: str | Path = "") -> TrainedModel:
    """Load the trained model of a finished run, simulated or deployed, from its run directory.

    If clients have parts of the network of their own (`model.personal`), `personal` says whose are
    used: the name or number of a client of a simulated run, or the file that a site has kept.

    >>> model = load_model("runs/first")                        # doctest: +SKIP
    >>> model.predict("new.csv"), model.predict_proba(frame)    # doctest: +SKIP
    """
    folder = Path(run).expanduser()
    return with_personal(read_saved(folder, _model), folder, personal)


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
    if model.target is not None:
        held["target"] = model.target._asdict()
    plain: dict[str, Any] = json.loads(json.dumps(held))
    return plain


def _model(state: dict[str, Any], w: np.ndarray, digest: str) -> TrainedModel:
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
        digest,
        target=TargetScale(**state["target"]) if "target" in state else None,
    )
