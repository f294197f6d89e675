"""The seam between deployments and their engine."""

from __future__ import annotations

import ast
from pathlib import Path

import fedssca
from fedssca.deploy.engines import chosen_engine

ROOT = Path(fedssca.__file__).parent


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_only_its_room_knows_the_engine() -> None:
    knows = {
        file.relative_to(ROOT)
        for file in ROOT.rglob("*.py")
        if any("nvflare" in name.split(".") for name in imports(file))
    }
    room = Path("deploy", "engines")
    assert knows
    assert {file for file in knows if room not in file.parents} == set()


def test_an_engine_offers_all_that_deployments_need() -> None:
    engine = chosen_engine()
    for name in ("require", "provision", "open_kit", "open_session"):
        assert callable(getattr(engine, name))
