"""Clients from data loaders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedssca import UserError, from_loaders


def batches(rows: int, shape: tuple[int, ...] = (3,)) -> list[Any]:
    x = np.arange(rows * np.prod(shape), dtype=float).reshape(rows, *shape)
    return [(x[i : i + 4], np.arange(i, min(i + 4, rows))) for i in range(0, rows, 4)]


def test_every_loader_is_a_client() -> None:
    tables = [{"x": x, "y": y, "age": y + 1} for x, y in batches(6)]
    clients = from_loaders([tables, tables[:1]], names=["a", "b"])
    assert clients.sizes == (6, 4)
    assert clients.names == ("a", "b")
    assert {name: column.dtype.name for name, column in clients.columns.items()} == {
        "x": "float32",
        "y": "int32",
        "age": "int32",
    }
    np.testing.assert_array_equal(clients.client(0)["x"], np.arange(18.0).reshape(6, 3))


@pytest.mark.parametrize(
    ("loaders", "said"),
    [
        ([], "there is no loader; give at least one"),
        ([batches(4), []], "loader 1 gives no batch"),
        ([[np.zeros(3)]], "loader 0 gives ndarray"),
        ([batches(4), batches(4, (2, 2))], r"loader 1: column 'x' has rows of shape \(2, 2\)"),
        ([[(np.zeros((3, 2)), np.zeros(2))]], "different numbers of rows"),
        ([[*batches(4), *batches(4, (2, 2))]], "loader 0: column 'x' has rows of the shapes"),
    ],
)
def test_refused(loaders: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        from_loaders(loaders)


def test_loaders_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rows = torch.utils.data.TensorDataset(torch.randn(10, 2, 3), torch.arange(10))
    clients = from_loaders([torch.utils.data.DataLoader(rows, batch_size=4)])
    assert clients.columns["x"].shape == (10, 2, 3)
    np.testing.assert_array_equal(clients.columns["y"], np.arange(10))
