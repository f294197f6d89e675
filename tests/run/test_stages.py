"""Stages: when training goes on, where it goes on from, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.evaluate.certificate import BestPoints
from fedssca.methods.algorithm import State
from fedssca.run import stages
from fedssca.run.result import Result
from fedssca.run.simulate import Checkpoint
from fedssca.run.stages import for_rounds, until_converged

UNFINISHED = "training is not finished"


class Trainer:
    """Stands in for training: what it was asked for, and results with given values."""

    def __init__(self, *reached: tuple[float, float], converged: int = 0, last: int = 0) -> None:
        self._reached, self._converged, self._last = list(reached), converged, last
        self.asked: list[tuple[int, int]] = []
        """(the rounds to train up to, the round from which it goes on)."""
        self.begins: list[Checkpoint | None] = []

    def __call__(
        self, rounds: int, begin: Checkpoint | None, earlier: Sequence[dict[str, Any]]
    ) -> Result:
        self.asked.append((rounds, 0 if begin is None else int(begin.state.round)))
        self.begins.append(begin)
        violation, objective = self._reached.pop(0) if self._reached else (0.0, 1 / rounds)
        row = {"round": rounds - 1, "objective": objective, "constraints": [violation]}
        done = rounds == self._converged
        certificate = {"feasible": True, "kkt_residual": 0.2, "more_rounds": 7, "prices": ""}
        rows = [*earlier, {"round": 0, "objective": 3.0, "constraints": [1.0]}, row]
        return Result(
            w=np.zeros(1),
            params=(),
            last=np.zeros(1),
            final=row,
            certificate=certificate | {"converged": done},
            notes=[]
            if done
            else [
                "training is not finished (KKT residual 0.2, finished below "
                "0.05): about 7 more rounds"
            ],
            rows=rows,
            state=state(min(rounds - 1, self._last or rounds)),
        )


def state(round_: int) -> State:
    zero = jnp.zeros(1)
    return State(jnp.asarray(round_), zero, (), zero, zero, jnp.ones(()))


def at(round_: int, **more: Any) -> Checkpoint:
    return Checkpoint(state(round_), BestPoints(), 5.0, **more)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "FIRST", 4)


def test_stages_double_up_to_the_most() -> None:
    train = Trainer()
    result = until_converged(train, 20)
    assert train.asked == [(4, 0), (8, 3), (16, 7), (20, 15)]
    assert result.notes[0].startswith(UNFINISHED)
    assert result.notes[1] == "training ended at max_rounds = 20 before it had converged"
    assert [begin.reached for begin in train.begins[1:] if begin] == [
        (0, 1 / 4),
        (0, 1 / 8),
        (0, 1 / 16),
    ]
    assert [len(result.rows), until_converged(Trainer(), 3).final["round"]] == [8, 2]


def test_training_ends_when_it_has_converged() -> None:
    train = Trainer(converged=8)
    assert until_converged(train, 100).notes == []
    assert train.asked == [(4, 0), (8, 3)]


def test_training_ends_where_it_diverged() -> None:
    train = Trainer(last=5)
    until_converged(train, 100)
    assert train.asked == [(4, 0), (8, 3)]


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        ([(0, 1.0), (0, 0.9995)], "lowered the objective by less than 0.1 %"),
        ([(0, 1.0), (0, 1.5)], "lowered the objective"),
        ([(0, 1e-9), (0, -1e-4)], "lowered the objective"),  # from 3: 0.1 % of a tenth of it
        ([(0.5, 1.0), (0.4, 1.0), (0.4, 0.1)], "brought the limits no nearer"),
        ([(0.5, 1.0), (0, 2.0), (0, 1.9999)], "lowered the objective"),
    ],
)
def test_training_ends_when_a_stage_gains_nothing(
    reached: list[tuple[float, float]], words: str
) -> None:
    train = Trainer(*reached)
    (note,) = until_converged(train, 1000).notes
    rounds = 4 * 2 ** (len(reached) - 1)
    assert note.startswith(f"training ended after {rounds} rounds: ")
    assert words in note
    assert len(train.asked) == len(reached)


@pytest.mark.parametrize("begun", [4, 6, 7])
def test_a_stage_is_completed(begun: int) -> None:
    train = Trainer(converged=16)
    until_converged(train, 100, at(begun, reached=(0.0, 0.5)))
    assert train.asked == [(8, begun), (16, 7)]
    assert train.begins[0] is not None
    assert train.begins[0].reached == (0.0, 0.5)
    assert train.begins[1] is not None
    assert train.begins[1].seconds >= 5


def test_the_end_of_a_stage_is_judged_again() -> None:
    train = Trainer(converged=4)
    until_converged(train, 100, at(3))
    assert train.asked == [(4, 3)]


def test_a_run_that_ended_goes_on_whatever_was_said_of_it() -> None:
    train = Trainer(converged=4)
    until_converged(train, 6, at(3, ended=True))
    assert train.asked == [(4, 3), (6, 3)]
    train = Trainer((0, 1.0), (0, 0.9))
    until_converged(train, 12, at(9, ended=True, reached=(0, 1.0)))
    assert train.asked == [(10, 9), (12, 9)]


def test_a_number_of_rounds_is_that_number() -> None:
    train = Trainer(converged=1)
    for_rounds(train, 9)
    for_rounds(train, 9, at(5))
    for_rounds(train, 9, at(5, ended=True))
    assert train.asked == [(9, 0), (9, 5), (6, 5), (9, 5)]
