"""Finished runs on disk: found again, or computed again, never half believed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.studies.reproduce import cache as module
from fedssca.studies.reproduce.cache import Cache, fingerprint, run_key
from fedssca.studies.reproduce.tuned import training

RUN = {"rows": [{"round": 0, "train_cost": 2.25}], "returned": {}, "feasible": True, "notes": []}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    made = Cache(tmp_path / "cache", "code1")
    made.create()
    return made


def test_hit_and_miss(cache: Cache) -> None:
    cache.put("a", RUN, {"seed": 0})
    assert cache.get("a") == RUN
    assert cache.get("b") is None
    assert [path.name for path in cache.folder.iterdir()] == ["a-code1.json"]


def test_another_version_of_the_code_is_ignored_and_counted(cache: Cache) -> None:
    cache.put("a", RUN, {})
    cache.put("b", RUN, {})
    newer = Cache(cache.folder, "code2")
    assert newer.get("a") is None
    assert newer.outdated(["a", "b", "c"]) == 2
    newer.put("a", RUN, {})
    assert newer.outdated(["a", "b", "c"]) == 1
    assert cache.outdated(["a", "b", "c"]) == 0
    assert cache.get("a") == RUN


@pytest.mark.parametrize(
    "damage", ["", "{", "null", "[]", '{"key": "a"}', "\x00\x01", "half", "bit"]
)
def test_damaged_files_are_ignored(cache: Cache, damage: str) -> None:
    cache.put("a", RUN, {})
    file = cache.folder / "a-code1.json"
    text = file.read_text()
    changed = {"half": text[: len(text) // 2], "bit": text.replace("2.25", "2.26")}
    file.write_text(changed.get(damage, damage))
    assert cache.get("a") is None
    cache.put("a", RUN, {})
    assert cache.get("a") == RUN


def test_the_file_of_another_key_is_not_believed(cache: Cache) -> None:
    cache.put("a", RUN, {})
    (cache.folder / "a-code1.json").rename(cache.folder / "b-code1.json")
    assert cache.get("b") is None


def test_a_half_written_draft_is_nothing(cache: Cache) -> None:
    (cache.folder / ".a-code1.json.99.part").write_text(json.dumps({"key": "a"})[:5])
    assert cache.get("a") is None
    assert cache.outdated(["a"]) == 0


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .* --cache"):
        Cache(tmp_path / "file" / "cache", "code").create()
    with pytest.raises(UserError, match="finished runs are kept"):
        Cache(tmp_path / "gone", "code").put("a", RUN, {})


def test_the_key_is_what_decides_the_numbers_and_not_the_place() -> None:
    def key(*settings: str, at: tuple[int, ...] = (0, 5), data: str = "d", task: str = "train"):
        return run_key(task, parse("", settings), at, data)

    assert key() == key("data.dir=/elsewhere")
    others = [key("run.seed=1"), key("algorithm.batch=11"), key(at=(0, 6)), key(data="e")]
    assert len({key(), key(task="identity"), *others}) == 6


def test_the_fingerprint_sees_code_and_not_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "methods"
    room.mkdir()
    (tmp_path / "studies" / "reproduce").mkdir(parents=True)
    (tmp_path / "studies" / "reproduce" / "runs.py").write_text(
        "from fedssca.methods.deep import f\n"
    )
    deep, other, package = room / "deep.py", room / "other.py", room / "__init__.py"
    deep.write_text('def f():\n    """Old."""\n    if 0:\n        raise E("old")\n    return 1\n')
    other.write_text("x = 1\n")
    package.write_text("")
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    first = fingerprint()
    deep.write_text(
        '# A comment.\ndef f():\n    if 0:\n        raise E(f"{f}")\n    return 1  # same\n'
    )
    other.write_text("x = 2\n")
    assert fingerprint() == first
    package.write_text("x = 1\n")
    second = fingerprint()
    assert second != first
    deep.write_text("def f():\n    return 2\n")
    assert fingerprint() not in (first, second)


def test_the_fingerprint_covers_what_trains_and_not_what_shows() -> None:
    seen = module._imported([module.ROOT])
    for name in (
        "data.sampling",
        "methods.ssca",
        "methods.steered",
        "rounds.fused",
        "run.simulate",
        "studies.reproduce.identity",
    ):
        assert f"fedssca.{name}" in seen
    rooms = {name.split(".")[1] for name in seen}
    assert not rooms & {"cli", "report", "deploy"}
    studies = {name for name in seen if name.startswith("fedssca.studies.")}
    own = "fedssca.studies.reproduce"
    assert studies == {own, f"{own}.identity", f"{own}.runs"}
    for name in module.WITHOUT_NUMBERS:
        assert name not in seen
        assert find_spec(name) is not None, f"{name} is no module any more"


def test_the_fingerprint_of_the_tuned_comparison_covers_its_own_training() -> None:
    seen = module._imported([training.__name__])
    assert {"fedssca.run.tune.validation", training.__name__} <= set(seen)
    assert fingerprint(training.__name__) != fingerprint()
