"""What the clients measured of one model, summed over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Message

__all__ = ["Values"]


class Values:
    """F_0..F_M over the rows of all clients that replied, and F_1..F_M of each of them."""

    def __init__(self, replies: Iterable[Message], names: list[str], weight: str) -> None:
        good = sorted(
            (reply for reply in replies if not reply.has_error()),
            key=lambda reply: reply.metadata.src_node_id,
        )
        metrics = [next(iter(reply.content.metric_records.values())) for reply in good]
        self.clients = [reply.metadata.src_node_id for reply in good]
        sums = np.array([[each[f"sum of {n}"] for n in names] for each in metrics], float)
        rows = np.array([[each[f"rows of {n}"] for n in names] for each in metrics], float)
        self.rows = rows.sum(axis=0)
        every = np.array([each[weight] for each in metrics], float)
        self.all_rows = float(every.sum())
        losses = np.array([each["objective"] for each in metrics], float)
        self.loss = float(losses @ every / max(1.0, self.all_rows))
        pushes = np.array(
            [[each[f"slope of {n}"] for n in ["objective", *names]] for each in metrics]
        )
        counts = np.array([max(1.0, self.all_rows), *self.rows])
        with np.errstate(invalid="ignore", divide="ignore"):  # no row may count for a limit
            lengths = np.sqrt(pushes.sum(axis=0)) / counts
            self.ratios = np.where(lengths[1:] > 0, lengths[0] / lengths[1:], np.inf)
            self.values = np.where(self.rows > 0, sums.sum(axis=0) / self.rows, 0.0)
            self.by_client = sums / rows

    def about(self, m: int) -> dict[str, Any]:
        """Value, rows and worst client of limit m."""
        seen = self.by_client[:, m][~np.isnan(self.by_client[:, m])]
        worst = float(seen.max()) if len(seen) else 0.0
        value, rows = float(self.values[m]), int(self.rows[m])
        return {"value": value, "rows": rows, "worst_client": worst}
