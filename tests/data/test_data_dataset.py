"""What `check` refuses, and data sets made of arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedssca.data import Dataset, check, load
from fedssca.errors import UserError


def small() -> Dataset:
    def part() -> dict[str, np.ndarray]:
        return {
            "x": np.arange(8, dtype=np.float32).reshape(4, 2),
            "y": np.array([0, 1, 0, 1], np.int32),
            "sex": np.array([0, 1, 1, 0], np.float32),
        }

    return Dataset("small", part(), part(), 2, 1.0, ("a", "b"))


def test_good_data_passes() -> None:
    check(small())
    images = small()
    check(replace(images, train=images.train | {"x": np.ones((4, 2), np.uint8)}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.array([[0, 0], [0, 0], [0, np.nan], [0, 0]])}, r"train.*'b' holds nan in row 3"),
        ({"sex": np.array([0, np.inf, 0, 0])}, r"'sex' holds inf in row 2"),
        ({"y": np.array([0, 1, 2, 0])}, r"labels out of range: row 3 has label 2.*0 to 1"),
        ({"y": np.array([0, -1, 0, 0])}, "labels out of range"),
        ({"y": np.zeros(4, np.int32)}, "one label 0; at least two"),
        ({"y": np.zeros(4)}, "one whole number per row"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int), "sex": np.zeros(0)}, "empty"),
        ({"sex": np.zeros(3)}, "'sex' has 3 rows where x has 4"),
        ({"sex": np.array(["a", "b", "a", "b"])}, "should hold numbers"),
        ({"x": np.zeros((4, 3))}, r"should be \(rows, 2\)"),
        ({"more": np.zeros(4)}, "both need the same"),
    ],
)
def test_bad_columns(change: dict[str, np.ndarray], words: str) -> None:
    data = small()
    with pytest.raises(UserError, match=words) as caught:
        check(replace(data, train=data.train | change))
    assert "\n" not in str(caught.value)


def test_missing_column_and_bad_test_rows() -> None:
    data = small()
    with pytest.raises(UserError, match="'y' is missing"):
        check(replace(data, test={"x": data.test["x"]}))
    with pytest.raises(UserError, match="test rows: labels out of range"):
        check(replace(data, test=data.test | {"y": np.array([0, 1, 5, 1])}))


def refused(words: str, path: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load(None, path)
    assert "\n" not in str(caught.value)


def test_npz(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    x, y = np.arange(40, dtype=np.uint8).reshape(10, 2, 2), np.array(["n", "p"] * 5)
    np.savez(path, x=x, y=y, g=np.arange(10))
    data = load(None, path, keep=["g"])
    assert (data.train["x"].dtype, data.train["x"].shape) == (np.uint8, (8, 4))
    assert data.scale == 1 / 39
    assert np.array_equal(data.train["g"] % 2, data.train["y"])
    np.savez(path, x=x * 1.0, t=y, x_test=x[:2] * 1.0, t_test=y[:2])
    data = load(None, path, label="t")
    assert np.allclose(data.train["x"].mean(0), 0, atol=1e-6)
    assert len(data.test["y"]) == 2


def test_bad_npz(tmp_path: Path) -> None:
    path, x, y = str(tmp_path / "a.npz"), np.eye(4), np.array([0, 1, 0, 1])
    for arrays, words in (
        ({"x": x}, "no array 'y'; it has x"),
        ({"x": x, "y": y, "x_test": x}, "no array 'y_test'"),
        ({"x": x, "y": y[:2]}, "differ in rows"),
        ({"x": x, "y": y, "x_test": x[:, :2], "y_test": y}, "should be the same"),
        ({"x": x, "y": np.array([{}, {}, {}, {}])}, "plain arrays"),
        ({"x": x * np.nan, "y": y, "x_test": x, "y_test": y}, "'x0' holds nan in row 1"),
        ({"x": x, "y": np.eye(4)}, "give one label per row"),
        ({"x": x.astype(str), "y": y}, "rows of numbers"),
        ({"x": x[:0], "y": y[:0]}, "rows of numbers"),
    ):
        np.savez(path, **arrays)
        refused(words, path)
    np.save(tmp_path / "b.npy", x)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    refused("plain arrays", str(tmp_path / "b.npz"))
    whole = (tmp_path / "a.npz").read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        (tmp_path / "a.npz").write_bytes(content)
        refused("cannot be read as NPZ", path)


def test_the_names_of_classes_and_of_kept_text_are_known(tmp_path: Path) -> None:
    """Classes are in sorted order; whole numbers are written without a decimal point."""
    rows = [("well", 0), ("sick", 2), ("well", 1), ("sick", 2), ("well", 0), ("sick", 1)]
    text = "state,town,dose,y\n" + "".join(
        f"{state},{'nso'[i % 3]},{i},{2 * dose}\n" for i, (state, dose) in enumerate(rows)
    )
    (tmp_path / "t.csv").write_text(text)
    path = str(tmp_path / "t.csv")
    by_state = load(None, path, label="state", test_fraction=0.3, keep=["town", "dose"])
    assert by_state.labels == ("sick", "well")
    assert by_state.kinds == {"town": ("n", "o", "s")}
    by_dose = load(None, path, label="y", test_fraction=0.3)
    assert by_dose.labels == (0, 2, 4)
    assert all(type(name) is int for name in by_dose.labels)
    assert load("digits").labels == tuple(range(10))
    assert replace(small(), labels=(False, True)).labels == (False, True)
    with pytest.raises(UserError, match="3 names for 2 classes"):
        check(replace(small(), labels=("a", "b", "c")))
