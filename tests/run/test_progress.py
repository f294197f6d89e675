"""The progress line: what it shows, when it shows it, and what a quiet console keeps back."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress

import pytest
from rich.console import Console

from fedssca.run.progress import ProgressLine, row_numbers, showing_rounds


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)


def text_of(used: Console) -> str:
    assert isinstance(used.file, io.StringIO)
    return used.file.getvalue()


def test_warnings_are_notes() -> None:
    used = console()
    with ProgressLine(used, "run", 10) as line, line.noting_warnings():
        warnings.warn("a step size is large", stacklevel=2)
    assert text_of(used).startswith("note: a step size is large")
    assert ".py" not in text_of(used)


def test_notes_wait_for_the_first_number_and_are_shown_once() -> None:
    used, shown = console(), set[str]()
    with ProgressLine(used, "run", 10, shown=shown) as line:
        line.note("a step size is large")
        assert "note" not in text_of(used)
        line.update(5, "F_0 1.5")
        assert text_of(used).count("note: a step size is large") == 1
    assert "5/10" in text_of(used)
    with ProgressLine(used, "twin", 10, shown=shown) as line:
        line.update(1)
        line.note("a step size is large")
    assert text_of(used).count("note:") == 1


def test_notes_are_shown_after_success_and_not_after_an_error() -> None:
    used = console()
    with ProgressLine(used, "run"):
        pass
    with ProgressLine(used, "run") as line:
        line.note("it is done already")
    assert text_of(used).splitlines() == ["note: it is done already"]
    failed = console()
    with suppress(ValueError), ProgressLine(failed, "run") as line:
        line.note("not shown")
        raise ValueError
    assert text_of(failed) == ""


def test_a_transient_bar_writes_nothing_to_a_file() -> None:
    used = console()
    with ProgressLine(used, "aligning", 3, transient=True) as line:
        line.preparing("waiting")
        line.advance(2)
    assert text_of(used) == ""
    seen = console(terminal=True)
    with ProgressLine(seen, "aligning", 3, transient=True) as line:
        line.advance(2)
    assert "2/3" in text_of(seen)


def test_total_and_name_may_change_and_long_names_are_cut() -> None:
    used = console()
    with ProgressLine(used, "a-very-long-name-of-a-folder", percent=True) as line:
        line.update(1, total=4)
        line.update(2, "x", total=8, name="second")
    assert "second" in text_of(used)
    assert "25 %" in text_of(used)
    cut = console()
    with ProgressLine(cut, "a-very-long-name-of-a-folder", 1) as line:
        line.update(1)
    assert "…long-name-of-a-folder"[-18:] in text_of(cut)
    assert "a-very" not in text_of(cut)


def test_numbers_of_a_row() -> None:
    row = {"round": 30, "seconds": 2.0, "objective": 1.23456, "constraints": [0.1, -0.2, 3.0]}
    assert row_numbers(row) == "objective 1.235  limits broken by 3.000"
    assert row_numbers(row | {"constraints": [-0.2, -0.1]}).endswith("limits kept by 0.100")
    assert row_numbers(row | {"constraints": [], "epsilon": 0.5}) == "objective 1.235  ε 0.5"


def test_the_time_to_compile_is_no_part_of_the_speed() -> None:
    used = console(terminal=True)
    with ProgressLine(used, "run", 100) as line:
        for at, seconds in ((0, 3.0), (10, 9.0), (20, 9.5), (50, 11.0)):
            row = {"round": at, "seconds": seconds, "objective": 1.0, "constraints": []}
            line.show_row(row, "2/3 sites")
        line._bar.refresh()
    assert "2/3 sites  20 rounds/s" in text_of(used)  # 40 rounds in the 2 seconds after round 10
    assert "1.1 rounds/s" not in text_of(used)
    assert "rounds/s" not in text_of(used).splitlines()[-1]  # the result is printed below


@pytest.mark.parametrize(("show", "terminal", "seen"), [(None, False, False), (True, False, True)])
def test_simulate_shows_a_line_if_it_is_wanted(
    show: bool | None, terminal: bool, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, stderr = [], io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with showing_rounds(11, show, heard.append) as tell:
        tell({"round": 10, "seconds": 1.0, "objective": 1.0, "constraints": []})
    assert [row["round"] for row in heard] == [10]
    assert ("11/11" in stderr.getvalue()) == seen
