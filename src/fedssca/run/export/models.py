"""The model of a run for other programs: ONNX, scikit-learn and PyTorch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

__all__ = ["ModelTargets", "export_model"]


class ModelTargets(NamedTuple):
    """The files that the model of a run is written to."""

    onnx: Path | None = None
    sklearn: Path | None = None
    torch: Path | None = None


def export_model(run: Path, targets: ModelTargets, personal: str = "") -> list[Path]:
    """Write the model of a finished run to these files; returns the paths of all that it wrote.

    Parties with columns have several ONNX files, which are named after the one that is given.
    `personal` says whose personal parts are used, as in `load_model`; a warning repeats it.
    """
    from fedssca.run.export.classifier import export_classifier
    from fedssca.run.export.onnx_files import export_onnx
    from fedssca.run.export.program import export_program
    from fedssca.run.model import load_model

    model = load_model(run, personal)
    for note in model.notes:
        warnings.warn(note, stacklevel=2)
    written: list[Path] = []
    for path, write in (
        (targets.onnx, export_onnx),
        (targets.sklearn, export_classifier),
        (targets.torch, export_program),
    ):
        if path is not None:
            written += write(model, path)
    return written
