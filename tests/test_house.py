"""The rules of the house: names, sizes and imports of the whole package, read from its source."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedssca"
MOST_ENTRIES, MOST_LINES = 13, 400
DOORS = ("flower.py", "nvflare.py")
"""Modules of the root that only repeat names of a room, where users of other libraries look."""


@cache
def modules() -> dict[str, ast.Module]:
    """Module name -> syntax tree, for every module of the package."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(file.read_text())
    return found


def rooms() -> list[str]:
    """The rooms in the order of imports: each may import only those before it."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return list(reversed(contract["contracts"][0]["layers"]))


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def imports(tree: ast.AST, types: bool = True) -> Iterator[tuple[str, int]]:
    """(imported module, line) of all imports, also those in functions and in strings.

    Without `types`, imports for type checkers are left out.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in modules() else node.module), node.lineno
        elif isinstance(node, ast.Constant) and node.value in modules().keys() - {"fedssca"}:
            yield str(node.value), node.lineno
        yield from imports(node, types)


def inside() -> Iterator[tuple[str, str, int]]:
    """(module, imported module of the package, line), the package's own file left out."""
    for name, tree in modules().items():
        if room(name) in rooms():
            for target, line in imports(tree):
                if target.split(".")[0] == "fedssca":
                    yield name, target, line


def test_the_root_has_few_entries() -> None:
    entries = {
        path.name
        for path in PACKAGE.iterdir()
        if path.name not in ("__init__.py", "__main__.py", "__pycache__", "py.typed", *DOORS)
    }
    assert {entry.removesuffix(".py") for entry in entries} == {
        name.removeprefix("fedssca.") for name in rooms()
    }
    assert len(entries) <= MOST_ENTRIES
    assert {path.name for path in PACKAGE.parent.iterdir()} - {"__pycache__"} == {"fedssca"}


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{name}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}


def test_every_module_has_a_docstring_and_is_short() -> None:
    silent = [name for name, tree in modules().items() if not ast.get_docstring(tree)]
    assert silent == []
    long = {
        str(file.relative_to(PACKAGE)): count
        for file in PACKAGE.rglob("*.py")
        if (count := len(file.read_text().splitlines())) > MOST_LINES
    }
    assert long == {}


def test_no_import_points_against_the_order_of_the_rooms() -> None:
    """As import-linter does, but imports by name in a string count too, and so does the root."""
    order = {name: number for number, name in enumerate(rooms())}
    wrong = [
        f"{name}:{line} imports {target}"
        for name, target, line in inside()
        if target == "fedssca" or order[room(target)] > order[room(name)]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports in functions count; those for type checkers do not."""
    graph = {
        name: {
            target
            for target, _ in imports(tree, types=False)
            if target in modules() and target not in (name, "fedssca")
        }
        for name, tree in modules().items()
        if room(name) in rooms()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_the_package_has_one_name() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert "fedssca_program" not in text
