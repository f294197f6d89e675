"""The files of a reproduction: numbers, verdict tables, and an index of all panels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.errors import UserError
from fedssca.run.config import render
from fedssca.run.record import RunDirectory
from fedssca.studies.reproduce import figure
from fedssca.studies.reproduce.agreement import agreement, carried_on, in_words
from fedssca.studies.reproduce.experiment import Experiment
from fedssca.studies.reproduce.measure import Line, Measured, lines
from fedssca.studies.reproduce.verdict import (
    DEFINITION,
    SecondCheck,
    Verdict,
    VerdictWord,
    check_all,
)

__all__ = [
    "Origin",
    "index_page",
    "origin_line",
    "panel_page",
    "print_verdicts",
    "put",
    "read_about",
    "renew_panel",
    "write_index",
    "write_panel",
]

Row = dict[str, Any]
Draw = Callable[[IO[bytes], IO[bytes]], None]
"""Draws a figure into a PNG file and an SVG file."""
X_NAMES = {
    "trajectory": "round",
    "tradeoff": "samples",
    "sweep": "train_cost",
    "equivalence": "train_cost",
    "identity": "round",
}


class Origin(NamedTuple):
    """Where the numbers come from."""

    command: str
    seeds: list[int]
    versions: dict[str, str]
    fingerprint: str
    date: str = ""
    machine: str = ""


DAGGER = (
    "Curves marked † are not in the paper: this library's method with steered multipliers, which "
    "was its default when the figures were drawn."
)
PLAIN_DAGGER = "Curves marked † are not in the paper."


def write_panel(
    out: Path,
    panel: Experiment,
    found: dict[str, Measured],
    origin: Origin,
    tuned_check: SecondCheck | None = None,
) -> Row:
    """Write NAME.csv, .png, .svg, .md and .json of a panel; return the content of NAME.json."""
    shown, verdicts, name = lines(panel, found), check_all(panel, found, tuned_check), panel.name
    before = read_about(out, name)
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
    if before:
        about |= carried_on(before, found, origin.fingerprint)
    put_files(
        out,
        about,
        csv=_csv(panel, shown),
        draw=lambda png, svg: figure.draw(panel, shown, found, png, svg),
        page=panel_page,
    )
    return about


def renew_panel(out: Path, name: str, found: dict[str, Measured], code: str) -> Row | None:
    """Write NAME.md and NAME.json of a panel anew that lacks runs of the present code.

    Its numbers stay. It says how far those of its runs differ that were `found` with that code.
    Return the content of NAME.json, or None if there is no such file.
    """
    about = read_about(out, name)
    if about is None:
        return None
    if about["fingerprint"] != code and (seen := agreement(about, found, code)):
        about["agreement"] = seen
    put(out, f"{name}.md", panel_page(about).encode())
    put(out, f"{name}.json", (json.dumps(about, indent=1) + "\n").encode())
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
        "seeds": curve.seeds(len(measured.runs)),
        "ends": [
            {"last": run["rows"][-1], "returned": run["returned"], "feasible": run["feasible"]}
            for run in measured.runs
        ],
    }


def panel_page(about: Row) -> str:
    """Return NAME.md: the figure, the verdicts, the measurements and the command."""
    name = about["name"]
    parts = [f"# {name}: {about['title']}", f"![{name}]({name}.png)"]
    parts.insert(1, _shows(about))
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
    if others := {curve["group"] for curve in about["curves"] if not curve["of_the_paper"]}:
        parts.append(DAGGER if "steered method" in others else PLAIN_DAGGER)
    if "agreement" in about:
        parts.append(in_words(about["agreement"]))
    parts.append(_origin(about))
    return "\n\n".join(parts) + "\n"


def _origin(about: Row) -> str:
    """Return where a panel's numbers are, and where they come from."""
    name = about["name"]
    return f"Numbers: [{name}.csv]({name}.csv), [{name}.json]({name}.json). {origin_line(about)}"


def origin_line(about: Row) -> str:
    """Return the command, code, date, machine and versions that NAME.json holds."""
    made = [f"code {about['fingerprint']}", about.get("date"), about.get("machine")]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"Again: `{about['command']}`. Made by {', '.join(filter(None, made))}; {versions}."


def _shows(about: Row) -> str:
    """Return which figure a panel is, and how many runs it shows."""
    said = _runs(about)
    if about["figure"]:
        return f"The paper's {about['figure']}, {said}."
    return f"Not a figure of the paper; {said}."


def _runs(about: Row) -> str:
    """Return how many runs there are, and which curves have fewer."""
    counts = {curve["label"]: len(curve["ends"]) for curve in about["curves"]}
    most = max(counts.values())
    if most == 1:
        return "one run"
    fewer: dict[int, list[str]] = {}
    for label, count in counts.items():
        fewer.setdefault(count, []).append(label)
    del fewer[most]
    said = [f"of {count} for {'; '.join(labels)}" for count, labels in fewer.items()]
    return ", ".join([f"mean of {most} runs, seeds 0 to {most - 1}", *said])


def read_about(out: Path, name: str) -> Row | None:
    """Return the content of NAME.json; None if it is absent or of another program."""
    try:
        about: Row = json.loads((out / f"{name}.json").read_text())
        known = about["name"] == name and "title" in about and "fingerprint" in about
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return about if known else None


def write_index(out: Path) -> None:
    """Write index.md with every panel whose NAME.json is in the folder."""
    found = [read_about(out, path.stem) for path in sorted(out.glob("*.json"))]
    put(out, "index.md", index_page([about for about in found if about]).encode())


def index_page(panels: Sequence[Row]) -> str:
    """Return index.md: every panel with its figure, its verdicts and its origin."""
    parts = ["# The paper's figures, drawn again", DEFINITION]
    for about in panels:
        name = about["name"]
        section = [f"## [{name}]({name}.md): {about['title']}"]
        if "curves" in about:
            section.append(_shows(about))
        section.append(f"![{name}]({name}.png)")
        said = [f"{v['statement']} **{v['verdict']}**" for v in about.get("verdicts", ())]
        section.append("\n".join(f"- {line}" for line in (*said, *about.get("verdict", ()))))
        section.append(_origin(about))
        parts += [part for part in section if part]
    return "\n\n".join(parts) + "\n"


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


def put_files(out: Path, about: Row, *, csv: str, draw: Draw, page: Callable[[Row], str]) -> None:
    """Write NAME.csv, .png, .svg, .md and .json, where `about` is the content of NAME.json."""
    png, svg = io.BytesIO(), io.BytesIO()
    draw(png, svg)
    for ending, content in {
        "csv": csv.encode(),
        "png": png.getvalue(),
        "svg": svg.getvalue(),
        "md": page(about).encode(),
        "json": (json.dumps(about, indent=1) + "\n").encode(),
    }.items():
        put(out, f"{about['name']}.{ending}", content)


def put(out: Path, name: str, content: bytes) -> None:
    """Write a file of the folder in one step."""
    RunDirectory(out).write(name, lambda file: file.write(content))
