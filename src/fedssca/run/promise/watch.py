"""Watch whether the promise of a run still holds, on fresh rows with labels, as they come.

The test is that of `evaluate.confidence.drift`. All limits share the rate of false alarms: each of
k claims has alpha / k. The state is kept in a file, so that the next call goes on with further
rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.encode.labels import label_sources, rows_with_label
from fedssca.errors import UserError
from fedssca.evaluate.confidence.drift import (
    BetLogs,
    WatchedRows,
    WatchState,
    begin_watch,
    watch_rows,
)
from fedssca.evaluate.confidence.plain import claim_of
from fedssca.evaluate.passes import CHUNK, held_out
from fedssca.run.model import TrainedModel
from fedssca.run.model.evaluation import labelled_rows, problem_again
from fedssca.run.promise.document import Certificate, read_certificate
from fedssca.run.promise.verify import certificate_file, check_run
from fedssca.run.record import RunDirectory

__all__ = ["WATCH", "watch"]

Row = dict[str, Any]
WATCH = "watch.json"
"""The file of the state, in the run directory unless another one is named."""
FORMAT = 1


def watch(run: Path, rows: Path, alpha: float = 0.05, state: Path | None = None) -> Row:
    """Count further rows of a file, in their order, and say of every limit whether it still holds.

    `alpha` is the probability of any false alarm, ever. `state` is the file with what is known of
    the rows so far; it is replaced.
    """
    if not 0 < alpha < 1:
        raise UserError(f"--alpha {alpha:g}: it must lie between 0 and 1, such as 0.05")
    file, folder = certificate_file(run)
    if folder is None:
        raise UserError(f"{run} is no run directory: the model is needed to watch it")
    certificate = read_certificate(file)
    model = check_run(certificate, folder)
    if not certificate.statement["certified"]:
        raise UserError(f"{run} promises nothing (certified is false): there is nothing to watch")
    kept = state or folder / WATCH
    known = _known(kept, certificate, alpha)
    known = _with_rows(known, certificate, model, rows)
    text = json.dumps(known, indent=None) + "\n"
    target = RunDirectory(kept.parent)
    target.write(kept.name, lambda out: out.write(text.encode()))
    return _told(known, certificate) | {"state": str(kept)}


def _known(file: Path, certificate: Certificate, alpha: float) -> Row:
    """What is known of the rows so far; nothing, if there is no file."""
    if not file.exists():
        return {
            "format": FORMAT,
            "certificate": certificate.digest,
            "alpha": alpha,
            "rows": 0,
            "files": [],
            "limits": {},
        }
    try:
        known: Row = json.loads(file.read_text())
        told = known["format"], known["certificate"], known["alpha"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{file} cannot be read ({error}): restore it, or begin anew with another --state"
        ) from None
    if told[:2] != (FORMAT, certificate.digest):
        raise UserError(f"{file} belongs to another certificate: begin anew with another --state")
    if told[2] != alpha:
        raise UserError(
            f"{file} was begun with --alpha {told[2]:g}, which cannot be changed afterwards: give "
            "the same, or begin anew with another --state"
        )
    return known


def _with_rows(known: Row, certificate: Certificate, model: TrainedModel, file: Path) -> Row:
    claims = _claims(certificate)
    table = model.table(file)
    digest = _digest(file)
    if digest in known["files"]:
        raise UserError(f"{file}: these rows were counted already; give further rows")
    columns = _labelled(model, table, str(file))
    seen = _measured(model, columns, claims)
    limits = dict(known["limits"])
    for name, rows in seen.items():
        clip, alpha = _clip(claims[name], model), known["alpha"] / len(claims)
        before = limits.get(name)
        limits[name] = _further(before, claims[name], rows, clip, alpha, known["rows"])
    count = known["rows"] + len(columns["y"])
    return known | {"rows": count, "files": [*known["files"], digest], "limits": limits}


def _claims(certificate: Certificate) -> dict[str, Row]:
    """The claims to watch, by the number of their constraint: one per side of a limit."""
    found: dict[str, Row] = {}
    for claim in certificate.statement["claims"]:
        found.setdefault(str(claim["constraint"]), claim)
    return found


def _digest(file: Path) -> str:
    return hashlib.sha256(file.expanduser().read_bytes()).hexdigest()


def _labelled(model: TrainedModel, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The rows as the model and its limits see them; all of them need labels."""
    if model.apart:
        raise UserError(
            f"{where}: no party has all columns of this model, so none can watch it alone"
        )
    if model.encoder is None:
        raise UserError(f"{where}: the model of this run takes arrays, which cannot be watched")
    if label_sources(model.label, table) is None:
        raise UserError(f"{where}: the label {model.label!r} is missing; watching needs labels")
    if missing := int((~rows_with_label(table, model.label, where)).sum()):
        raise UserError(f"{where}: {missing:,} rows have no label; leave them out")
    y = model.encoder.encode_labels(table, where)
    return labelled_rows(model, table, model.encode(table, where), y)


def _measured(
    model: TrainedModel, columns: Mapping[str, Any], claims: Mapping[str, Row]
) -> dict[str, WatchedRows]:
    """The values of all rows for the means of every claim."""
    with model.own_precision():
        problem = problem_again(model)
        w = problem.extended(jnp.asarray(model.w))
        rows = held_out(columns)
        assert rows is not None
        measure = jax.jit(problem.measure)
        weights: dict[str, Any] = {}
        parts: dict[str, list[Any]] = {name: [] for name in claims}
        for begin in range(0, len(columns["y"]), CHUNK):
            found = measure(w, {name: v[begin : begin + CHUNK] for name, v in rows.items()})
            for name, claim in claims.items():
                means = found[problem.bounds[int(name)].quantity]
                weights[name] = np.array([float(a) for a, _, _ in means])
                size = _clip(claim, model)
                x = [np.clip(np.asarray(top, float) / size, 0, 1) for _, top, _ in means]
                parts[name].append((x, [np.asarray(bottom) > 0 for _, _, bottom in means]))
    return {
        name: WatchedRows(
            weights[name],
            np.concatenate([x for x, _ in own], axis=1),
            np.concatenate([counts for _, counts in own], axis=1),
        )
        for name, own in parts.items()
    }


def _clip(claim: Row, model: TrainedModel) -> float:
    """The value that x = 1 stands for: losses are clipped as they were on calibration rows."""
    return float(model.config.problem.clip) if claim["positive"] else 1.0


def _further(
    known: Row | None, claim: Row, rows: WatchedRows, clip: float, alpha: float, before: int
) -> Row:
    """What is known of a claim after further rows, with `before` rows known already."""
    test = claim_of(claim)
    sums = np.zeros((2, len(rows.weights)))
    state, alarm = begin_watch(test, rows.weights, clip), None
    if known is not None:
        state = WatchState(*(BetLogs(np.array(each), np.asarray(n)) for each, n in known["state"]))
        sums, alarm = np.array([known["sums"], known["counts"]]), known["alarm"]
    state, at = watch_rows(test, clip, state, rows, alpha)
    if alarm is None and at is not None:
        alarm = before + at + 1
    sums += np.stack([(rows.values * rows.counts).sum(axis=1) * clip, rows.counts.sum(axis=1)])
    value = float(rows.weights @ (sums[0] / sums[1])) if sums[1].all() else None
    return {
        "value": value,
        "counts": sums[1].tolist(),
        "rows": int(sums[1].max() if test.whole else sums[1].sum()),
        "sums": sums[0].tolist(),
        "log_capital": float(state.log_capital()),
        "needed": float(-np.log(alpha)),
        "alarm": alarm,
        "state": [[each.logs.tolist(), float(each.rows)] for each in state],
    }


def _told(known: Row, certificate: Certificate) -> Row:
    """What is shown: every limit with its value on the new rows, and the alarm if there is one."""
    limits: list[Row] = []
    for limit in certificate.statement["limits"]:
        own: Sequence[Row] = [known["limits"][str(m)] for m in limit["constraints"]]
        alarms = [each["alarm"] for each in own if each["alarm"] is not None]
        limits.append(
            {
                "title": limit["title"],
                "low": limit["low"],
                "high": limit["high"],
                "value": own[0]["value"],
                "rows": own[0]["rows"],
                "evidence": max(each["log_capital"] / each["needed"] for each in own),
                "alarm": min(alarms, default=None),
            }
        )
    first = min((each["alarm"] for each in limits if each["alarm"] is not None), default=None)
    return {
        "holds": first is None,
        "alarm": first,
        "rows": known["rows"],
        "false_alarm_rate": known["alpha"],
        "limits": limits,
    }
