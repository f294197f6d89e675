"""The model card of a run: what an auditor reads of a model that others have trained.

The same sections are written as HTML, in one file that loads nothing, or as Markdown.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.verdicts import promise_words, stated_entries
from fedssca.problem.limits import limit_words
from fedssca.problem.task_kinds import main_metric
from fedssca.report.page import content_policy, style
from fedssca.run.config import Config
from fedssca.run.execute import load_config
from fedssca.run.model import TrainedModel, load_model
from fedssca.run.promise import CERTIFICATE, Certificate
from fedssca.run.promise.verify import verify_certificate
from fedssca.run.record import RunDirectory

__all__ = ["card_page"]

Row = dict[str, Any]
NOT_PROMISED = (
    "New rows are assumed to be independent draws from the population of the calibration rows. If "
    "the population changes, the promise ends: fedssca certificate watch tells when it does.",
    "The statement is true with the confidence that it names, not with certainty.",
    "Nothing is promised for groups, sites or quantities that are not named above. A limit for the "
    "rows of all sites together says nothing about a single site.",
    "Limits that were not certified are known on training and held-out rows only.",
    "The model may be wrong about single rows, and for uses other than its purpose.",
)
STYLE = """
#page { max-width: 900px; padding-top: 24px; }
h2 { margin: 26px 0 8px; }
p, ul { margin: 6px 0; }
td, th { white-space: normal; }
code { overflow-wrap: anywhere; }
"""


class Section(NamedTuple):
    """One part of a card; the first line of the table holds its headings."""

    title: str
    text: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    points: Sequence[str] = ()


def card_page(run: Path, markdown: bool = False) -> str:
    """The model card of a finished run, as HTML or as Markdown."""
    result = RunDirectory.open(run).result()
    if result is None:
        raise UserError(f"{run} holds no finished run, so there is no card of its model yet")
    model, config = load_model(run), load_config(run)
    certificate = verify_certificate(run).certificate if (run / CERTIFICATE).exists() else None
    sections = [
        _purpose(config, model),
        _limits(result),
        _data(result, model, certificate),
        _sites(result, certificate),
        _price(result),
        _privacy(result, config),
        Section("What is not promised", points=NOT_PROMISED),
        _check(model, certificate, result),
    ]
    title = f"Model card: {run.resolve().name}"
    return _markdown(title, sections) if markdown else _html(title, sections)


def _purpose(config: Config, model: TrainedModel) -> Section:
    said = config.run.purpose.strip() or (
        "The people who trained this model state no purpose (run.purpose)."
    )
    what = (
        f"A {config.model.name} model with {model.w.size:,} parameters and "
        f"{len(model.features):,} inputs that {_answer(model)}."
    )
    return Section("Purpose", [said, what])


def _answer(model: TrainedModel) -> str:
    """What the model predicts, in words."""
    if model.target is not None:
        return f"predicts the number {model.label!r}"
    names = f"{', '.join(map(str, model.classes[:12]))}{', ...' if len(model.classes) > 12 else ''}"
    if not model.exclusive:
        return f"says which of {len(model.classes)} labels a row has: {names}"
    return f"names one of {len(model.classes)} classes: {names}"


def _limits(result: Row) -> Section:
    certificate = result["certificate"]
    entries = stated_entries(certificate)
    if not entries:
        return Section("Limits", ["No limits were asked for."])
    if "certified" not in certificate:
        said = "No confidence was asked for: nothing is promised for new rows."
    else:
        level = f"{100 * certificate['confidence']:g} %"
        every = " of every site" if certificate["certify"] == "each_site" else ""
        said = (
            f"✓ Certified: with {level} confidence all limits below hold on new rows{every}."
            if certificate["certified"]
            else f"✗ Not certified: the limits could not be shown to hold on new rows{every} with "
            f"{level} confidence. The bounds below are those of each limit taken alone."
        )
    sides = certificate["constraints"]
    lines = [
        (
            entry["title"],
            limit_words(entry["low"], entry["high"]),
            _number(entry["value"]),
            _number(entry.get("test_value")),
            promise_words(entry) or "-",
            _whole([sides[m].get("calibration_rows") for m in entry.get("constraints", [])]),
        )
        for entry in entries
    ]
    heads = ("limit", "asked", "training rows", "held-out rows", "new rows", "calibration rows")
    return Section("Limits asked and promised", [said], [heads, *lines])


def _data(result: Row, model: TrainedModel, certificate: Certificate | None) -> Section:
    counted = model.counted
    clients = len(counted.sizes) if not model.blocks else len(model.blocks)
    held = "columns" if model.blocks else "rows"
    said = [f"{sum(counted.sizes):,} training rows; {clients} clients hold different {held}."]
    if certificate is not None:
        rows = [each["rows"] for each in certificate.statement["commitments"]]
        aside = rows[0] if model.blocks else sum(rows)
        said.append(f"{aside:,} calibration rows, which took no part in training.")
    lines = [("class or group", "training rows")]
    if "y" in counted.columns and len(set(counted.columns["y"])) > 1:
        holds, y = model.task.decisions.holds, np.array(counted.columns["y"], int)
        for place, name in enumerate(model.classes):
            own = np.asarray(holds(y, place))  # type: ignore[arg-type]
            count = int(np.array(counted.counts)[own].sum())
            if count or model.exclusive:  # labels that no limit names are not counted
                lines.append((str(name), f"{count:,}"))
    lines += [
        (f"{each['column']}: {each['group']}", f"{each['rows']:,}")
        for each in result.get("per_group", [])
    ]
    return Section("Data", said, lines if len(lines) > 1 else ())


def _sites(result: Row, certificate: Certificate | None) -> Section:
    found = result.get("per_client", [])
    held = certificate.statement["commitments"] if certificate else []
    if not found:
        why = result.get("per_client_hidden") or "the sites hold columns of the same rows"
        rows = [(str(each["site"]), f"{each['rows']:,}") for each in held]
        table = [("site", "calibration rows"), *rows] if rows else ()
        return Section("Sites", [f"Results of single sites are not shown: {why}."], table)
    names = [str(each.get("name", f"client {i}")) for i, each in enumerate(found)]
    entries = [e for e in stated_entries(result["certificate"]) if "name" in e]
    measured, metric, _ = main_metric(found[0]["train"], "")
    heads = ("site", "training rows", "calibration rows", "loss", metric.words)
    own = [entry for entry in entries if entry["name"] in found[0]["train"]]
    own = [entry for entry in own if entry["name"] not in ("cost", measured)][:6]
    lines: list[tuple[str, ...]] = []
    for i, (name, each) in enumerate(zip(names, found, strict=True)):
        aside = f"{held[i]['rows']:,}" if len(held) == len(found) else "-"
        figures = [each["train"].get(key) for key in ("cost", measured)]
        figures += [each["train"].get(entry["name"]) for entry in own]
        lines.append((name, f"{each['rows']:,}", aside, *map(_number, figures)))
    said = ["Values are those on the training rows of each site."]
    return Section("Sites", said, [(*heads, *(entry["title"] for entry in own)), *lines])


def _price(result: Row) -> Section:
    entries = [e for e in stated_entries(result["certificate"]) if e["multiplier"] is not None]
    _, metric, value = main_metric(result)
    said = [
        f"Objective {result['objective']:.4g}"
        + ("" if value is None else f", {metric.words} on held-out rows {metric.shown(value)}")
        + ". The price of a limit is how much the objective would fall if it were relaxed by 0.01."
    ]
    lines = [(e["title"], _number(e.get("relaxing_by_0.01_buys"))) for e in entries]
    return Section(
        "Price of the limits", said, [("limit", "price of 0.01"), *lines] if lines else ()
    )


def _privacy(result: Row, config: Config) -> Section:
    if (epsilon := result.get("epsilon")) is not None:
        said = f"Differential privacy: epsilon {epsilon:.3g} at delta {result['delta']:.1g}."
    else:
        said = "No noise was added: no bound is known on what the model tells about single rows."
    hidden = (
        "The messages of the sites were added up under encryption or masks; the server saw sums."
        if config.privacy.secure_sum
        else "The server saw the messages of every site; the rows stayed where they were."
    )
    return Section("Privacy", [said, hidden])


def _check(model: TrainedModel, certificate: Certificate | None, result: Row) -> Section:
    lines = [("what", "value"), ("model, sha256", model.digest)]
    lines.append(("configuration, sha256", str(result["config_sha256"])))
    if certificate is not None:
        lines.append(("certificate, sha256", certificate.digest))
        signers = f"{', '.join(certificate.signers)} (checked with --kit)"
        lines.append(
            ("signed by", signers if certificate.signers else "nobody: the run was simulated")
        )
    lines += [(name, str(version)) for name, version in result["versions"].items()]
    return Section("How to check", ["Run: fedssca certificate verify RUN [--kit KIT]"], lines)


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"


def _whole(values: Sequence[Any]) -> str:
    """The rows that the sides of a limit rest on: both sides rest on the same."""
    known = [value for value in values if value is not None]
    return f"{max(known):,}" if known else "-"


def _html(title: str, sections: Sequence[Section]) -> str:
    looks = style() + STYLE
    body = [f"<h1>{html.escape(title)}</h1>"]
    for section in sections:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        body += [f"<p{_tone(line)}>{html.escape(line)}</p>" for line in section.text]
        if section.points:
            points = "".join(f"<li>{html.escape(line)}</li>" for line in section.points)
            body.append(f"<ul>{points}</ul>")
        if section.table:
            head, *lines = section.table
            heads = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
            rows = "".join(
                f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>"
                for line in lines
            )
            body.append(f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
    inner = "\n".join(body)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{content_policy(looks)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{looks}</style>
</head>
<body>
<main id="page">
{inner}
</main>
</body>
</html>
"""


def _tone(line: str) -> str:
    kinds = {"✓": "good", "✗": "bad"}
    return f' class="{kinds[line[0]]}"' if line[:1] in kinds else ""


def _markdown(title: str, sections: Sequence[Section]) -> str:
    lines = [f"# {_safe(title)}", ""]
    for section in sections:
        lines += [f"## {_safe(section.title)}", ""]
        for text in section.text:
            lines += [_safe(text), ""]
        lines += [f"- {_safe(point)}" for point in section.points]
        if section.table:
            head, *rows = section.table
            lines += [f"| {' | '.join(map(_safe, head))} |", f"|{' --- |' * len(head)}"]
            lines += [f"| {' | '.join(map(_safe, row))} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _safe(text: str) -> str:
    """The text without characters that Markdown would take for its own."""
    for mark in "\\`*_<>[]|#":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
