"""Is a certificate what it claims to be? All that can be checked with what is at hand."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.problem.problem import Problem
from fedssca.run.model import TrainedModel, load_model
from fedssca.run.model.evaluation import problem_again
from fedssca.run.promise.commit import read_opening
from fedssca.run.promise.document import CERTIFICATE, Certificate, canonical, read_certificate
from fedssca.run.promise.recompute import check_numbers
from fedssca.run.promise.recount import check_openings, recount
from fedssca.run.record import RunDirectory

__all__ = ["Verified", "certificate_file", "check_run", "verify_certificate"]


class Verified(NamedTuple):
    """A certificate in which no fault was found."""

    certificate: Certificate
    checked: list[str]
    skipped: list[str]
    """What could not be checked, and what it would take."""


def certificate_file(path: Path) -> tuple[Path, Path | None]:
    """The file of a certificate, and the run directory in which it is, if it is in one."""
    file = path / CERTIFICATE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise UserError(
            f"{path} has no {CERTIFICATE}: it holds no finished run with a confidence "
            "(problem.confidence)"
        )
    return file, file.parent if (file.parent / "config.toml").is_file() else None


def verify_certificate(path: Path, data: Sequence[Path] = ()) -> Verified:
    """Check everything but the signatures; a UserError at the first fault.

    `path` is a certificate.json or a run directory. `data` are calibration rows with their salts,
    as their holders keep them.
    """
    file, run = certificate_file(path)
    certificate = read_certificate(file)
    statement = certificate.statement
    check_numbers(statement)
    certificate.check_signers()
    checked = ["the digest of the certificate", "every bound follows from its counts"]
    skipped = []
    alone = sum(claim["evidence"] is None for claim in statement["claims"])
    if alone:
        skipped.append(f"{alone} claims whose counts only the site itself knows: its word counts")
    if run is None:
        skipped.append("model and configuration: the certificate is not in a run directory")
        if data:
            raise UserError("--data needs the model: name the run directory of the certificate")
    else:
        model = check_run(certificate, run)
        checked += ["the model", "the configuration", "result.json"]
        shown = check_openings(statement, [read_opening(each) for each in data])
        if shown:
            names = ", ".join(opening.site for opening in shown.values())
            checked.append(f"the commitments of {names}")
            again, claims = recount(statement, model, shown), len(statement["claims"])
            if again:
                checked.append(f"{again} of {claims} claims, counted again from these rows")
            if again < claims:
                skipped.append(
                    f"{claims - again} claims: to count them again takes the rows of all holders"
                )
    if not data:
        skipped.append("the calibration rows: their holders can show them with --data")
    return Verified(certificate, checked, skipped=skipped)


def check_run(certificate: Certificate, run: Path) -> TrainedModel:
    """The model of the run; a UserError if the certificate is about another run or model."""
    statement, folder = certificate.statement, RunDirectory.open(run)
    if folder.config_sha256 != statement["config_sha256"]:
        raise UserError(
            f"{run / 'config.toml'} is not the configuration that the certificate is about: "
            "restore that file"
        )
    model = load_model(run)
    if model.digest != statement["model_sha256"]:
        raise UserError(
            f"{run / 'model'} is not the model that the certificate is about: it was swapped; do "
            "not use it"
        )
    if not np.array_equal(_weights(run / "model.npz"), model.w):
        raise UserError(
            f"{run / 'model.npz'} is not the model that the certificate is about: it was swapped; "
            "do not use it"
        )
    told = (folder.result() or {}).get("certificate", {})
    for name in ("certified", "confidence", "certify", "claims"):
        if name not in told or canonical(told[name]) != canonical(statement[name]):
            raise UserError(
                f"{run / 'result.json'}: certificate.{name} is not what certificate.json says: "
                "one of the two was edited"
            )
    with model.own_precision():
        _check_limits(certificate, problem_again(model))
    return model


def _weights(file: Path) -> np.ndarray:
    """The weights in model.npz; none if it cannot be read."""
    try:
        with np.load(file, allow_pickle=False) as held:
            return np.asarray(held["w"])
    except (OSError, EOFError, LookupError, ValueError, zipfile.BadZipFile, zlib.error):
        return np.zeros(0)


def _check_limits(certificate: Certificate, problem: Problem) -> None:
    """The limits of the certificate are those of the configuration, with their confidence."""
    asked = {
        m: (float(bound.low or 0.0) if bound.high is None else bound.high, bound.confidence)
        for m, bound in enumerate(problem.bounds)
        if bound.confidence is not None and m + 1 not in problem.worst
    }
    claims = certificate.statement["claims"]
    if {claim["constraint"] for claim in claims} != set(asked):
        raise UserError("the certificate is not about all limits that config.toml asks about")
    for claim in claims:
        limit, confidence = asked[claim["constraint"]]
        told = claim["sign"] * claim["limit"], 1 - claim["delta"]
        if not np.allclose(told, (limit, confidence), rtol=1e-6, atol=1e-9):
            raise UserError(
                f"{problem.names[claim['constraint']]}: config.toml asks for {limit:g} with "
                f"confidence {confidence:g}, the certificate is about {told[0]:g} with {told[1]:g}"
            )
