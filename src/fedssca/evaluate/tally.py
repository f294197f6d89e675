"""The results of a model on training and held-out rows: of all, of every group, of every client.

All of it is made from sums over rows (`passes.tallied`). Where clients hide their sums from the
server, only the sums over all of them are known, and the results of single clients are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedssca.evaluate.estimate import Estimate
from fedssca.evaluate.passes import Sums
from fedssca.problem.problem import Problem
from fedssca.problem.task_kinds import METRICS

__all__ = ["SHARED_ROWS", "Tally", "TallySums", "client_results", "divided", "group_results"]

Row = dict[str, Any]
SHARED_ROWS = "the clients hold columns of the same rows"
"""Why parties with columns have no results of their own."""


class TallySums(NamedTuple):
    """Sums over the training rows and over the held-out rows."""

    train: Sums
    """Line 0 is over all rows; one line for each of the problem's parts follows."""
    test: Sums | None
    """The same for held-out rows; None if there are none."""
    clients: Sums | None = None
    """One line per client; None if they are not known."""
    test_clients: Sums | None = None
    """The same for the clients' own held-out rows; None if these rows belong to no client."""
    hidden: str = ""
    """Why the sums of single clients are not known."""


class Tally(NamedTuple):
    """Sums over rows, and the weights of the rates in every quantity."""

    weights: Mapping[str, Sequence[float]]
    sums: TallySums
    rooted: frozenset[str] = frozenset()
    """As in `Problem`."""
    report: Callable[[Mapping[str, float]], dict[str, float]] = dict
    """As in `Problem`."""

    def estimate(self, sums: Sums | None, name: str, line: int = 0) -> Estimate | None:
        """A quantity on the rows of a line; None if it is not known there."""
        if sums is None or name not in sums or line >= len(sums[name][0]):
            return None
        weights = np.array(self.weights[name], float)
        order = np.argsort(-weights, kind="stable")  # of a gap, what is subtracted comes last
        found = np.array([rate[line] for rate in sums[name]], float)
        return Estimate(weights[order].tolist(), found[order], name in self.rooted)

    def values(self, sums: Sums | None, line: int) -> dict[str, float]:
        """All quantities that are defined on the rows of a line: loss and metrics first."""
        first = [name for name in ("cost", *METRICS) if name in self.weights]
        names = [name for name in dict.fromkeys([*first, *self.weights]) if name in (sums or ())]
        found = {name: self.estimate(sums, name, line) for name in names}
        known = {name: each.value for name, each in found.items() if each is not None}
        return self.report({name: value for name, value in known.items() if value is not None})

    def rows(self, sums: Sums | None, line: int) -> int | None:
        """The number of rows of a line, from a quantity that is a mean over all of them."""
        counted = self.estimate(sums, "cost", line)
        return None if counted is None else int(np.rint(counted.sums[0, 1]))


def divided(problem: Problem, train: Sums, test: Sums | None, hidden: str = "") -> TallySums:
    """Sums whose lines are all rows, the parts and then the clients, as `TallySums`."""
    end = 1 + len(problem.parts)

    def cut(sums: Sums | None, lines: slice) -> Sums | None:
        return sums and {name: [rate[lines] for rate in rates] for name, rates in sums.items()}

    def clients(sums: Sums | None) -> Sums | None:
        own = cut(sums, slice(end, None)) or {}
        return {name: rates for name, rates in own.items() if len(rates[0])} or None

    first = slice(0, end)
    return TallySums(
        cut(train, first) or {}, cut(test, first), clients(train), clients(test), hidden
    )


def client_results(tally: Tally) -> list[Row]:
    """The number of rows and all quantities of every client; empty if they are not known."""
    sums = tally.sums
    if sums.clients is None:
        return []
    count = max((len(rates[0]) for rates in sums.clients.values()), default=0)
    return [_result(tally, sums.clients, sums.test_clients, i) for i in range(count)]


def group_results(problem: Problem, tally: Tally) -> list[Row]:
    """Column, group, number of rows and all quantities of every group.

    A gap compares groups, so it is no quantity of one of them.
    """
    single = {name for name, weights in tally.weights.items() if len(weights) == 1}

    def own(sums: Sums | None) -> Sums | None:
        return sums and {name: rates for name, rates in sums.items() if name in single}

    train, test = own(tally.sums.train) or {}, own(tally.sums.test)
    return [
        {"column": part.column, "group": part.title} | _result(tally, train, test, line)
        for line, part in enumerate(problem.parts, start=1)
    ]


def _result(tally: Tally, train: Sums, test: Sums | None, line: int) -> Row:
    out: Row = {"rows": tally.rows(train, line), "train": tally.values(train, line)}
    if values := tally.values(test, line):
        out |= {"test_rows": tally.rows(test, line), "test": values}
    return out
