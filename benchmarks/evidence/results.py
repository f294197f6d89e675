"""The pages of docs/results: each is made from its NAME.json, and tables of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedssca.studies.reproduce.cache import fingerprint
from fedssca.studies.reproduce.pages import index_page, panel_page, read_about
from fedssca.studies.reproduce.tuned.limit_pages import limit_page
from fedssca.studies.reproduce.tuned.limit_pages import outcomes_in as limit_outcomes
from fedssca.studies.reproduce.tuned.statements import comparison_page
from fedssca.studies.reproduce.tuned.statements import outcomes_in as tuned_outcomes

__all__ = ["NAME", "old_results", "result_page", "result_tables"]

NAME = "results"
"""The name that marks in pages give to the tables of this module: results.TABLE."""
TUNED = "fedssca.studies.reproduce.tuned.training"
Row = dict[str, Any]
Table = dict[str, Any]


def read_results(folder: Path) -> dict[str, Row]:
    """The content of every NAME.json, by name."""
    found = {path.stem: read_about(folder, path.stem) for path in sorted(folder.glob("*.json"))}
    return {name: about for name, about in found.items() if about}


def result_page(page: Path) -> str | None:
    """What a page of docs/results must be by its NAME.json; None for pages that people write."""
    if page.name == "index.md":
        return index_page([*read_results(page.parent).values()])
    about = read_about(page.parent, page.stem)
    if about is None:
        return None
    if "curves" in about:
        return panel_page(about)
    return (limit_page if page.stem.startswith("tuned-limit") else comparison_page)(about)


def old_results(folder: Path) -> Iterator[tuple[str, str]]:
    """The results that are older than the code that trains, and why."""
    codes = {True: fingerprint(), False: fingerprint(TUNED)}
    for name, about in read_results(folder).items():
        if about["fingerprint"] != codes["curves" in about]:
            yield name, f"made by code {about['fingerprint']}, now {codes['curves' in about]}"


def result_tables(folder: Path) -> dict[str, Table | str]:
    """The tables over all results; a text is a paragraph."""
    found = read_results(folder)
    panels = {name: about for name, about in found.items() if "curves" in about}
    tables: dict[str, Table | str] = {
        "panels": _panels(panels),
        "verdicts": _verdicts(panels),
        "costs": _costs(panels),
        "limits": _limits(panels),
        "seconds": _seconds(panels),
    }
    for name, about in found.items():
        if name.startswith("tuned-limit"):
            tables[name] = _tuned_limit(about)
        elif name.startswith("tuned"):
            tables[name] = _tuned(about)
    for name, about in found.items():
        if "verdict" in about:
            said = [line for line in about["verdict"] if line.startswith("B")]
            tables[f"{name}-words"] = "".join(f"- {line}\n" for line in said)
    for name, about in panels.items():
        for number, said in enumerate(about["verdicts"], 1):
            word = f"**{said['verdict']}**"
            tables[f"{name}-{number}"] = f"{said['statement']} {said['measured']}: {word}.\n"
    return tables


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    return {"columns": list(columns), "rows": [list(row) for row in rows]}


def _panels(panels: Mapping[str, Row]) -> Table:
    def row(name: str, about: Row) -> list[str]:
        counts = sorted({len(curve["ends"]) for curve in about["curves"]}, reverse=True)
        words = [said["verdict"] for said in about["verdicts"]]
        date, runs = about.get("date") or "not recorded", " and ".join(map(str, counts))
        held = f"{words.count('holds')} of {len(words)}"
        if only := words.count("holds only at the printed settings"):
            held += f", {only} only as printed"
        return [f"[{name}]({name}.md)", about["figure"], runs, held, about["fingerprint"], date]

    columns = ("panel", "figure", "runs", "statements that hold", "code", "date")
    return _table(columns, (row(*item) for item in panels.items()))


def _verdicts(panels: Mapping[str, Row]) -> Table:
    rows = [
        [f"[{name}]({name}.md)", said["statement"], said["where"], f"**{said['verdict']}**"]
        for name, about in panels.items()
        for said in about["verdicts"]
    ]
    return _table(("panel", "statement", "where the paper says so", "verdict"), rows)


def _costs(panels: Mapping[str, Row]) -> Table:
    rows = []
    for name, curve in _curves(panels, ("fig1a", "fig1c", "fig2a", "schedules")):
        last = [end["last"] for end in curve["ends"]]
        cost, right = ([row[key] for row in last] for key in ("train_cost", "test_accuracy"))
        runs = str(len(last))
        rows.append([name, curve["label"], spread(cost, ".4f"), spread(right, ".4f"), runs])
    return _table(("panel", "curve", "training cost", "test accuracy", "runs"), rows)


def _limits(panels: Mapping[str, Row]) -> Table:
    rows = []
    for name, curve in _curves(panels, ("fig1e", "fig2c", "schedules_limit")):
        chosen = "last" if curve["of_the_paper"] or "Theorem" in curve["label"] else "returned"
        ends = [end[chosen] for end in curve["ends"]]
        cost, norm = ([row[key] for row in ends] for key in ("train_cost", "norm_sq"))
        kept = sum(row["constraints"][0] <= 0 for row in ends)
        told = [spread(cost, ".4f"), f"{kept} of {len(ends)}", spread(norm, ".1f")]
        rows.append([name, curve["label"], *told])
    return _table(("panel", "curve", "training cost", "limit kept", "|w|²"), rows)


def _seconds(panels: Mapping[str, Row]) -> Table:
    rows = []
    for name, curve in _curves(panels, ("fig1a", "fig1c", "fig1e", "fig2a", "fig2c")):
        spent = [end["last"]["seconds"] for end in curve["ends"]]
        rows.append([name, curve["label"], f"{min(spent):.0f}", f"{max(spent):.0f}"])
    return _table(("panel", "curve", "seconds of the fastest run", "of the slowest"), rows)


def _curves(panels: Mapping[str, Row], names: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """Yield the curves of these panels, those that several panels have once."""
    seen: set[tuple[str, str]] = set()
    for name in names:
        split = name.removesuffix("_limit")[:4]
        for curve in panels.get(name, {"curves": []})["curves"]:
            if (split, curve["label"]) not in seen:
                seen.add((split, curve["label"]))
                yield name, curve


def _tuned(about: Row) -> Table:
    outcomes = tuned_outcomes(about)
    targets = list(dict.fromkeys(o.target for o in outcomes))
    rows = []
    for entry in sorted(dict.fromkeys(o.entry for o in outcomes), key=lambda e: e.load):
        here = {o.target: o for o in outcomes if o.entry == entry}
        cells = [
            spread(here[t].done, ".1f" if here[t].mean < 100 else ".0f") if here[t].sure else "-"
            for t in targets
        ]
        if not entry.same_as:
            rows.append([str(entry.load), entry.name, *cells])
    return _table(("B x E", "method", *(f"{t:.0%}" for t in targets)), rows)


def _tuned_limit(about: Row) -> Table:
    rows = [
        [
            str(o.entry.batch),
            o.entry.method,
            f"{len(o.kept)} of {len(o.seeds)}",
            spread([c for c in o.costs if c is not None], ".4f"),
            spread(o.kept, ".1f"),
        ]
        for o in limit_outcomes(about)
    ]
    return _table(("B", "method", "limit kept", "training cost", "|w|² of the kept"), rows)


def spread(values: Sequence[float], form: str) -> str:
    """Mean and standard deviation of some numbers."""
    if not values:
        return "-"
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return f"{mean:{form}}"
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return f"{mean:{form}} ± {sd:{form}}"
