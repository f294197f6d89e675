"""Estimators that are not trained, for tests of what they take and return."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fedssca.run.estimators.federated import FederatedEstimator


class StartingPoint(NamedTuple):
    """In the place of the result of a training."""

    params: Any
    feasible: bool = True
    converged: bool = True
    notes: tuple[str, ...] = ()


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit` does all but train: the model keeps the parameters that it starts with."""
    monkeypatch.setattr(
        FederatedEstimator, "_train", lambda self, *_: StartingPoint(self._network().init(1))
    )
