"""The files of a reproduction: numbers, verdict tables, and an index of all panels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.errors import UserError
from fedssca.run.config import render
from fedssca.run.record import RunDirectory
from fedssca.studies.reproduce import figure
from fedssca.studies.reproduce.experiment import Experiment
from fedssca.studies.reproduce.measure import Line, Measured, lines
from fedssca.studies.reproduce.verdict import (
    DEFINITION,
    SecondCheck,
    Verdict,
    VerdictWord,
    check_all,
)

__all__ = ["Origin", "print_verdicts", "put", "write_index", "write_panel"]

Row = dict[str, Any]
X_NAMES = {"trajectory": "round", "tradeoff": "samples", "sweep": "train_cost", "identity": "round"}


class Origin(NamedTuple):
    """Where the numbers come from."""

    command: str
    seeds: list[int]
    versions: dict[str, str]
    fingerprint: str


DAGGER = (
    "Curves marked † are not in the paper: this library's method with steered multipliers, which "
    "was its default when the figures were drawn."
)


def write_panel(
    out: Path,
    panel: Experiment,
    found: dict[str, Measured],
    origin: Origin,
    tuned_check: SecondCheck | None = None,
) -> Row:
    """Write NAME.csv, .png, .svg, .md and .json of a panel; return the content of NAME.json."""
    shown, verdicts, name = lines(panel, found), check_all(panel, found, tuned_check), panel.name
    png, svg = io.BytesIO(), io.BytesIO()
    figure.draw(panel, shown, found, png, svg)
    about = {
        "name": name,
        "title": panel.title,
        "figure": panel.figure,
        "kind": panel.kind,
        "definition": DEFINITION if any(s.check == "faster" for s in panel.statements) else "",
        "verdicts": [_verdict(v) for v in verdicts],
        **origin._asdict(),
        "curves": [_curve(m) for m in found.values()],
    }
    for ending, content in {
        "csv": _csv(panel, shown).encode(),
        "png": png.getvalue(),
        "svg": svg.getvalue(),
        "md": panel_page(about).encode(),
        "json": (json.dumps(about, indent=1) + "\n").encode(),
    }.items():
        put(out, f"{name}.{ending}", content)
    return about


def _csv(panel: Experiment, shown: Sequence[Line]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["curve", X_NAMES[panel.kind], "mean", "sd", "min", "max", "runs"])
    for line in shown:
        for p in line.points:
            table.writerow([p.curve, *(f"{value:.7g}" for value in p[1:6]), p.runs])
    return text.getvalue()


def _verdict(verdict: Verdict) -> Row:
    statement, finding = verdict.statement, verdict.finding
    return {
        "statement": statement.text,
        "where": statement.where,
        "check": statement.check,
        "verdict": verdict.word,
        "measured": finding.summary,
        "details": list(finding.details),
    }


def _curve(measured: Measured) -> Row:
    """Return the configuration of a curve, and the end of each of its runs."""
    curve = measured.curve
    return {
        "label": curve.label,
        "group": curve.group,
        "of_the_paper": not curve.extra,
        "config": render(curve.config),
        "ends": [
            {"last": run["rows"][-1], "returned": run["returned"], "feasible": run["feasible"]}
            for run in measured.runs
        ],
    }


def panel_page(about: Row) -> str:
    """Return NAME.md: the figure, the verdicts, the measurements and the command."""
    name = about["name"]
    parts = [f"# {name}: {about['title']}", f"![{name}]({name}.png)"]
    if about["figure"]:
        parts.insert(1, f"The paper's {about['figure']}, {_runs(about)}.")
    if about["verdicts"]:
        table = [
            "| Statement | Where the paper says so | Measured | Verdict |",
            "| --- | --- | --- | --- |",
        ]
        for v in about["verdicts"]:
            told = "<br>".join([v["measured"], *v["details"]])
            cells = (v["statement"], v["where"], told, f"**{v['verdict']}**")
            table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(table))
    if about["definition"]:
        parts.append(about["definition"])
    if any(not curve["of_the_paper"] for curve in about["curves"]):
        parts.append(DAGGER)
    parts.append(_origin(about))
    return "\n\n".join(parts) + "\n"


def _origin(about: Row) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"Numbers: [{about['name']}.csv]({about['name']}.csv), "
        f"[{about['name']}.json]({about['name']}.json). Again: `{about['command']}`. "
        f"Code {about['fingerprint']}; {versions}."
    )


def _runs(about: Row) -> str:
    seeds = about["seeds"]
    return f"mean of {len(seeds)} runs, seeds {seeds[0]} to {seeds[-1]}" if seeds[1:] else "one run"


def write_index(out: Path) -> None:
    """Write index.md with every panel whose NAME.json is in the folder."""
    parts = ["# The paper's figures, drawn again", DEFINITION]
    for path in sorted(out.glob("*.json")):
        try:
            about = json.loads(path.read_text())
            name = about["name"]
            section = [f"## [{name}]({name}.md): {about['title']}"]
            if about.get("figure"):
                section.append(f"The paper's {about['figure']}, {_runs(about)}.")
            section.append(f"![{name}]({name}.png)")
            said = [f"{v['statement']} **{v['verdict']}**" for v in about.get("verdicts", ())]
            section.append("\n".join(f"- {line}" for line in (*said, *about.get("verdict", ()))))
            section.append(_origin(about))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # It is another program's file.
        parts += [part for part in section if part]
    put(out, "index.md", ("\n\n".join(parts) + "\n").encode())


def print_verdicts(panels: Sequence[Row], out: Path) -> None:
    """Print the statements, measurements and verdicts of all panels."""
    console = Console(highlight=False)
    colours = {VerdictWord.HOLDS: "green", VerdictWord.FAILS: "red"}
    for about in panels:
        if "verdict" in about:
            console.print(f"[bold]{about['name']}: {escape(about['title'])}[/]")
            for line in about["verdict"]:
                console.print(f"- {escape(line)}", soft_wrap=True)
            console.print()
            continue
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_lines=False, title_justify="left")
        table.title, table.title_style = f"{about['name']}: {escape(about['title'])}", "bold"
        table.add_column("statement", ratio=5, overflow="fold")
        table.add_column("measured", ratio=6, overflow="fold")
        table.add_column("verdict", min_width=8)
        for v in about["verdicts"]:
            word = f"[{colours.get(v['verdict'], 'yellow')}]{v['verdict']}[/]"
            place = f" [dim]({escape(v['where'])})[/]" if v["where"] else ""
            table.add_row(escape(v["statement"]) + place, escape(v["measured"]), word)
        console.print(table)
    if any(about.get("definition") for about in panels):
        console.print(DEFINITION, soft_wrap=True)
    console.print(
        f"figures and numbers are in {escape(str(out))}: start with index.md", soft_wrap=True
    )


def check_folder(out: Path) -> None:
    """Check that the folder can be written to, before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write to {out}: {error.strerror or error}; choose another folder with --out"
        ) from error
    put(out, ".probe", b"")
    (out / ".probe").unlink()


def put(out: Path, name: str, content: bytes) -> None:
    """Write a file of the folder in one step."""
    RunDirectory(out).write(name, lambda file: file.write(content))
