"""Evidence: what was measured, by which command, with which code; one JSON file per part.

docs/evidence/parts.toml lists the parts. docs/evidence/NAME.json has the keys command, date,
seconds, code, versions, machine, seeds and tables; a table is {"columns": [...], "rows": [[...]]}.
Where the cells are numbers, `columns` may be {title: how its numbers are written, such as ".4f"}.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.run.versions import versions
from fedssca.studies.reproduce.cache import fingerprint
from fedssca.system import machine

__all__ = [
    "FOLDER",
    "ROOT",
    "Part",
    "facts_of",
    "measure",
    "read_parts",
    "read_record",
    "tables_in",
    "why_old",
    "write_record",
]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/evidence"
Record = dict[str, Any]
Tables = dict[str, dict[str, Any]]


class Part(NamedTuple):
    """One part of the evidence: a command that prints Markdown tables, or writes a record."""

    name: str
    command: str
    """It runs in the root of the repository. If it names {out}, it writes {"tables": ...} there
    itself; otherwise the Markdown tables that it prints are taken."""
    tables: Sequence[str] = ()
    """The names of the printed tables, in their order."""
    minutes: float = 1.0
    """How long it took on two quiet cores, until it has been measured here."""
    seeds: Sequence[int] = ()
    module: str = "fedssca.cli.commands"
    """Where the measured code begins, if the command runs no script of the repository."""
    files: Sequence[str] = ()
    """Other files of the repository that decide the numbers."""
    keeps: bool = False
    """Whether the command writes its tables into the record itself, row by row."""

    @property
    def scripts(self) -> list[Path]:
        """The programs of the repository that the command runs."""
        words = [ROOT / word for word in shlex.split(self.command) if word.endswith(".py")]
        return [word for word in words if word.is_file()]

    def digest(self) -> str:
        """The digest of the code that decides the numbers: the scripts, and what they import."""
        code = fingerprint(self.module, self.scripts)
        others = b"".join((ROOT / file).read_bytes() for file in self.files)
        return f"{code}-{hashlib.sha256(others).hexdigest()[:8]}" if self.files else code


def read_parts(file: Path = FOLDER / "parts.toml") -> dict[str, Part]:
    """All parts by name."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: Part(name, **keys) for name, keys in found.items()}


def read_record(name: str, folder: Path = FOLDER) -> Record | None:
    """The record of a part; None if it was never measured."""
    file = folder / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def why_old(part: Part, record: Mapping[str, Any] | None) -> str:
    """Why a part has to be measured again; empty if its record is that of the present code."""
    if record is None:
        return "it was never measured"
    if record.get("adopted"):
        return f"it was taken from {record['adopted']}, and its code is not known"
    code = record.get("code")
    if not code:
        return "its record does not say which code was measured"
    if record["command"] != part.command:
        return f"it was measured with another command: {record['command']}"
    return "" if code == part.digest() else f"the code has changed since {record.get('date', '?')}"


def measure(part: Part, folder: Path = FOLDER) -> Record:
    """Run the command of a part and write its record; the record is written when all is done."""
    facts, begun = facts_of(part), time.time()
    own = ROOT / "build/evidence" / f"{part.name}.json"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.unlink(missing_ok=True)
    given = {"{out}": str(own), "DATA": os.environ.get("FEDSSCA_DATA", "")}
    words = [given.get(word, word) for word in shlex.split(part.command)]
    if "" in words:
        raise SystemExit(f"{part.name} needs data: set FEDSSCA_DATA to the folder of the data sets")
    if words[0] in ("python", "fedssca"):
        start = ["-m", "fedssca"] if words[0] == "fedssca" else []
        words = [sys.executable, *start, *words[1:]]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    record: Record = facts | {"seconds": round(time.time() - begun)}
    if part.keeps:  # it knows itself which code measured its rows
        record |= read_record(part.name, folder) or {}
        write_record(part.name, record, folder)
        return record
    written = json.loads(own.read_text(encoding="utf-8")) if own.exists() else {}
    tables = written.pop("tables", None) or named(tables_in(done.stdout), part)
    write_record(part.name, record | written | {"tables": tables}, folder)
    return record


def facts_of(part: Part) -> Record:
    """What a record says of how its numbers are measured: command, date, code, machine."""
    return {
        "command": part.command,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "code": part.digest(),
        "versions": versions(),
        "machine": machine(),
        "seeds": list(part.seeds),
    }


def write_record(name: str, record: Record, folder: Path = FOLDER) -> None:
    """Write a record whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(draft, file)


def named(tables: Sequence[dict[str, Any]], part: Part) -> Tables:
    """The printed tables under the names that the part gives them."""
    if len(tables) != len(part.tables):
        raise SystemExit(
            f"{part.name}: the command printed {len(tables)} Markdown tables, and parts.toml names "
            f"{len(part.tables)}"
        )
    return dict(zip(part.tables, tables, strict=True))


def tables_in(text: str) -> list[dict[str, Any]]:
    """The Markdown tables in a text; cells stay text, as they were printed."""
    found: list[dict[str, Any]] = []
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        if not re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line) or number == 0:
            continue
        rows = []
        for row in lines[number + 1 :]:
            if not row.startswith("|"):
                break
            rows.append(cells(row))
        found.append({"columns": cells(lines[number - 1]), "rows": rows})
    return found


def cells(line: str) -> list[str]:
    """The cells of a row of a Markdown table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
