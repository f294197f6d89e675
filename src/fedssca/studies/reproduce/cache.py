"""Finished runs on disk: one file per run, tied to the version of the code that computed it."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedssca.errors import UserError
from fedssca.run.config import Config, render
from fedssca.system import machine

__all__ = ["Cache", "fingerprint", "run_key"]

Row = dict[str, Any]
ROOT = "fedssca.studies.reproduce.runs"
"""The module that trains: what it imports decides the numbers."""
PACKAGE = Path(__file__).parents[2]
WITHOUT_NUMBERS = (
    "fedssca.errors",
    "fedssca.system",
    "fedssca.data.fetch",
    "fedssca.run.curves",
    "fedssca.run.export",
    "fedssca.run.record",
    "fedssca.run.rows",
    "fedssca.run.show",
)
"""Imported modules that only download, store, show or export: a change there keeps the cache."""


def run_key(task: str, config: Config, evaluate_at: Sequence[int], data: str) -> str:
    """Return a digest of a run: its configuration, the evaluated rounds, the digest of the data."""
    placeless = replace(config, data=replace(config.data, dir="", path=""))
    text = f"{task}\n{render(placeless)}\n{list(evaluate_at)}\n{data}\n"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def fingerprint(root: str = ROOT, scripts: Sequence[Path] = ()) -> str:
    """Return a digest of the code that decides the numbers, and of the versions of libraries.

    The code is what the module `root` imports, directly or indirectly, or else the `scripts` and
    what they import. Comments, layout, docstrings and the words of errors do not count.
    """
    digest = hashlib.sha256()
    for name in ("jax", "jaxlib", "numpy"):
        digest.update(f"{name} {version(name)}\n".encode())
    trees = {script.name: ast.parse(script.read_text()) for script in scripts}
    needed = [name for tree in trees.values() for name in _imports(tree)] if scripts else [root]
    for module, tree in sorted((_imported(needed) | trees).items()):
        digest.update(f"{module}\n{ast.dump(_bare(tree))}\n".encode())
    return digest.hexdigest()[:12]


def _imported(roots: Sequence[str]) -> dict[str, ast.Module]:
    """Return the syntax trees of the modules of this package that are `roots` or imported there."""
    found: dict[str, ast.Module] = {}
    ahead = list(roots)
    while ahead:
        name = ahead.pop()
        path = PACKAGE.joinpath(*name.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or name in WITHOUT_NUMBERS or not file.is_file():
            continue
        found[name] = ast.parse(file.read_text())
        package = name.rpartition(".")[0]  # Importing a module runs its packages, too.
        ahead += [package] * package.startswith("fedssca.") + _imports(found[name])
    return found


def _imports(tree: ast.Module) -> list[str]:
    """Return the names in this package that a module imports; some may be no modules."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith("fedssca.")]


def _bare(tree: ast.Module) -> ast.Module:
    """Remove docstrings and what raised errors say from a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                line
                for line in body
                if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            ]
    return tree


class Cache:
    """A folder with one file <key>-<fingerprint>.json per run, with its date and machine."""

    def __init__(self, folder: Path, code: str) -> None:
        self.folder, self.code = folder, code
        self._machine = machine()  # Worker processes, which get this cache, may use fewer cores.
        self._made: dict[str, Row] = {}

    def create(self) -> None:
        """Make the folder and check that it can be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(
                f"cannot write to {self.folder}: {error.strerror or error}; "
                "choose another folder with --out or --cache"
            ) from error

    def get(self, key: str) -> Row | None:
        """Return a run, or None if it is absent, damaged or of another version of the code."""
        try:
            stored = json.loads(self._file(key).read_text())
            run: Row = stored["run"]
            whole = stored["sha256"] == _digest(run) and stored["key"] == key
            self._made[key] = stored["about"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return run if whole else None

    def put(self, key: str, run: Row, about: Row) -> None:
        """Store a run in one step; `about` describes it for people who open the file."""
        file = self._file(key)
        made = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": self._machine}
        draft = file.with_name(f".{file.name}.{os.getpid()}.part")
        text = json.dumps({"key": key, "sha256": _digest(run), "about": about | made, "run": run})
        try:
            with open(draft, "w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, file)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.folder}: {error.strerror or error}; free space or choose "
                "another folder with --cache; finished runs are kept"
            ) from error
        finally:
            with suppress(OSError):
                draft.unlink()

    def made(self, keys: Iterable[str] | None = None) -> tuple[str, str]:
        """Return the dates and machines of runs that were read: of these keys, or of all."""
        read = self._made.values() if keys is None else [self._made[key] for key in keys]
        dates = sorted({about["date"] for about in read if "date" in about})
        machines = sorted({about["machine"] for about in read if "machine" in about})
        return " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])), " and ".join(machines)

    def outdated(self, keys: Iterable[str]) -> int:
        """Return how many of the runs exist only for another version of the code."""
        there: dict[str, set[str]] = {}
        for path in self.folder.glob("*-*.json"):
            key, _, code = path.stem.partition("-")
            there.setdefault(key, set()).add(code)
        return sum(bool(there.get(key)) and self.code not in there[key] for key in set(keys))

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}-{self.code}.json"


def _digest(run: Row) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
