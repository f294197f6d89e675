"""Tables in pages that come from evidence, between marks:

<!-- evidence: NAME.TABLE -->
| ... |
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence import results
from benchmarks.evidence.record import FOLDER, ROOT, read_record, tables_in, write_record

__all__ = [
    "adopt",
    "differences",
    "marked",
    "pages",
    "render",
    "row_text",
    "table_text",
    "typed_numbers",
    "unmarked",
]

BLOCK = re.compile(r"<!-- evidence: ([\w-]+)\.([\w-]+) -->\n(.*?)<!-- end -->", re.S)
TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
MADE = ("config.md", "commands.md", "results/", "decisions/", "architecture.md")
"""Pages that are made by other programs, or that hold no measurements."""


def pages() -> list[Path]:
    """The README and all pages of the documentation but the one about evidence."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in found if page.parent.name != "evidence")]


def table_text(table: Mapping[str, Any]) -> str:
    """A table as Markdown. Texts stand as they are, numbers as their columns say."""
    titles = table["columns"]
    rows = "".join(f"{row_text(titles, row)}\n" for row in table["rows"])
    return f"{row_text({}, list(titles))}\n{'|---' * len(titles)}|\n{rows}"


def row_text(columns: Mapping[str, str] | Sequence[str], row: Sequence[Any]) -> str:
    """One row as Markdown; a column without a style has three significant digits."""
    styles = list(columns.values()) if isinstance(columns, Mapping) else []
    styles += ["" for _ in range(len(row) - len(styles))]
    cells = map(cell_text, row, styles)
    return f"| {' | '.join(cells)} |"


def cell_text(cell: Any, style: str = "") -> str:
    """One cell as Markdown."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    text = format(cell, style or ".3g") if isinstance(cell, float) else str(cell)
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def marked(text: str) -> list[tuple[str, str]]:
    """(part, table) of all marked blocks in a page."""
    return [(match[1], match[2]) for match in BLOCK.finditer(text)]


def rendered(text: str, folder: Path = FOLDER) -> str:
    """The text of a page with all its marked blocks made from their records."""

    def made(match: re.Match[str]) -> str:
        tables = (read_record(match[1], folder) or {}).get("tables", {})
        if match[1] == results.NAME:
            tables = results.result_tables(ROOT / "docs/results")
        table = tables.get(match[2])
        if table is None:
            raise SystemExit(f"there is no table {match[2]} in {folder / match[1]}.json")
        mark = f"<!-- evidence: {match[1]}.{match[2]} -->"
        told = table if isinstance(table, str) else table_text(table)
        return f"{mark}\n{told}<!-- end -->"

    return BLOCK.sub(made, text)


def render(folder: Path = FOLDER) -> list[Path]:
    """Write the marked blocks of all pages anew; returns the pages that changed."""
    changed = differences(folder)
    for page in changed:
        page.write_text(expected(page, folder), encoding="utf-8")
    return changed


def differences(folder: Path = FOLDER) -> list[Path]:
    """The pages of which a marked block, or all, is not what their records say."""
    return [p for p in pages() if expected(p, folder) != p.read_text(encoding="utf-8")]


def expected(page: Path, folder: Path = FOLDER) -> str:
    """The text that a page must have by its records."""
    made = results.result_page(page) if page.parent.name == results.NAME else None
    return made or rendered(page.read_text(encoding="utf-8"), folder)


def typed_numbers(text: str) -> list[str]:
    """The measured numbers in the prose of a page: decimals, percentages, and spreads.

    Numbers of records between marks are not typed, and numbers in code are settings.
    """
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", BLOCK.sub("", text), flags=re.S)
    return re.findall(r"\d*\.\d+|\d+(?:\.\d+)?\s?%|\d+\s?±", prose)


def unmarked() -> Iterator[tuple[Path, int]]:
    """Pages with tables of numbers that are not from evidence, and how many there are."""
    for page in pages():
        name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
        if name.startswith(MADE):
            continue
        rest = BLOCK.sub("", page.read_text(encoding="utf-8"))
        count = sum(map(has_numbers, tables_in(rest)))
        if count:
            yield page, count


def has_numbers(table: Mapping[str, Any]) -> bool:
    """Whether a third of the cells behind the first column begin with a number: it is measured."""
    found = [cell for row in table["rows"] for cell in row[1:]]
    numbers = [cell for cell in found if re.match(r"[*<>≤≥±+−-]*\s*\.?\d", cell)]
    return bool(found) and 3 * len(numbers) >= len(found)


def adopt(
    page: Path,
    name: str,
    command: str,
    date: str,
    folder: Path = FOLDER,
    labels: Sequence[str] = (),
) -> int:
    """Move the measured tables of a page into a record, and mark their places.

    Nothing is typed again, so nothing can be mistyped; the record says where its numbers are from,
    and counts as old until its command is run.
    """
    text = page.read_text(encoding="utf-8")
    tables: dict[str, Any] = {}

    def mark(match: re.Match[str]) -> str:
        found = tables_in(match[0])
        inside = any(b.start() <= match.start() < b.end() for b in BLOCK.finditer(text))
        if inside or not found or not has_numbers(found[0]):
            return match[0]
        label = labels[len(tables)] if len(tables) < len(labels) else f"table{len(tables) + 1}"
        tables[label] = found[0]
        body = table_text(found[0])
        return f"<!-- evidence: {name}.{label} -->\n{body}<!-- end -->\n"

    changed = TABLE.sub(mark, text)
    if tables:
        where = page.relative_to(ROOT).as_posix()
        record = {"command": command, "date": date, "adopted": where, "tables": tables}
        write_record(name, record, folder)
        page.write_text(changed, encoding="utf-8")
    return len(tables)
