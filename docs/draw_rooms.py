"""Draw the rooms of the package and the imports between them: docs/rooms.png.

Run `python docs/draw_rooms.py`. Lazy imports and imports for type checking count too. The order of
the rooms is read from the contract in pyproject.toml, so that picture and contract cannot differ.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedssca"
TOPICS = {
    "errors": "kinds of user errors",
    "system": "processes, cores, user folders",
    "data": "tables, and who holds them",
    "problem": "what to optimise",
    "methods": "how to optimise",
    "rounds": "one round, wherever it happens",
    "evaluate": "values, KKT, bytes, certificate",
    "privacy": "noise, hidden sums, common ids",
    "run": "one TOML is one run",
    "deploy": "sites, server, engines",
    "report": "pages about runs",
    "studies": "reproduce, bench, audit",
    "cli": "one file per command",
}


def rooms() -> list[str]:
    """The rooms from the first to the last: each imports only rooms before it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return [layer.removeprefix("fedssca.") for layer in reversed(layers)]


def room_of(module: str) -> str | None:
    """The room of a module of this package; None for other modules."""
    parts = module.split(".")
    return parts[1] if parts[0] == "fedssca" and len(parts) > 1 else None


def imports() -> Counter[tuple[str, str]]:
    """How many import statements of each room name a module of each other room."""
    found: Counter[tuple[str, str]] = Counter()
    for file in PACKAGE.rglob("*.py"):
        here = file.relative_to(PACKAGE).with_suffix("").parts[0]
        if here.startswith("__"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            named = []
            if isinstance(node, ast.ImportFrom) and node.module:
                named = [node.module]
                if node.module == "fedssca":
                    named = [f"fedssca.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            for module in named:
                there = room_of(module)
                if there is not None and there != here:
                    found[here, there] += 1
    return found


def against_the_order(found: Counter[tuple[str, str]], order: list[str]) -> list[tuple[str, str]]:
    """Imports of a room from one that comes later."""
    place = {room: number for number, room in enumerate(order)}
    return [pair for pair in found if place[pair[0]] < place[pair[1]]]


def draw(target: Path) -> None:
    """The picture: rooms from top to bottom, one arc for the imports between two of them."""
    order, found = rooms(), imports()
    wrong = against_the_order(found, order)
    figure, axes = plt.subplots(figsize=(8.5, 7.5))
    height = {room: len(order) - number for number, room in enumerate(order)}
    for (importer, imported), count in sorted(found.items(), key=lambda item: item[1]):
        low, high = height[importer], height[imported]
        bad = (importer, imported) in wrong
        axes.add_patch(
            FancyArrowPatch(
                (0, low),
                (0, high),
                connectionstyle=f"arc3,rad={0.55 if bad else -0.55}",
                arrowstyle="-|>",
                mutation_scale=9,
                linewidth=0.5 + 0.35 * count**0.5,
                color="crimson" if bad else "#3f51b5",
                alpha=0.75 if bad else 0.45,
            )
        )
    for room, y in height.items():
        files = sum(1 for _ in (PACKAGE / room).rglob("*.py")) or 1
        axes.text(0.35, y, room, fontsize=12, weight="bold", va="center")
        size = "1 file" if files == 1 else f"{files} files"
        axes.text(2.0, y, f"{TOPICS[room]}  ({size})", fontsize=10, va="center", color="#444444")
        axes.plot([0], [y], "o", color="#3f51b5", markersize=7, zorder=3)
    axes.set_title(
        f"Imports between rooms: {sum(found.values())}, against the order: {len(wrong)}",
        fontsize=12,
        loc="left",
    )
    axes.set_xlim(-4.0, 8.5)
    axes.set_ylim(0.3, len(order) + 0.7)
    axes.axis("off")
    figure.savefig(target, dpi=110, bbox_inches="tight")
    print(f"{target}: {len(wrong)} imports against the order {wrong or ''}")


if __name__ == "__main__":
    draw(ROOT / "docs" / "rooms.png")
