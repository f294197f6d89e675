"""An audit from a config: all observers, their verdicts, and what goes on screen and to disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.run.config import Config
from fedssca.studies.audit.invert import invert, square
from fedssca.studies.audit.observers import gradients_seen, sights, vertical_peers
from fedssca.studies.audit.scene import Noise, Scene, set_up
from fedssca.studies.audit.score import Score, score
from fedssca.studies.audit.verdict import LEVELS, judge, judge_seen
from fedssca.studies.audit.view import typical

__all__ = ["Audit", "audit", "print_audit"]

Tick = Callable[[str], None]
COLOURS = dict(zip(LEVELS, ("green", "yellow", "red"), strict=True))


class Audit(NamedTuple):
    """`found` is audit.json; the rest is what the picture shows (nothing without an attack)."""

    found: dict[str, Any]
    originals: np.ndarray
    rebuilt: list[tuple[str, Score]]
    side: int
    """Of square images, 0 for other data."""


def audit(config: Config, attack: bool = False, tick: Tick = lambda text: None) -> Audit:
    """Look at a run through the eyes of each observer; nothing is trained."""
    with jax.enable_x64(True):
        tick("setting up the run")
        scene = set_up(config)
        example = Noise(typical(scene), 1.0)
        entries: list[dict[str, Any]] = []
        rebuilt: list[tuple[str, Score]] = []
        originals = np.zeros((0, 0))
        for sight in sights(scene, example):
            tick(f"{sight.observer}: {sight.name}")
            view, counted, member = gradients_seen(scene, sight)
            result = None
            if attack and sight.observer == "server":
                found = invert(scene, view, _under(sight.name, tick))
                result = score(scene, view, found)
                rebuilt.append((sight.name + (" (this run)" if sight.used else ""), result))
                originals = originals if len(originals) else view.group.x
            said = judge(scene, sight, counted, member, result, len(view.first))
            entries.append(
                {
                    "observer": sight.observer,
                    "phase": sight.phase,
                    "sees": sight.what,
                    "protection": sight.name,
                    "this_run": sight.used,
                    "rows": counted.rows,
                    "unknowns": counted.unknowns,
                    "equations": counted.equations,
                    "condition_holds": counted.counted,
                    "rank": counted.rank,
                    "rank_needed": counted.free,
                    "rank_exact": counted.exact,
                    "rank_how": counted.how,
                    "membership": {**member._asdict(), "auc": member.auc},
                    "attack": None if result is None else _numbers(result),
                    **said._asdict(),
                }
            )
        for seen in vertical_peers(scene):
            entries.append(
                {
                    "observer": seen.observer,
                    "phase": seen.phase,
                    "sees": seen.what,
                    "protection": "as set",
                    "this_run": True,
                    "rows": config.algorithm.batch,
                    "unknowns": seen.unknowns,
                    "equations": seen.equations,
                    "condition_holds": seen.unknowns > seen.equations,
                    "rank": seen.rank,
                    "labels_read": seen.labels,
                    **judge_seen(seen)._asdict(),
                }
            )
        used = [entry["level"] for entry in entries if entry["this_run"]]
        summary = {
            "verdict": max(used, key=LEVELS.index),
            "data": scene.dataset.name,
            "split": config.data.split,
            "clients": scene.clients.count,
            "batch": config.algorithm.batch,
            "local_steps": scene.algorithm.steps,
            "features": int(scene.first.shape[1]),
            "hidden": int(scene.first.shape[0]),
            "parameters": scene.problem.dimension,
            "observers": entries,
            "notes": _notes(scene),
        }
        return Audit(summary, originals, rebuilt, square(scene))


def print_audit(found: dict[str, Any], console: Console) -> None:
    """The table, and the verdicts on the run as it is set."""
    table = Table(title=_title(found), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("seen by", "protection"):
        table.add_column(heading, min_width=7)
    for heading in ("rows", "unknowns", "equations", "rank", "AUC"):
        table.add_column(heading, justify="right", no_wrap=True)
    fought = any(entry.get("attack") for entry in found["observers"])
    if fought:
        table.add_column("rebuilt (chance)", justify="right")
    table.add_column("verdict")
    for entry in found["observers"]:
        member, fight = entry.get("membership"), entry.get("attack")
        cells = [
            entry["observer"],
            ("* " if entry["this_run"] else "  ") + entry["protection"],
            f"{entry['rows']:,}",
            f"{entry['unknowns']:,}",
            f"{entry['equations']:,}",
            _rank(entry),
            "" if member is None else f"{member['auc']:.2f}",
        ]
        if fought:
            cells.append(f"{fight['correlation']:.2f} ({fight['chance']:.2f})" if fight else "")
        colour = COLOURS[entry["level"]]
        style = None if entry["this_run"] else "dim"
        table.add_row(*map(escape, cells), f"[{colour}]{entry['level']}[/]", style=style)
    console.print(table)
    console.print("* this run as it is set; other lines: what else could be set", style="dim")
    for entry in found["observers"]:
        if entry["this_run"]:
            head = f"[bold {COLOURS[entry['level']]}]{entry['level']}[/]"
            who = f"{entry['observer']} ({entry['phase']}) sees {entry['sees']}"
            console.print(f"{head}  {escape(who)}: {escape(entry['reason'])}.", highlight=False)
            if entry["remedy"]:
                console.print(f"      to change it: {escape(entry['remedy'])}", highlight=False)
    for note in found["notes"]:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)


def _under(name: str, tick: Tick) -> Tick:
    return lambda text: tick(f"{name}: {text}")


def _title(found: dict[str, Any]) -> str:
    return (
        f"{found['data']}: {found['clients']} clients, split by {found['split']}, batch "
        f"{found['batch']}, {found['parameters']:,} parameters"
    )


def _rank(entry: dict[str, Any]) -> str:
    if entry["rank"] is None:
        return "-"
    share = entry["rank"] / entry.get("rank_needed", entry["unknowns"])
    return ("" if entry.get("rank_exact", True) else ">=") + f"{int(100 * share)} %"


def _numbers(result: Score) -> dict[str, Any]:
    return {
        name: getattr(result, name)
        for name in ("correlation", "control", "chance", "solved", "labels")
    }


def _notes(scene: Scene) -> list[str]:
    notes = ["an attack that fails proves nothing: a better one may exist"]
    if not np.any(np.asarray(scene.problem.start)):
        notes.append("the model starts at 0, where little shows: it was looked at a random point")
    if scene.algorithm.steps > 1:
        notes.append(
            "with local steps the attack takes the change of w for one gradient: it is weaker than "
            "an observer could be"
        )
    if scene.config.algorithm.surrogate == "diagonal":
        notes.append("surrogate diagonal sends more than gradients; the rest was not looked at")
    if scene.config.privacy.homomorphic:
        notes.append("homomorphic: the holder of the key sees the sum, as the server does")
    return notes
