"""The network of a trained model as a program of PyTorch, and what encodes its inputs as JSON.

    FILE         a program of torch.export: x (rows, features) -> scores (rows, classes), or the
                 predicted numbers (rows, 1) of a regression; of several labels their scores, which
                 a sigmoid turns into probabilities
    FILE.json    features, encoder, classes, digest and versions

`torch.export.load(FILE).module()` gives a module again; it needs PyTorch only.
"""

from __future__ import annotations

import io
import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedssca.errors import UserError
from fedssca.run.export.files import write_file
from fedssca.run.export.layers import layers_of
from fedssca.run.model import TrainedModel
from fedssca.system import pip_install

if TYPE_CHECKING:
    import torch

__all__ = ["export_program", "module_of"]


def export_program(model: TrainedModel, path: Path) -> list[Path]:
    """Write the program and its JSON file; returns their paths."""
    if find_spec("torch") is None:
        raise UserError(f"--torch needs PyTorch: {pip_install('torch')}")
    import torch

    module = module_of(model)
    rows = torch.zeros(2, model.network.features, dtype=getattr(torch, model.network.dtype))
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about its future
        program = torch.export.export(
            module, (rows,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
        )
        torch.export.save(program, stream)
    told = json.dumps(_told(model), indent=2, ensure_ascii=False)
    beside = path.with_name(f"{path.name}.json")
    return [
        write_file(path, stream.getvalue(), "--torch"),
        write_file(beside, told.encode(), "--torch"),
    ]


def module_of(model: TrainedModel) -> torch.nn.Module:
    """The network: x (rows, features), as the encoder gives it -> scores, or numbers (rows, 1)."""
    import torch

    from fedssca.run.export.torch_layers import InUnit, network_module

    module: torch.nn.Module = network_module(layers_of(model), model.network.scale)
    if model.target is not None:
        unit = InUnit(*model.target, counts=model.config.problem.target == "count")
        module = torch.nn.Sequential(module, unit)
    return module.eval()


def _told(model: TrainedModel) -> dict[str, Any]:
    return {
        "features": list(model.features),
        "classes": list(model.classes),
        "encoder": None if model.encoder is None else model.encoder.state(),
        "blocks": [list(block) for block in model.blocks],
        "digest": model.digest,
        "versions": model.versions,
    }
