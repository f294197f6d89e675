"""A folder of NPY files: read where it lies, with errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca import UserError, load
from fedssca.run.config import parse
from fedssca.run.execute import execute


def write(folder: Path, rows: int = 200, **changed: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, rows)
    x = np.clip(rng.normal(60 * (y[:, None] == np.arange(6) % 3) + 60, 20), 0, 255)
    arrays = {"x": x.astype(np.uint8), "y": y, "x_test": x[:50].astype(np.uint8), "y_test": y[:50]}
    folder.mkdir(exist_ok=True)
    for name, array in (arrays | changed).items():
        np.save(folder / f"{name}.npy", array)
    return folder


def test_rows_stay_on_disk(tmp_path: Path) -> None:
    data = load(None, path=str(write(tmp_path / "big")))
    assert isinstance(data.train["x"], np.memmap)
    assert data.train["x"].dtype == np.uint8
    assert (data.name, data.classes, len(data.features)) == ("big", 3, 6)
    assert data.scale == 1 / int(data.train["x"].max())


@pytest.mark.long
def test_a_run_on_a_folder_equals_the_run_in_memory(tmp_path: Path) -> None:
    folder = write(tmp_path / "big")
    arrays = {p.stem: np.load(p) for p in folder.glob("*.npy")}
    np.savez(tmp_path / "small.npz", **arrays)
    settings = ["algorithm.rounds=20", "data.clients=4", "algorithm.batch=8", "model.hidden=8"]
    ends = []
    for path in (folder, tmp_path / "small.npz"):
        out = tmp_path / f"run of {path.name}"
        execute(parse("", [*settings, f'data.path="{path}"']), out)
        ends.append(np.load(out / "model.npz")["w"])
    assert np.array_equal(*ends)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x": np.zeros((200, 6))}, "float64, shape"),
        ({"x": np.zeros((200, 2, 3), np.uint8)}, "it should be \\(rows, features\\)"),
        ({"y": np.zeros((200, 2), int)}, "one whole number per row"),
        ({"y": np.full(200, 0.5)}, "one whole number per row"),
        ({"y": np.arange(200) - 5}, "labels out of range"),
        ({"y": np.zeros(199, int)}, "199 rows where x has 200"),
        ({"x_test": np.zeros((50, 7), np.uint8)}, "they should be alike"),
        ({"x": np.full((200, 6), np.nan, np.float32)}, "alike|holds nan in row 1"),
    ],
)
def test_bad_folders(tmp_path: Path, changed: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load(None, path=str(write(tmp_path / "big", **changed)))


def test_missing_and_broken_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "big")
    (folder / "y_test.npy").write_bytes(b"garbage")
    with pytest.raises(UserError, match="cannot be read as an NPY file"):
        load(None, path=str(folder))
    (folder / "y_test.npy").unlink()
    with pytest.raises(UserError, match="y_test"):
        load(None, path=str(folder))
