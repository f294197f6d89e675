"""The second tuned_check: what is outcome_of, how statements are judged by it, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca.studies.reproduce.experiment import Statement, read
from fedssca.studies.reproduce.tuned.comparison import (
    FEATURE,
    LONG,
    SAMPLE,
    TARGETS,
    Entry,
    Outcome,
)
from fedssca.studies.reproduce.tuned.statements import entries, families, tuned_check
from tests.cli_helpers import Shell
from tests.studies.reproduce.reproduce_helpers import curve, measured, tiny


def outcome(method: str, target: float, *rounds: float | None) -> Outcome:
    return Outcome(Entry(method, 10, 1, 50), target, 3, 3, rounds=rounds)


OURS = measured(curve("ours", "Algorithm 1"), [0.4, 0.3, 0.2, 0.1])
THEIRS = measured(curve("theirs", "SGD", "algorithm.name=sgd"), [0.5, 0.4, 0.3, 0.2])
BOTH = {"ours": OURS, "theirs": THEIRS}
FASTER = Statement("ours is faster", "", "faster", {"order": ["ours", "theirs"]})
FEWEST = Statement("ours needs least", "", "fewest", {"group": "Algorithm 1", "at": [10]})


def test_what_is_raced_are_all_methods_with_every_batch_and_steps_of_the_panels() -> None:
    found = families([read("fig1a"), read("fig1e"), read("fig2b"), read("identity")])
    assert set(found) == {"sample", "feature"}
    assert set(entries(found["sample"])) == set(SAMPLE)
    assert set(entries(found["feature"])) == set(FEATURE)
    assert set(entries(families([read("fig1c")])["sample"])) == set(SAMPLE) | set(LONG)


@pytest.mark.parametrize("statement", [FASTER, FEWEST])
def test_a_statement_about_speed_is_judged_again(statement: Statement) -> None:
    quick = [outcome("ssca", t, 10.0, 12.0) for t in TARGETS]
    slow = [outcome("sgd", t, 20.0, 22.0) for t in TARGETS]
    found = tuned_check([*quick, *slow])(statement, BOTH)
    assert found is not None
    assert found.holds
    assert "90% 11/21" in found.details[0]
    turned = [o.__class__(**{**vars(o), "rounds": (30.0, 30.0)}) for o in quick]
    again = tuned_check([*turned, *slow])(statement, BOTH)
    assert again is not None
    assert not again.holds


def test_a_target_that_not_every_run_reaches_counts_as_never() -> None:
    quick = [outcome("ssca", t, 10.0, None) for t in TARGETS]
    slow = [outcome("sgd", t, 20.0, 22.0) for t in TARGETS]
    found = tuned_check([*quick, *slow])(FASTER, BOTH)
    assert found is not None
    assert not found.holds
    assert "never/21" in found.details[0]
    nobody = [outcome(m, t) for m in ("ssca", "sgd") for t in TARGETS]
    assert tuned_check(nobody)(FASTER, BOTH) is None


def test_other_statements_have_no_second_opinion() -> None:
    keeps = Statement("kept", "", "keeps", {"curve": "ours"})
    assert tuned_check([outcome("ssca", 0.9, 1.0)])(keeps, BOTH) is None


def test_the_command_tunes_races_and_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    shell, out = Shell(tmp_path, monkeypatch, capsys), tmp_path / "out"
    told = ("reproduce", tiny(tmp_path), "--runs", 1, "--tuned", "--trials", 1, "--out", out)
    first = shell(*told, "--jobs", 2, "--json")
    assert first.code == 0, first.err
    panel, outcome_of = json.loads(first.out)["panels"]
    assert panel["name"] == "tiny"
    assert outcome_of["name"] == "tuned-sample"
    assert len(outcome_of["outcomes"]) == 3 * 2 * len(TARGETS)
    assert {f"tuned-sample.{e}" for e in ("csv", "md", "png", "svg")} <= {
        path.name for path in out.iterdir()
    }
    assert "tuned-sample" in (out / "index.md").read_text()
    again = shell(*told, "--jobs", 1)
    assert again.code == 0, again.err
    assert "every method tuned alike" in again.out
    bad = shell.refused("reproduce", tiny(tmp_path), "--tuned", "--trials", 0)
    assert "--trials 0: it must be at least 1" in bad
