"""A classifier that is not trained, for tests of what it takes and returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fedssca import FederatedClassifier


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
        FederatedClassifier, "_train", lambda self, *_: StartingPoint(self._network().init(1))
    )
