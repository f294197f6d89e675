"""The seam between deployments and their engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedssca
from fedssca.deploy.engines import ENGINES

ROOT = Path(fedssca.__file__).parent


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("library", ["nvflare", "flwr"])
def test_only_its_room_knows_the_engine(library: str) -> None:
    knows = {
        file.relative_to(ROOT)
        for file in ROOT.rglob("*.py")
        if any(name.split(".")[0] == library for name in imports(file))
    }
    rooms = Path("deploy", "engines"), Path("run", "apps")  # the latter runs no deployment
    assert knows
    others = {file for file in knows if not any(room in file.parents for room in rooms)}
    assert others <= {Path("flower.py")}  # it repeats names of run/apps


def test_an_engine_offers_all_that_deployments_need() -> None:
    for engine in ENGINES.values():
        for name in ("require", "provision", "is_kit", "open_kit", "open_session"):
            assert callable(getattr(engine, name))
