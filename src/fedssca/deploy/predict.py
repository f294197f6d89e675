"""Predictions with the model of a deployed run, for rows in a file of one's own."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from fedssca.data.encode import Encoder, is_text
from fedssca.data.load import read_rows
from fedssca.data.tables import read_table
from fedssca.deploy.census import Census, blank
from fedssca.errors import UserError
from fedssca.run.build import model_of, plan
from fedssca.run.config import parse
from fedssca.run.record import RunDirectory

__all__ = ["predict_file", "write_predictions"]


def predict_file(run: Path, file: Path) -> dict[str, Any]:
    """The labels, and the scores of the rows in a CSV or Parquet file, encoded as at the sites."""
    folder = RunDirectory.open(run)
    if folder.result() is None or not (run / "census.json").is_file():
        raise UserError(f"{run} holds no complete deployed run: wait for it, or resume it")
    census = Census(**json.loads((run / "census.json").read_text()))
    if census.columns:
        raise UserError(
            f"{run}: no party has all columns of this model; predict jointly: leave out the file"
        )
    config = parse(folder.config)
    x = _features(file, census)
    with jax.enable_x64(config.run.precision == "float64"):
        job = plan(config, *blank(census, config))
        w0, w1 = job.problem.unravel(np.load(run / "model.npz")["w"])
        model = model_of(config, job.dataset)
        scores = np.asarray(model.top(w0, model.local(w1, x)))
    return {"labels": census.labels, "scores": scores.tolist()}


def _features(file: Path, census: Census) -> np.ndarray:
    """The matrix x of the rows in a file, encoded as the training rows were."""
    if census.encoder is not None:
        encoder = Encoder.from_state(census.encoder)
        return encoder.encode(read_rows(file, encoder), str(file))
    table = read_table(file)
    for name in census.features:
        if name not in table or is_text(table[name]):
            raise UserError(f"{file} has no column {name!r} of numbers, which the model needs")
    return np.stack([table[name] for name in census.features], axis=1).astype(np.float32)


def write_predictions(answer: dict[str, Any], stream: IO[str]) -> None:
    """Write one line per row: the predicted label, and the probability of every label."""
    labels: Sequence[Any] = answer["labels"]
    scores = np.asarray(answer["scores"], float)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances = odds / odds.sum(axis=1, keepdims=True)
    writer = csv.writer(stream)
    writer.writerow(["prediction", *(f"p[{label}]" for label in labels)])
    for row in chances:
        writer.writerow([labels[int(row.argmax())], *(f"{chance:.6g}" for chance in row)])
