"""Sources of rows: any blocks in, exactly the same rows out, and errors that name the client."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.data import Rows, Streams, follow_csv, from_queue
from fedssca.data.stream import Reader
from fedssca.errors import UserError

CHECK = {"x": np.zeros((4, 2), np.float32), "y": np.zeros(4, np.int32)}


def block(first: int, rows: int) -> dict[str, np.ndarray]:
    number = np.arange(first, first + rows)
    return {"x": np.stack([number, -number], 1).astype(np.float32), "y": number.astype(np.int32)}


def room(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.full((rows, 2), np.nan, np.float32), "y": np.full(rows, -1, np.int32)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 13), max_size=12))
def test_any_blocks_in_the_same_rows_out(given: list[int], asked: list[int]) -> None:
    starts = np.cumsum([0, *given])
    blocks = (block(int(s), n) for s, n in zip(starts, given, strict=False))
    reader, at = Reader(0, blocks, CHECK), 0
    for n in asked:
        out = room(n)
        got = reader.fill(out)
        assert got == min(n, sum(given) - at)
        wanted = block(at, got)
        for name, column in wanted.items():
            assert np.array_equal(out[name][:got], column)
        assert (out["y"][got:] == -1).all()
        at += got
        assert reader.taken == at


def test_a_block_is_asked_for_only_when_it_is_needed() -> None:
    given = []

    def source() -> Any:
        for k in range(100):
            given.append(k)
            yield block(5 * k, 5)

    reader = Reader(0, source(), CHECK)
    assert given == []
    reader.fill(room(7))
    assert given == [0, 1]
    reader.fill(room(3))
    assert given == [0, 1]


def test_a_source_may_reuse_its_arrays() -> None:
    def source() -> Any:
        own = block(0, 3)
        for k in range(4):
            own["y"][:] = range(3 * k, 3 * k + 3)
            yield own

    out = room(12)
    reader = Reader(0, source(), CHECK)
    assert [reader.fill({n: v[s : s + 4] for n, v in out.items()}) for s in (0, 4, 8)] == [4] * 3
    assert out["y"].tolist() == list(range(12))


def test_lists_and_wider_numbers_are_rows_too() -> None:
    out = room(2)
    assert Reader(0, [{"x": [[1.5, 2]], "y": [3]}, block(7, 1)], CHECK).fill(out) == 2
    assert out["x"].tolist() == [[1.5, 2], [7, -7]]
    assert out["y"].tolist() == [3, 7]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"x": np.zeros((1, 2))}, r"client 1: a block should have the columns \['x', 'y'\]"),
        (np.zeros((1, 2)), "it is ndarray"),
        ({"x": np.zeros((1, 3)), "y": [1]}, r"client 1: column 'x' has the shape \(1, 3\)"),
        ({"x": np.zeros(2), "y": 1}, "a single row is a block of 1"),
        ({"x": np.zeros((1, 2)), "y": [1.0]}, "client 1: column 'y' is float64, in check it is"),
        ({"x": np.zeros((1, 2)), "y": [1, 2]}, "client 1: the columns of a block differ in rows"),
    ],
)
def test_bad_blocks(bad: Any, words: str) -> None:
    streams = Streams([[block(0, 1)], [block(0, 1), bad]], check=CHECK)
    assert streams.readers[0].fill(room(1)) == 1
    with pytest.raises(UserError, match=words) as caught:
        streams.readers[1].fill(room(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sources", "options", "words"),
    [
        ([[]], {}, "check is missing: a stream is not kept"),
        ([], {"check": CHECK}, "a list of iterables"),
        (iter([[]]), {"check": CHECK}, "a list of iterables"),
        ([[], CHECK], {"check": CHECK}, "client 1: a source is an iterable of blocks"),
        ([[], 3], {"check": CHECK}, "client 1: .* not int"),
        ([[]], {"check": {"x": np.zeros((2, 2)), "y": np.zeros(3)}}, "the same length"),
        ([[]], {"check": {"x": np.zeros((0, 2)), "y": np.zeros(0)}}, "at least 1 row"),
        ([[]], {"check": {}}, "at least 1 row"),
        ([[], []], {"check": Rows(CHECK, (1, 1, 2))}, "rows of 3 clients for 2 sources"),
        ([[], []], {"check": CHECK, "weights": [1]}, "1 entries for 2 sources"),
        ([[], []], {"check": CHECK, "weights": [1, 0]}, "should be positive"),
    ],
)
def test_bad_streams(sources: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Streams(sources, **options)


def test_weights_are_shares() -> None:
    assert Streams([[], []], check=CHECK).share.tolist() == [0.5, 0.5]
    assert Streams([[], []], check=CHECK, weights=[1, 3]).share.tolist() == [0.25, 0.75]


def test_a_queue_ends_with_none_or_when_nothing_comes() -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    for k in range(3):
        waiting.put(block(k, 1))
    waiting.put(None)
    assert [int(b["y"][0]) for b in from_queue(waiting)] == [0, 1, 2]
    waiting.put(block(9, 1))
    assert len(list(from_queue(waiting, wait=0.01))) == 1


# CSV files ---------------------------------------------------------------------------------------


def test_rows_appended_while_it_is_read_and_half_a_line(tmp_path: Path) -> None:
    path, stop = tmp_path / "log.csv", threading.Event()
    path.write_text("a,kind,b\r\n1,0,2\r\n3,1,")
    rows = follow_csv(path, label="kind", wait=0.001, stop=stop)
    first = next(rows)
    assert first["x"].tolist() == [[1, 2]]
    assert first["x"].dtype == np.float32
    assert first["y"].tolist() == [0]
    with path.open("a") as file:
        file.write("4\n5,2,6\n\n7,")
    second = next(rows)
    assert second["x"].tolist() == [[3, 4], [5, 6]]
    assert second["y"].tolist() == [1, 2]
    with path.open("a") as file:
        file.write("0,8\n9,1,1")  # the last line has no newline: it may be a 10
    stop.set()
    (last,) = rows
    assert last["x"].tolist() == [[7, 8]]


def test_a_header_that_comes_later_and_chosen_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.touch()
    rows = follow_csv(path, label="y", columns=["c", "a"], dtype=float, wait=0.001)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(next(rows)))
    thread.start()
    with path.open("a") as file:
        file.write('\ufeffa,b,"c",y\n1,x,3,0\n')
    thread.join(timeout=300)
    assert seen[0]["x"].tolist() == [[3, 1]]
    assert seen[0]["x"].dtype == np.float64


def test_a_quiet_file_ends_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(300_000)))  # several chunks
    blocks = list(follow_csv(path, label="y", wait=0.001, idle=0.01))
    assert len(blocks) > 1
    values = np.concatenate([b["x"][:, 0] for b in blocks])
    assert np.array_equal(values, np.arange(300_000))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "has no column 'y'; it has a, b"),
        ("a,y\n1,2\n3\n", "line 3: not all numbers: '3'"),
        ("a,y\n1,2\n\n,1\n", "line 4: not all numbers: ',1'"),
        ("a,y\n1,2\nnan,1\n", "line 3: not all numbers: 'nan,1'"),
        ("a,y\n1,0.5\n", "label 'y' is 0.5; labels are whole"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        list(follow_csv(path, label="y", idle=0))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not there; follow_csv needs a file"):
        follow_csv(tmp_path / "none.csv", label="y")
