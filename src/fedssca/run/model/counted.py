"""What limits need to know of the training rows: how many have which label and are in which group.

With these counts the problem of a run can be posed again without its rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedssca.data import Columns, Rows
from fedssca.problem.constraints.cells import representatives
from fedssca.run.schema import Config

__all__ = ["CountedRows"]


@dataclass(frozen=True)
class CountedRows:
    """The numbers of training rows with the same values in all columns that limits use."""

    sizes: tuple[int, ...]
    """The number of rows of each client; one number if the clients hold columns."""
    names: tuple[str, ...]
    """The names of the clients; empty if they have numbers only."""
    columns: dict[str, tuple[float, ...]]
    """For each column the value of each kind of rows; the labels 0, 1, ... are the column y."""
    counts: tuple[int, ...]
    """How many rows there are of each kind."""

    @classmethod
    def of(cls, config: Config, clients: Rows | Columns) -> CountedRows:
        """Count the training rows, client by client if there are limits for single clients.

        Of a column that is divided into bins, only the bins are counted.
        """
        rows, posed = isinstance(clients, Rows), config.problem
        sizes = clients.sizes if isinstance(clients, Rows) else (clients.total,)
        held = {n: v for n, v in clients.beside().items() if n == "y" or n in posed.columns}
        if posed.target == "labels":  # other labels are those of no limit
            held["y"] = held["y"] & config.limited_labels
        elif posed.target != "class":  # limits count groups of rows, whatever their targets are
            held["y"] = np.zeros(clients.total, np.float32)
        for name, ends in posed.bins.items():
            if name in held and held[name].dtype.kind == "f":
                held[name] = representatives(held[name], ends)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        parts = [owners if rows and posed.counts_per_client else np.zeros_like(owners)]
        if posed.counts:
            parts += [values.astype(np.float64) for values in held.values()]
        kinds, counts = np.unique(np.stack(parts), axis=1, return_counts=True)
        values = kinds[1:] if posed.counts else np.zeros((len(held), kinds.shape[1]))
        return cls(
            tuple(int(size) for size in sizes),
            clients.names if isinstance(clients, Rows) else (),
            {name: tuple(map(float, own)) for name, own in zip(held, values, strict=True)},
            tuple(int(count) for count in counts),
        )

    def rows(self, features: int, text: set[str]) -> Rows:
        """Rows with these counts and zeros for x; the columns `text` are places among kinds."""
        columns = {
            name: np.repeat(np.array(values), self.counts).astype(
                np.int32 if name == "y" or name in text else np.float32
            )
            for name, values in self.columns.items()
        }
        zeros = np.broadcast_to(np.zeros((1, 1), np.float32), (sum(self.sizes), features))
        return Rows({"x": zeros, **columns}, self.sizes, names=self.names)

    def state(self) -> dict[str, Any]:
        """The counts as plain values, from which `from_state` makes them again."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> CountedRows:
        """The counts that gave this state."""
        columns = {name: tuple(values) for name, values in state["columns"].items()}
        return cls(tuple(state["sizes"]), tuple(state["names"]), columns, tuple(state["counts"]))
