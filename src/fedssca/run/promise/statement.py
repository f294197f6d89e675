"""From the result of a run to the statement of its certificate.

A statement says which model and configuration it is about, what was asked and what is promised for
new rows, with the counts of calibration rows from which this follows, and which rows these were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedssca.data import Columns, Rows
from fedssca.evaluate.confidence import Calibration
from fedssca.run.promise.commit import Opening, new_salt, write_opening
from fedssca.run.promise.document import CERTIFICATE, FORMAT, Certificate
from fedssca.run.record import RunDirectory

__all__ = ["openings_of", "save_certificate", "save_openings", "statement_of"]

Row = dict[str, Any]
OPENINGS = "calibration"
"""The folder of a simulated run with the calibration rows and salts of its clients."""
ASSUMED = (
    "New rows are independent draws from the population of the calibration rows. If the "
    "population changes, nothing is promised."
)
KEPT = ("name", "title", "low", "high", "value", "test_value", "promise", "constraints")
"""What a statement says of a limit."""


def statement_of(
    folder: RunDirectory,
    result: Row,
    model: str,
    clients: Rows | Columns,
    commitments: Sequence[Mapping[str, Any]],
    signers: Sequence[str] = (),
) -> Row:
    """The statement of a finished run.

    `result` is the content of result.json, `model` the digest of the files of the model, and
    `commitments` are what each holder of calibration rows commits itself to. `signers` are the
    sites that must sign the statement; in a simulated run there are none.
    """
    certificate = result["certificate"]
    limits = [
        {name: limit[name] for name in KEPT if name in limit}
        for limit in certificate["limits"]
        if "promise" in limit
    ]
    return {
        "format": FORMAT,
        "model_sha256": model,
        "config_sha256": folder.config_sha256,
        "certified": certificate["certified"],
        "confidence": certificate["confidence"],
        "certify": certificate["certify"],
        "models_tested": certificate["models_tested"],
        "limits": limits,
        "claims": certificate["claims"],
        "training_rows": list(clients.sizes if isinstance(clients, Rows) else [clients.total]),
        "commitments": [dict(each) for each in commitments],
        "signers": list(signers),
        "assumed": ASSUMED,
        "versions": result["versions"],
    }


def save_certificate(
    folder: RunDirectory, statement: Row, signatures: Mapping[str, str] | None = None
) -> None:
    """Write certificate.json into a run directory."""
    certificate = Certificate(statement, dict(signatures or {}))
    folder.write(CERTIFICATE, lambda file: file.write(certificate.text().encode()))


def openings_of(clients: Rows | Columns, given: Calibration) -> list[Opening]:
    """What each client holds of the calibration rows, with a fresh salt."""
    rows = {name: values for name, values in given.rows.items() if name != "client"}
    if isinstance(clients, Columns):
        whole = Columns(rows, clients.blocks, clients.label_holder, clients.collection)
        held = [whole.client(i) for i in range(whole.count)]
    else:
        owner = given.rows["client"]
        held = [{name: v[owner == i] for name, v in rows.items()} for i in range(clients.count)]
    names = (isinstance(clients, Rows) and clients.names) or [
        f"client {i}" for i in range(len(held))
    ]
    return [Opening(name, new_salt(), own) for name, own in zip(names, held, strict=True)]


def save_openings(folder: RunDirectory, openings: Sequence[Opening]) -> None:
    """Keep rows and salts of a simulated run, in which one person holds the rows of all clients."""
    for number, opening in enumerate(openings):
        write_opening(folder, f"{OPENINGS}/{number}.npz", opening)
