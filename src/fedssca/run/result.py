"""What a run returns: the trained model, its certificate, and the evaluated rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedssca.evaluate.certificate import BestPoints
from fedssca.methods.algorithm import State
from fedssca.problem.problem import Params

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["Result"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The trained model, its certificate, and the evaluated rounds."""

    w: np.ndarray
    """The model's parameters: the best feasible point, or the last one without constraints."""
    params: Params
    """The same as the model's own tree."""
    last: np.ndarray
    """w(T), where the algorithm ended."""
    final: Row
    """The last row, with objective, constraints and rates of the returned model."""
    certificate: Row
    """Feasible or not, KKT residual, and `limits`: every limit with its value on training and
    held-out rows, margin and multiplier. `constraints` are the single sides of the limits."""
    notes: list[str]
    """Plain sentences: why limits are broken, if any are; why training ended early, if it did."""
    rows: list[Row]
    """One dictionary per evaluated round, as in metrics.jsonl."""
    state: State
    diverged: str = ""
    """Why training ended at an earlier point, if it diverged at the end; empty otherwise."""
    privacy: Row = field(default_factory=dict)
    """What was spent: epsilon, delta, the accountant and what they cover; {} without noise."""
    clients: list[Row] = field(default_factory=list)
    """One entry per client: its number of rows, and all quantities on them by name."""
    groups: list[Row] = field(default_factory=list)
    """The same per group of rows: those of the columns that the limits use."""
    hidden: str = ""
    """Why there are no entries of clients; empty if there are."""
    points: BestPoints = field(default_factory=BestPoints, repr=False)
    """The best points seen, which a run that goes on from `state` remembers."""

    @property
    def feasible(self) -> bool:
        """All constraints hold on the full training data."""
        return bool(self.certificate["feasible"])

    @property
    def converged(self) -> bool:
        """All limits are kept, and hardly anything is left to gain."""
        return bool(self.certificate["converged"])

    @property
    def kkt_residual(self) -> float | None:
        """How far the returned model is from a KKT point, free of units; None in runs with noise.

        Their gradients over all rows are not computed.
        """
        residual = self.certificate["kkt_residual"]
        return None if residual is None else float(residual)

    def plot(self, **others: Result) -> Figure:
        """The curves as a matplotlib figure, with limits and the returned model; beside `others`.

        `result.plot(unconstrained=twin).savefig("curves.png")` draws two results.
        """
        from fedssca.run.show import figure

        return figure({"result": self, **others})

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table; a constraint named fnr has the columns constraint_fnr (F_m, its
        limit subtracted), slack_fnr and multiplier_fnr.
        """
        from fedssca.run.show import frame

        return frame(self)

    def _repr_html_(self) -> str:
        from fedssca.run.show import html

        return html(self)
