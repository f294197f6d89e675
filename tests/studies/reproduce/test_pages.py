"""Numbers, figures and pages of a panel."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from fedssca.studies.reproduce.experiment import Experiment, Statement
from fedssca.studies.reproduce.measure import Measured
from fedssca.studies.reproduce.pages import (
    Origin,
    panel_page,
    print_verdicts,
    renew_panel,
    write_index,
    write_panel,
)
from tests.studies.reproduce.reproduce_helpers import curve, measured, panel, record

ORIGIN = Origin("fedssca reproduce panel", [0, 1], {"jax": "1"}, "abc", "2026-11-18", "a machine")
U = 'problem.constraint=[{kind="loss", limit=0.13}]'
COSTS = [0.4, 0.3, 0.2, 0.1]


def of(kind: str) -> tuple[Experiment, dict[str, Measured]]:
    """A panel of each kind."""
    own = [
        curve("Algorithm 2, B=10", "Algorithm 2", U),
        curve("ours", "steered method", U, "algorithm.batch=20", extra=True, model="returned"),
        curve("new, s=1", "new", "algorithm.batch=20", series="new"),
    ]
    found = {c.label: measured(c, COSTS) for c in own}
    if kind == "equivalence":
        for row in (row for m in found.values() for run in m.runs for row in run["rows"]):
            row["multipliers"] = [100.0]
    if kind == "identity":
        run = record(
            [0, 5, 9],
            train_cost=lambda t: 1 / (1 + t),
            momentum_cost=lambda t: 1 / (1 + t),
            distance=lambda t: t * 1e-9,
        )
        found = {c.label: Measured(c, [run, run]) for c in own}
    said = Statement("a | b", "here", "faster", {"order": ["ours", "new, s=1"]})
    return panel(kind, own, *([] if kind == "identity" else [said])), found


@pytest.mark.parametrize("kind", ["trajectory", "tradeoff", "sweep", "equivalence", "identity"])
def test_a_panel_leaves_its_files_and_the_same_bytes_each_time(tmp_path: Path, kind: str) -> None:
    shown, found = of(kind)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_panel(tmp_path / name, shown, found, ORIGIN)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert sorted(files) == [f"panel.{e}" for e in ("csv", "json", "md", "png", "svg")]
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert len(files["panel.svg"]) < 100_000
    assert files["panel.png"].startswith(b"\x89PNG")


def test_the_table_is_tidy(tmp_path: Path) -> None:
    shown, found = of("trajectory")
    write_panel(tmp_path, shown, found, ORIGIN)
    table = list(csv.DictReader(io.StringIO((tmp_path / "panel.csv").read_text())))
    assert len(table) == 12
    assert table[0]["curve"] == "Algorithm 2, B=10"
    assert {name: float(table[0][name]) for name in ("round", "mean", "min", "max", "runs")} == {
        "round": 100,
        "mean": 0.4,
        "min": 0.3995,
        "max": 0.4005,
        "runs": 2,
    }
    assert float(table[0]["sd"]) == pytest.approx(0.001 / 2**0.5)


def test_an_accuracy_never_reached_is_no_number(tmp_path: Path) -> None:
    shown, found = of("tradeoff")
    found["ours"] = measured(found["ours"].curve, COSTS, [0.5] * 4)
    write_panel(tmp_path, shown, found, ORIGIN)
    json.loads((tmp_path / "panel.json").read_text(), parse_constant=pytest.fail)
    assert "ours,20,inf" in (tmp_path / "panel.csv").read_text()


def test_pages_tell_statements_numbers_and_origin(tmp_path: Path, capsys) -> None:
    shown, found = of("trajectory")
    about = write_panel(tmp_path, shown, found, ORIGIN)
    page = (tmp_path / "panel.md").read_text()
    for part in ("a \\| b", "**does not hold**", "0.400/0.400", "fedssca reproduce panel"):
        assert part in page
    assert "Made by code abc, 2026-11-18, a machine; jax 1." in page
    assert page == panel_page(json.loads((tmp_path / "panel.json").read_text()))
    assert "mean of 2 runs, seeds 0 to 1" in page
    assert "Converges faster: " in page
    assert "† are not in the paper" in page
    (tmp_path / "foreign.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    write_index(tmp_path)
    index = (tmp_path / "index.md").read_text()
    assert index.count("## ") == 1
    assert "- a | b **does not hold**" in index
    assert "![panel](panel.png)" in index
    assert about["seeds"] == [0, 1]
    print_verdicts([about], tmp_path)
    out = capsys.readouterr().out
    assert "does not hold" in out
    assert "start with index.md" in out


def test_fewer_runs_of_a_curve_are_told(tmp_path: Path) -> None:
    shown, found = of("trajectory")
    found["ours"] = measured(found["ours"].curve, COSTS, runs=1)
    write_panel(tmp_path, shown, found, ORIGIN)
    assert "mean of 2 runs, seeds 0 to 1, of 1 for ours." in (tmp_path / "panel.md").read_text()


def test_a_page_of_other_code_is_compared_and_the_comparison_stays(tmp_path: Path) -> None:
    shown, found = of("trajectory")
    write_panel(tmp_path, shown, found, ORIGIN)
    newer = ORIGIN._replace(fingerprint="def")
    again = found | {"ours": measured(found["ours"].curve, [*COSTS[:3], 0.11])}
    for _ in range(2):  # The page that is there is then of the same code, and says the same.
        about = write_panel(tmp_path, shown, again, newer)
        assert about["agreement"]["code"] == "abc"
        assert about["agreement"]["runs"] == 6
        assert about["agreement"]["equal"] == 4
        assert about["agreement"]["largest_of_means"] == pytest.approx(0.01 / 0.11)
    assert "Compared with code abc: 4 of the 6 runs" in (tmp_path / "panel.md").read_text()


def test_a_page_without_new_runs_stays_and_is_compared(tmp_path: Path) -> None:
    shown, found = of("trajectory")
    before = write_panel(tmp_path, shown, found, ORIGIN)
    some = {name: Measured(m.curve, m.runs[:1]) for name, m in found.items()}
    about = renew_panel(tmp_path, "panel", some, "def")
    assert about is not None
    said = about.pop("agreement")
    assert about == before
    assert (said["code"], said["runs"], said["equal"]) == ("def", 3, 3)
    assert "all 3 runs that both have end with equal numbers" in (tmp_path / "panel.md").read_text()
    assert renew_panel(tmp_path, "absent", {}, "def") is None
