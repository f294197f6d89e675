"""The tables that pages show are those of their records, and records know when they are old."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.evidence import pages, record, results
from benchmarks.evidence.record import FOLDER, Part, measure, read_parts, tables_in, why_old
from benchmarks.tables import Evidence, Table

SCRIPT = """
import fedssca.errors
print("measuring")
print("| method | loss |")
print("|---|---|")
print("| ssca | .25 |")
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one page, whose table is to come from one script."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# It\n")
    mark = "<!-- evidence: tried.losses -->\n<!-- end -->"
    (tmp_path / "docs/page.md").write_text(f"# Page\n\n{mark}\n\nText.\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    for module in (record, pages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


def test_pages_show_what_their_records_say() -> None:
    wrong = [page.name for page in pages.differences()]
    assert wrong == [], "run make evidence-render"


def test_the_results_have_no_typed_numbers() -> None:
    page = pages.ROOT / "docs/results/summary.md"
    found = pages.typed_numbers(page.read_text(encoding="utf-8"))
    assert found == [], "let the number come from a record: see docs/evidence/README.md"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It ends at 0.13 after 95 % of 1000 rounds.", ["0.13", "95 %"]),
        ("Needs 12 ± 2 rounds, 3x fewer.", ["12 ±"]),
        ("The limit `F <= 0.13` and [a page](v1.2.md), B = 10.", []),
        ("```console\n$ run 0.5\n```\n", []),
        ("<!-- evidence: a.b -->\n| 0.5 |\n<!-- end -->\n", []),
    ],
)
def test_typed_numbers_are_those_outside_of_records_and_code(text: str, numbers: list[str]) -> None:
    assert pages.typed_numbers(text) == numbers


def test_pages_of_results_are_those_of_their_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs/results"
    folder.mkdir(parents=True)
    (tmp_path / "README.md").write_text("# It\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    about = json.loads((record.ROOT / "docs/results/identity.json").read_text())
    about["fingerprint"] = "older"
    (folder / "identity.json").write_text(json.dumps(about))
    page, index, summary = (folder / f"{name}.md" for name in ("identity", "index", "summary"))
    for written in (page, index):
        written.write_text("Something else.\n")
    summary.write_text("<!-- evidence: results.identity-1 -->\n<!-- end -->\n")
    assert pages.render() == sorted([page, index, summary])
    assert about["verdicts"][0]["measured"] in page.read_text().replace("\\|", "|")
    assert about["verdicts"][0]["measured"] in summary.read_text()
    assert pages.differences() == []
    page.write_text(page.read_text().replace("e-15", "e-16"))
    assert pages.differences() == [page]
    ((name, why),) = results.old_results(folder)
    assert name == "identity"
    assert "made by code older" in why


def test_every_record_says_how_it_was_made() -> None:
    parts = read_parts()
    for file in FOLDER.glob("*.json"):
        found = json.loads(file.read_text())
        assert {"command", "date", "tables"} <= set(found), file
        assert found.get("adopted") or {"versions", "seeds"} <= set(found), file
        for name, table in found["tables"].items():
            widths = {len(row) for row in table["rows"]}
            assert widths <= {len(table["columns"])}, f"{file}: {name}"
    for part in parts.values():
        own = part.command.startswith(("fedssca ", "python -m fedssca", "python -m tests"))
        assert part.scripts or own, part.name


def test_a_part_is_measured_rendered_and_grows_old(root: Path) -> None:
    part = Part("tried", "python script.py", tables=["losses"], seeds=[0])
    folder = root / "docs/evidence"
    assert "never" in why_old(part, record.read_record("tried", folder))
    measure(part, folder)
    found = record.read_record("tried", folder)
    assert found is not None
    assert found["tables"]["losses"] == {"columns": ["method", "loss"], "rows": [["ssca", ".25"]]}
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "cores" in found["machine"]
    assert why_old(part, found) == ""

    assert [page.name for page in pages.render(folder)] == ["page.md"]
    page = root / "docs/page.md"
    assert "| method | loss |\n|---|---|\n| ssca | .25 |\n<!-- end" in page.read_text()
    assert pages.differences(folder) == []
    page.write_text(page.read_text().replace(".25", ".24"))
    assert pages.differences(folder) == [page]

    script = root / "script.py"
    script.write_text("# A comment changes no number.\n" + SCRIPT)
    assert why_old(part, found) == ""
    script.write_text(SCRIPT.replace(".25", ".26"))
    assert "the code has changed" in why_old(part, found)


def test_a_command_that_prints_another_number_of_tables_writes_nothing(root: Path) -> None:
    with pytest.raises(SystemExit, match="printed 1 Markdown tables"):
        measure(Part("tried", "python script.py", tables=["losses", "more"]), root)
    assert record.read_record("tried", root) is None


def test_tables_of_a_page_are_moved_without_typing(root: Path) -> None:
    page = root / "docs/old.md"
    words = "| key | meaning |\n|---|---|\n| a | a letter |\n"
    page.write_text(f"# Old\n\n| B | ratio |\n|---|---|\n| 10 | 1.57 |\n\n{words}")
    assert [each for each, _ in pages.unmarked()] == [page]
    folder = root / "docs/evidence"
    assert pages.adopt(page, "old", "fedssca bench", "2026-11-18", folder) == 1
    assert words in page.read_text()
    assert list(pages.unmarked()) == []
    assert pages.marked(page.read_text()) == [("old", "table1")]
    moved = record.read_record("old", folder)
    assert moved is not None
    assert moved["tables"]["table1"]["rows"] == [["10", "1.57"]]
    assert "its code is not known" in why_old(Part("old", "fedssca bench"), moved)


def test_numbers_of_records_are_written_alike() -> None:
    table = {"columns": ["a", "b", "c"], "rows": [["x", 0.123456, None], ["y", 7, "1 of 5"]]}
    text = pages.table_text(table)
    assert text == "| a | b | c |\n|---|---|---|\n| x | 0.123 | - |\n| y | 7 | 1 of 5 |\n"
    assert tables_in(text)[0]["rows"][1] == ["y", "7", "1 of 5"]


def test_rows_are_measured_once_with_the_same_code(root: Path) -> None:
    part, folder = Part("tried", "python script.py", keeps=True), root / "docs/evidence"
    asked: list[str] = []

    def table(*names: str) -> Table:
        def measured(name: str) -> list[object]:
            asked.append(name)
            if name == "c" and len(asked) < 4:
                raise KeyboardInterrupt
            return [0.5, None, True]

        columns = {"name": "", "share": ".1%", "none": "", "|w| kept": ""}
        return Table(columns, ((((name,), lambda name=name: measured(name))) for name in names))

    with pytest.raises(KeyboardInterrupt):
        Evidence(part, folder).measure("losses", table("a", "b", "c"), False)
    Evidence(part, folder).measure("losses", table("a", "b", "c"), False)
    assert asked == ["a", "b", "c", "c"]
    found = record.read_record("tried", folder)
    assert why_old(part, found) == ""
    pages.render(folder)
    shown = "| name | share | none | \\|w\\| kept |\n|---|---|---|---|\n| a | 50.0% | - | yes |\n"
    assert shown in (root / "docs/page.md").read_text()
    Evidence(part, folder).measure("losses", table("b"), True)
    (root / "script.py").write_text(SCRIPT.replace(".25", ".26"))
    Evidence(part, folder).measure("losses", table("b"), False)
    assert asked[4:] == ["b", "b"]
