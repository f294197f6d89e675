"""The tables of a page are those that were measured, and a stopped measurement goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tables import Evidence, Table

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_about_limits_shows_what_was_measured() -> None:
    page = (DOCS / "constraints.md").read_text()
    assert Evidence(DOCS / "evidence" / "constraints.json").on_page(page) == page, (
        "write the tables again: python benchmarks/constraints.py page"
    )


def test_rows_are_measured_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def table(*names: str) -> Table:
        def measured(name: str) -> list[object]:
            asked.append(name)
            if name == "c" and len(asked) < 4:
                raise KeyboardInterrupt
            return [0.5, None, True]

        columns = {"name": "", "share": ".1%", "none": "", "|w| kept": ""}
        return Table(columns, ((((name,), lambda name=name: measured(name))) for name in names))

    place = tmp_path / "evidence.json"
    with pytest.raises(KeyboardInterrupt):
        Evidence(place).measure("t", table("a", "b", "c"), False, seeds=[0])
    Evidence(place).measure("t", table("a", "b", "c"), False, seeds=[0])
    assert asked == ["a", "b", "c", "c"]
    evidence = Evidence(place)
    assert evidence.content["seeds"] == [0]
    shown = "\n".join(
        [
            "| name | share | none | \\|w\\| kept |",
            "| --- | --- | --- | --- |",
            *(f"| {name} | 50.0% | - | yes |" for name in "abc"),
        ]
    )
    page = "# Page\n\n<!-- table t -->\nold\n<!-- end of table -->\n\n<!-- table u -->\n"
    filled = f"<!-- table t -->\n\n{shown}\n\n<!-- end of table -->"
    assert filled in evidence.on_page(page)
    assert evidence.on_page(page).endswith("<!-- table u -->\n")
    Evidence(place).measure("t", table("b"), True)
    assert asked[4:] == ["b"]
