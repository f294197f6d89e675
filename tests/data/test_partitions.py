"""Clients from partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedssca import UserError, from_partitions
from fedssca.run.config import parse
from fedssca.run.schema.data import PARTITIONERS


class Table(dict[str, Any]):
    """A table as Hugging Face's datasets are: cells by column."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


class Federated:
    """What flwr-datasets' FederatedDataset offers: partitions of splits by number."""

    def __init__(self, *tables: Table) -> None:
        self.tables = tables
        self.partitioners = {"train": SimpleNamespace(num_partitions=len(tables))}

    def load_partition(self, partition_id: int, split: str | None = None) -> Table:
        assert split == "train"
        return self.tables[partition_id]


A = Table(age=[30, 40, 50], pay=[1.5, 2.5, 3.5], sex=[0, 1, 1], label=[0, 1, 1])
PICTURES = Table(img=[np.zeros((2, 3), np.uint8)] * 2, label=[1, 0])
PAIRS = [(np.ones(2), 0), (np.zeros(2), 1)]


def test_tables_and_federated_datasets() -> None:
    clients = from_partitions(Federated(A, A), keep=["sex"], names=["a", "b"])
    assert (clients.sizes, clients.names) == ((3, 3), ("a", "b"))
    own = clients.client(1)
    np.testing.assert_array_equal(own["x"], np.array([[30, 1.5], [40, 2.5], [50, 3.5]]))
    np.testing.assert_array_equal(own["sex"], [0, 1, 1])
    assert (own["x"].dtype, own["y"].dtype) == (np.float32, np.int32)
    assert from_partitions([A], label="sex", features=["pay"]).columns["x"].shape == (3, 1)
    pictures = from_partitions([PICTURES, PICTURES]).columns["x"]
    assert (pictures.shape, pictures.dtype) == ((4, 2, 3), np.uint8)


def test_datasets_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rows = torch.utils.data.TensorDataset(torch.randn(10, 2, 3), torch.arange(10))
    parts = torch.utils.data.random_split(rows, [7, 3])
    clients = from_partitions(parts)
    assert clients.sizes == (7, 3)
    np.testing.assert_array_equal(np.sort(clients.columns["y"]), np.arange(10))


UNLABELLED = Table(a=[1, 2], b=[3, 4])


@pytest.mark.parametrize(
    ("partitions", "options", "said"),
    [
        ([], {}, "there is no partition"),
        ([UNLABELLED], {}, "partition 0 has no label column; set label to one of a, b"),
        ([UNLABELLED], {"label": "c"}, "partition 0 has no column 'c'"),
        ([A, Table(age=[1], label=[0])], {}, "partition 1: column 'x' has rows of shape"),
        ([A, UNLABELLED], {"features": ["pay"], "label": "label"}, "partition 1 has no column"),
        ([Table(a=["x"], y=[0])], {}, "column 'a' holds <U1, not numbers"),
        ([Table(a=[1], b=[[1, 2]], y=[0])], {}, "name one: features"),
        ([Table(y=[0])], {}, "only the label"),
        ([[np.zeros(2)]], {}, "gives ndarray, so it has no labels"),
        ([PAIRS], {"label": "a"}, "has no columns"),
        ([PAIRS, []], {}, "partition 1 has no rows"),
        (Federated(A), {"split": "test"}, "split 'test' has no partitioner; set split to train"),
    ],
)
def test_refused(partitions: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        from_partitions(partitions, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("theirs", "ours"), PARTITIONERS.items())
def test_names_of_partitioners(theirs: str, ours: str) -> None:
    assert parse("", [f"data.partition={theirs}"]).data.partition == ours
