"""The tuned comparison with a limit: equal budgets, who keeps it, and the smallest norm."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.studies.reproduce.cache import Cache
from fedssca.studies.reproduce.experiment import read
from fedssca.studies.reproduce.pages import Origin
from fedssca.studies.reproduce.tuned.limit_pages import (
    limit_page,
    outcomes_in,
    verdict,
    write_limit_comparison,
)
from fedssca.studies.reproduce.tuned.limits import (
    METHODS,
    LimitEntry,
    LimitOutcome,
    compare_with_limit,
)
from fedssca.studies.reproduce.tuned.statements import limited_entries, limited_families
from fedssca.studies.reproduce.tuned.training import open_cache
from tests.cli_helpers import Shell
from tests.studies.reproduce.reproduce_helpers import TINY, tiny

BASE = parse(
    """
data = {name = "digits", clients = 4}
model.name = "linear"
problem = {objective = "norm", constraint = [{kind = "loss", limit = 0.6}]}
"""
)
ORIGIN = Origin("fedssca reproduce fig1e", [1, 2], {"jax": "1"}, "abc", "2026-11-18", "a machine")


def outcome(method: str, *ends: tuple[float, float]) -> LimitOutcome:
    """The outcome of runs that ended at these (F, |w|^2)."""
    costs, norms = zip(*ends, strict=True)
    seeds = tuple(range(1, len(ends) + 1))
    broken = tuple(max(0.0, cost - 0.13) for cost in costs)
    entry = LimitEntry(method, 10, 300)
    return LimitOutcome(entry, 0.13, 4, 2, (), seeds, costs, norms, broken, (0.9,) * len(ends))


def test_every_method_gets_every_batch_of_the_panels() -> None:
    found = limited_families([read("fig1a"), read("fig1e"), read("fig2c")])
    assert set(found) == {"sample", "feature"}
    assert {(e.method, e.batch) for e in limited_entries(found["sample"])} == {
        (method, batch) for method in METHODS for batch in (10, 100, 6000)
    }
    rounds = {e.batch: e.rounds for e in limited_entries(found["sample"])}
    assert rounds == {10: 300, 100: 300, 6000: 100}


def test_all_methods_train_at_the_same_points_and_the_cache_is_used_again(tmp_path: Path) -> None:
    cache, entries = open_cache(tmp_path), [LimitEntry(m, 50, 40) for m in ("exact", "penalty")]
    trained: list[str] = []

    def executor(items: Any, cache: Cache, done: Any) -> None:
        from fedssca.studies.reproduce.tuned.training import in_sequence

        trained.extend(item.label for item in items)
        in_sequence(items, cache, done)

    found = compare_with_limit(BASE, entries, cache, mark="d", trials=2, runs=2, executor=executor)
    assert sorted(trained) == ["exact B=50"] * 4 + ["penalty B=50"] * 4
    assert [o.entry.method for o in found] == ["exact", "penalty"]
    for o in found:
        assert o.seeds == (1, 2)
        assert all(norm is None or norm > 0 for norm in o.objectives)
        for cost, broken in zip(o.costs, o.violations, strict=True):
            if cost is not None and broken is not None:
                assert broken == pytest.approx(max(0.0, cost - 0.6), abs=1e-5)
    again = compare_with_limit(BASE, entries, cache, mark="d", trials=2, runs=2, executor=executor)
    assert again == found
    assert len(trained) == 8


def test_only_a_norm_with_one_limit_is_compared(tmp_path: Path) -> None:
    free = dataclasses.replace(BASE, problem=dataclasses.replace(BASE.problem, constraint=()))
    with pytest.raises(UserError, match="one limit"):
        compare_with_limit(free, [], open_cache(tmp_path), mark="d")


def test_words_say_who_keeps_the_limit_with_the_smallest_norm(tmp_path: Path) -> None:
    found = [
        outcome("exact", (0.14, 90.0), (0.12, 95.0)),
        outcome("steered", (0.13, 110.0), (0.13, 112.0)),
        outcome("penalty", (0.12, 100.0), (0.13, 104.0)),
    ]
    (line,) = verdict(found)
    assert line == (
        "B = 10: penalty (102.0 ± 2.8) has the smallest |w|² of those that keep the limit; then "
        "steered (111.0 ± 1.4); kept in fewer runs: exact 1 of 2."
    )
    assert verdict(found[:1]) == [
        "B = 10: no method keeps the limit in every run; kept in fewer runs: exact 1 of 2."
    ]
    about = write_limit_comparison(tmp_path, "sample", found, ORIGIN)
    stored = json.loads((tmp_path / "tuned-limit-sample.json").read_text())
    assert outcomes_in(stored) == found
    assert (tmp_path / "tuned-limit-sample.md").read_text() == limit_page(about)
    assert "| 10 | penalty | 2 of 2 | 0.1250 ± 0.0071 | 102.0 ± 2.8 |" in limit_page(about)


def test_the_command_compares_with_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    text = TINY[: TINY.index("[[curve]]")] + (
        'problem = {objective = "norm", constraint = [{kind = "loss", limit = 0.6}]}\n'
        '[[curve]]\nlabel = "a"\ngroup = "A"\n'
    )
    shell, out = Shell(tmp_path, monkeypatch, capsys), tmp_path / "out"
    panel = tiny(tmp_path, text)
    told = ("reproduce", panel, "--runs", 1, "--tuned", "--trials", 1, "--out", out, "--jobs", 1)
    first = shell(*told, "--json")
    assert first.code == 0, first.err
    _, compared = json.loads(first.out)["panels"]
    assert compared["name"] == "tuned-limit-sample"
    assert [o["entry"]["method"] for o in compared["outcomes"]] == list(METHODS)
    assert "tuned-limit-sample" in (out / "index.md").read_text()
