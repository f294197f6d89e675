"""The audit of a configuration: all observers, their verdicts, the table and audit.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.privacy import require_privacy
from fedssca.run.config import Config
from fedssca.studies.audit.audited_run import AuditedRun, NoiseSetting, set_up
from fedssca.studies.audit.inversion import invert, square
from fedssca.studies.audit.message import median_gradient_norm
from fedssca.studies.audit.observers import (
    gradient_observations,
    intermediate_observations,
    measure,
)
from fedssca.studies.audit.score import Score, score
from fedssca.studies.audit.verdict import assess, assess_intermediate
from fedssca.studies.audit.vocabulary import Level, Observer

__all__ = ["Audit", "audit", "print_audit"]

Tick = Callable[[str], None]
COLOURS = {Level.PROTECTED: "green", Level.AT_RISK: "yellow", Level.OPEN: "red"}


class Audit(NamedTuple):
    """The result of an audit, and what its picture shows if there was an attack."""

    found: dict[str, Any]
    """The content of audit.json."""
    originals: np.ndarray
    """The rows behind the first message that was attacked."""
    rebuilt: list[tuple[str, Score]]
    """The protection and the score of each attack."""
    side: int
    """The side length of square images; 0 for other data."""


def audit(config: Config, attack: bool = False, tick: Tick = lambda text: None) -> Audit:
    """Assess what each observer of a run receives; nothing is trained."""
    if attack:
        require_privacy("optimistix")
    with jax.enable_x64(True):
        tick("setting up the run")
        run = set_up(config)
        example = NoiseSetting(median_gradient_norm(run), 1.0)
        entries: list[dict[str, Any]] = []
        rebuilt: list[tuple[str, Score]] = []
        originals = np.zeros((0, 0))
        for observation in gradient_observations(run, example):
            tick(f"{observation.observer}: {observation.name}")
            message, counted, member = measure(run, observation)
            result = None
            if attack and observation.observer is Observer.SERVER:
                found = invert(run, message, _under(observation.name, tick))
                result = score(run, message, found)
                rebuilt.append(
                    (observation.name + (" (this run)" if observation.used else ""), result)
                )
                originals = originals if len(originals) else message.group.x
            verdict = assess(run, observation, counted, member, result, len(message.first))
            entries.append(
                {
                    "observer": observation.observer,
                    "phase": observation.phase,
                    "sees": observation.what,
                    "protection": observation.name,
                    "this_run": observation.used,
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
                    **verdict._asdict(),
                }
            )
        for seen in intermediate_observations(run):
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
                    **assess_intermediate(seen)._asdict(),
                }
            )
        used = [entry["level"] for entry in entries if entry["this_run"]]
        summary = {
            "verdict": max(used, key=lambda level: level.severity),
            "data": run.dataset.name,
            "split": config.data.split,
            "clients": run.clients.count,
            "batch": config.algorithm.batch,
            "local_steps": run.algorithm.steps,
            "features": int(run.first.shape[1]),
            "hidden": int(run.first.shape[0]),
            "parameters": run.problem.dimension,
            "observers": entries,
            "notes": _notes(run),
        }
        return Audit(summary, originals, rebuilt, square(run))


def print_audit(found: dict[str, Any], console: Console) -> None:
    """Print the table, and the verdicts on the run as it is configured."""
    table = Table(
        title=_title(found),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    table.add_column("seen by", no_wrap=True)
    table.add_column("protection", overflow="fold")
    for heading in ("rows", "unknowns", "equations", "rank", "AUC"):
        table.add_column(heading, justify="right", no_wrap=True)
    attacked = any(entry.get("attack") for entry in found["observers"])
    if attacked:
        table.add_column("rebuilt\n(chance)", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for entry in found["observers"]:
        member, attack = entry.get("membership"), entry.get("attack")
        cells = [
            entry["observer"],
            ("* " if entry["this_run"] else "  ") + entry["protection"],
            f"{entry['rows']:,}",
            f"{entry['unknowns']:,}",
            f"{entry['equations']:,}",
            _rank(entry),
            "" if member is None else f"{member['auc']:.2f}",
        ]
        if attacked:
            cells.append(f"{attack['correlation']:.2f} ({attack['chance']:.2f})" if attack else "")
        colour = COLOURS[entry["level"]]
        style = None if entry["this_run"] else "dim"
        table.add_row(*map(escape, cells), f"[{colour}]{entry['level']}[/]", style=style)
    console.print(table)
    console.print(
        "\n* this run as it is configured; the other lines show other settings", style="dim"
    )
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


def _notes(run: AuditedRun) -> list[str]:
    notes = ["an attack that fails proves nothing: a better attack may exist"]
    if not np.any(np.asarray(run.problem.start)):
        notes.append(
            "the model starts at 0, where a message shows little: the audit uses a random point"
        )
    if run.algorithm.steps > 1:
        notes.append(
            "with local steps the attack treats the change of w as one gradient: an observer could "
            "have a stronger attack"
        )
    if run.config.algorithm.surrogate == "diagonal":
        notes.append("surrogate diagonal sends more than gradients; the rest was not audited")
    if run.config.privacy.homomorphic:
        notes.append("homomorphic: the key holder sees the sum, as the server does")
    return notes
