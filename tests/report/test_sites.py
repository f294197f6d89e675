"""The record of the sites of a deployed run: answers, costs, and who was dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedssca.report.gather import gather
from fedssca.report.sites import MOST_BINS, SiteRecord
from tests.run_helpers import made_up


def line(at: int, missing: tuple[str, ...] = (), **costs: list[float]) -> dict[str, Any]:
    return {"round": at, "seconds": 1, "sites": costs, "missing": list(missing)}


def test_sites_add_up_and_hostile_lines_are_skipped(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run")
    lines = [line(k, a=[0.5, 10, 20], b=[1.5, 1, 2]) for k in (1, 2)]
    lines += [{"round": 3, "sites": [], "missing": 7}, {"round": 4, "sites": {"a": "none"}}]
    (path / "sites.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    view = gather(path)
    first, second = view["sites"]
    wanted = {"name": "a", "asked": 2, "rounds": 2, "seconds": 1, "bytes_down": 20, "bytes_up": 40}
    assert first == wanted | {"late": 0, "unused": 0, "dropped": None}
    assert second["seconds"] == 3
    assert view["site_rounds"]["seconds"]["b"] == [1.5, 1.5, None, None]


def test_missing_answers_and_a_site_that_was_dropped() -> None:
    lines = [line(1, **{"site-2": [1, 5, 5], "site-10": [1, 5, 5]})]
    lines += [line(k, ("site-10",), **{"site-2": [1, 5, 5]}) for k in (2, 3)]
    events = [
        {"round": 1, "site": "site-10", "event": "late: rounds go on without it"},
        {"round": 1, "site": "site-10", "event": "answer not used: not finite"},
        {"round": 2, "site": "site-10", "event": "dropped: no answer in 5 seconds"},
        {"round": 2, "site": "site-2"},
    ]
    shown = SiteRecord(lines, events).shown()
    two, ten = shown["sites"]  # in the order of their numbers
    assert (two["name"], two["asked"], two["rounds"], two["dropped"]) == ("site-2", 3, 3, None)
    assert (ten["asked"], ten["rounds"], ten["late"], ten["unused"]) == (3, 1, 1, 1)
    assert ten["dropped"] == 2
    assert shown["site_rounds"]["missing"] == {"site-2": [0, 0, 0], "site-10": [0, 1, 1]}
    assert len(shown["events"]) == 3

    back = SiteRecord([*lines, line(4, **{"site-10": [1, 1, 1]})], events)
    assert back.shown()["sites"][1]["dropped"] is None  # the run was resumed with it


def test_many_rounds_are_drawn_in_groups_and_a_file_may_begin_anew() -> None:
    record = SiteRecord(line(k, a=[k % 2, 1, 1]) for k in range(1, 1001))
    drawn = record.shown()["site_rounds"]
    assert len(drawn["round"]) == MOST_BINS
    assert drawn["round"][-1] == 1000
    assert set(drawn["seconds"]["a"]) == {0.5}
    record.add_rounds([line(1, a=[1, 1, 1])], anew=True)
    assert record.shown()["sites"][0]["asked"] == 1
