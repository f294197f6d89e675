"""The fair comparison: equal budgets, rows that are kept apart, records that are used again."""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.run.build import load_dataset
from fedssca.run.config import parse
from fedssca.studies.reproduce.cache import Cache
from fedssca.studies.reproduce.tuned import comparison, training
from fedssca.studies.reproduce.tuned.comparison import (
    FEATURE,
    LONG,
    SAMPLE,
    Entry,
    Outcome,
    compare,
    draw,
    settings,
)
from fedssca.studies.reproduce.tuned.table import clear, table, verdict
from fedssca.studies.reproduce.tuned.table import draw as draw_figure
from fedssca.studies.reproduce.tuned.training import (
    Training,
    evaluation_rounds,
    in_processes,
    in_sequence,
    open_cache,
    rounds_to_target,
    train,
)

BASE = parse("[data]\nclients = 4\n[model]\nhidden = 4\n")
ENTRIES = (
    Entry("ssca", 5, 2, 25),
    Entry("sgd", 10, 1, 25),
    Entry("momentum", 10, 1, 25),
)
TARGETS = (0.3, 0.5)


def small(cache: Cache, **options: Any) -> list[Outcome]:
    given = {"mark": "digits", "trials": 2, "runs": 2, "targets": TARGETS} | options
    return compare(BASE, ENTRIES, cache, **given)


def pretend(items: Any, cache: Cache, done: Any) -> None:
    """Costs nothing: larger steps are faster."""
    for item in items:
        cache.put(item.key, {"curve": [[1, 0.2], [3, 0.6], [4, 0.6]], "wire": [1, 2, 3]}, {})
        done(item)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cache, list[Outcome], list[Training]]:
    """A small comparison, its cache and what was trained for it."""
    cache, trained = open_cache(tmp_path_factory.mktemp("comparison")), []

    def executor(items: Any, cache: Cache, done: Any) -> None:
        trained.extend(items)
        in_sequence(items, cache, done)

    return cache, small(cache, executor=executor), trained


def outcome(name: str, *rounds: float | None, target: float = 0.9, **more: Any) -> Outcome:
    method, shape = name.split()
    batch, steps = map(int, shape.split("x"))
    plain = {"trials": 20, "fit": 9, "seeds": tuple(range(1, len(rounds) + 1)), "samples": 1000}
    given = plain | {"settings": ("algorithm.rate={a = 1}",), "wire": (10**6, 10**6, 0)} | more
    return Outcome(Entry(method, batch, steps, 300), target, rounds=rounds, **given)


@pytest.mark.parametrize(
    ("curve", "target", "rounds"),
    [
        ([(1, 0.1), (2, 0.5), (4, 0.9), (5, 0.9)], 0.7, 3.0),
        ([(1, 0.9), (2, 0.9)], 0.9, 1.0),
        ([(1, 0.1), (2, 0.9), (3, 0.5), (4, 0.9), (5, 0.95)], 0.9, 4.0),
        ([(1, 0.1), (2, 0.9), (3, 0.5)], 0.9, None),
        ([(1, 0.1), (2, 0.9)], 0.9, None),
        ([(1, 0.1), (3, 0.8), (4, 0.7), (5, 0.2)], 0.45, 2.0),
        ([], 0.9, None),
    ],
)
def test_rounds_to_a_target(curve: Any, target: float, rounds: float | None) -> None:
    found = rounds_to_target(curve, target)
    assert found == (None if rounds is None else pytest.approx(rounds))


def test_looks_begin_with_every_round_and_end_with_the_last() -> None:
    at = evaluation_rounds(1000)
    assert at[:20] == list(range(1, 21))
    assert at[-1] == 1000
    assert all(1 <= b - a <= 0.06 * a + 1 for a, b in itertools.pairwise(at))
    assert evaluation_rounds(1) == [1]


def test_every_entry_gets_the_same_points() -> None:
    points = draw(20, 3)
    assert points == draw(20, 3)
    assert points[:5] == draw(5, 3)
    assert points != draw(20, 4)
    for entry in (*SAMPLE, *LONG, *FEATURE):
        assert len({settings(entry, point) for point in points}) == 20


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_step_means_the_same_to_every_method(steps: int) -> None:
    """How far each method moves a step, under a gradient of 1 that stays."""
    point = {"step": 0.5, "decay": 0.0, "memory": 0.8}

    def chosen(method: str) -> Any:
        return parse("", settings(Entry(method, 10, steps, 1), point)).algorithm

    assert chosen("sgd").rate.a == 0.5
    m, v, moved = chosen("momentum"), 0.0, 0.0
    for _ in range(steps):
        v = (m.momentum if m.name == "momentum" else 0.0) * v + 1
        moved += m.rate.a * v
    assert moved / steps == pytest.approx(0.5, rel=5e-3)
    s, v = chosen("ssca"), 0.0
    for _ in range(400):
        v = (1 - s.rho.a) * (1 - s.gamma.a) * v + s.rho.a / (2 * s.tau)
    assert s.gamma.a * v == pytest.approx(0.5, rel=5e-3)


def test_a_race(first: tuple[Cache, list[Outcome], list[Training]]) -> None:
    _, outcomes, trained = first
    assert [(o.entry, o.target) for o in outcomes] == [(e, t) for e in ENTRIES for t in TARGETS]
    searched = [item.label for item in trained if item.hold_out is not None]
    assert sorted(searched) == sorted(["ssca 5x2", "sgd 10x1"] * 2)
    assert {o.trials for o in outcomes} == {2}
    for o in outcomes:
        assert (o.searched is None) == (o.fit == 0)
        assert o.seeds == ((1, 2) if o.fit else ())
        assert o.samples == (40 if o.fit else 0)
    assert any(o.sure for o in outcomes)
    by_name = {(o.entry.name, o.target): o.rounds for o in outcomes}
    assert by_name["momentum 10x1", 0.3] == by_name["sgd 10x1", 0.3]


def test_the_same_race_again_trains_nothing(
    first: tuple[Cache, list[Outcome], list[Training]],
) -> None:
    cache, outcomes, _ = first
    heard: list[tuple[float, float, str]] = []

    def executor(items: Any, *rest: Any) -> None:
        assert not items

    assert small(cache, executor=executor, progress=lambda *at: heard.append(at)) == outcomes
    assert heard[-1][0] == pytest.approx(heard[-1][1])


def test_a_race_in_processes_gives_the_same(
    first: tuple[Cache, list[Outcome], list[Training]], tmp_path: Path
) -> None:
    cache, outcomes, trained = first
    other, heard = Cache(tmp_path, cache.code), []
    some = [i for i in trained if i.label == "ssca 5x2"][:1]
    in_processes(some, other, heard.append, jobs=1)
    assert {i.key for i in heard} == {i.key for i in some}
    for item in some:
        one, two = other.get(item.key), cache.get(item.key)
        assert one is not None
        assert two is not None
        assert one["curve"] == two["curve"]
    assert outcomes


def test_an_interrupted_race_goes_on(tmp_path: Path) -> None:
    cache, calls = open_cache(tmp_path), []

    def broken(items: Any, cache: Cache, done: Any) -> None:
        pretend(items[:2], cache, done)
        raise KeyboardInterrupt

    def rest(items: Any, cache: Cache, done: Any) -> None:
        calls.append(len(items))
        pretend(items, cache, done)

    with pytest.raises(KeyboardInterrupt):
        small(cache, executor=broken)
    outcomes = small(cache, executor=rest)
    assert calls == [2, 4]
    assert {o.rounds for o in outcomes} == {(1.5, 1.5), (2.5, 2.5)}


def test_held_out_rows_neither_train_nor_test() -> None:
    text = training._base_run(BASE, 0)
    every = load_dataset(BASE)
    parts = training.prepare(text, 0)[0]
    final = training.prepare(text, None)[0]

    def seen(columns: Any) -> set[bytes]:
        return {row.tobytes() for row in np.asarray(columns["x"])}

    assert not seen(parts.test) & seen(parts.train)
    assert not seen(parts.test) & seen(every.test)
    assert not seen(parts.train) & seen(every.test)
    assert seen(parts.test) | seen(parts.train) == seen(every.train)
    assert 0.19 < len(parts.test["y"]) / len(every.train["y"]) < 0.21
    assert seen(final.train) == seen(every.train)
    assert seen(final.test) == seen(every.test)


def item(*chosen: str, **more: Any) -> Training:
    entry = Entry("sgd", 10, 1, 40)
    made = comparison._training(BASE, "digits", entry, chosen, 0, 0, 0.99)
    return made._replace(**more)


def test_a_training_that_diverges_ends_there_and_wins_nothing() -> None:
    record = train(item("algorithm.name=sgd", "algorithm.rate={a = 1e30}"))
    assert record["end"] == "diverged"
    assert len(record["curve"]) < 5
    good = [[1, 0.5], [2, 0.95], [3, 0.95]]
    assert comparison.winner([record["curve"], good], 0.9) == 1
    assert comparison.winner([record["curve"]], 0.9) is None


def test_a_training_ends_when_its_target_is_reached() -> None:
    one = item("algorithm.name=sgd", "algorithm.rate={a = 0.3}")
    record = train(one._replace(stop=0.3))
    assert record["end"] == "reached"
    assert [accuracy >= 0.3 for _, accuracy in record["curve"][-3:]] == [False, True, True]
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_batch_of_all_rows_stays_one_when_rows_are_held_out() -> None:
    config = parse("[data]\nclients = 4\n[algorithm]\nbatch = 359\n")
    rows = training.prepare(training._base_run(BASE, 0), 0)[0]
    assert (
        training._with_fitting_batch(config, rows).algorithm.batch
        == len(rows.train["y"]) // 4
        < 359
    )


def test_parties_that_hold_columns_race_too() -> None:
    base = parse('[data]\nclients = 4\nsplit = "feature"\n[model]\nhidden = 4\n')
    entry = Entry("ssca", 10, 1, 2)
    chosen = settings(entry, draw(1, 0)[0])
    record = train(comparison._training(base, "digits", entry, chosen, 0, 0, 0.01))
    assert record["end"] == "reached"
    assert min(record["wire"]) > 0


def test_what_cannot_be_raced_is_said_in_a_line(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    limited = parse('[[problem.constraint]]\nkind = "loss"\nlimit = 0.2\n')
    with pytest.raises(UserError, match="takes no constraints"):
        compare(limited, ENTRIES, cache, mark="")
    for bad in ({"trials": 0}, {"runs": 0}, {"seed": -1}, {"targets": (90,)}, {"targets": ()}):
        with pytest.raises(UserError, match=next(iter(bad))):
            small(cache, **bad)


HAND = [
    outcome("ssca 100x1", 50.0, 52.0, 54.0),
    outcome("ssca 10x10", 30.0, 31.0, 32.0),
    outcome("sgd 100x1", 90.0, 92.0, None),
    outcome("momentum 100x1", 90.0, 92.0, None),
    outcome("momentum 10x10", 20.0, 21.0, 22.0),
    outcome("sgd 10x10", settings=(), seeds=(), fit=0),
]


def test_the_verdict_names_winners_and_who_is_beaten() -> None:
    said = verdict(HAND)
    assert said[0] == (
        "B×E = 100, 90%: momentum 10x10 (21.0 ± 1.0) needs the fewest rounds, next is ssca 10x10 "
        "(31.0 ± 1.0); the gap (48%) exceeds the spread. Single-step ssca 100x1 (52.0 ± 2.0) is "
        "beaten by momentum 10x10 (21.0 ± 1.0), ssca 10x10 (31.0 ± 1.0). Local-step ssca 10x10 "
        "(31.0 ± 1.0) is beaten by momentum 10x10 (21.0 ± 1.0)."
    )
    assert "sgd 100x1: 2 of 3 runs reached 90%." in said
    assert "sgd 10x10: none of 20 trials reached 90%." in said
    assert said[-1].endswith("with one local step momentum 100x1 is sgd 100x1.")
    near = [outcome("ssca 10x1", 50.0, 52.0, 54.0), outcome("sgd 10x1", 51.0, 54.0, 57.0)]
    assert not clear(*near)
    assert verdict(near) == [
        "B×E = 10, 90%: ssca 10x1 (52.0 ± 2.0) needs the fewest rounds, next is sgd 10x1 "
        "(54.0 ± 3.0); the gap is within the spread. Single-step ssca 10x1 (52.0 ± 2.0) is "
        "beaten by no baseline."
    ]
    assert verdict([outcome("sgd 10x1", None, 5.0)])[0].endswith(
        "no entry reached it in every run."
    )


def test_the_table_in_three_forms() -> None:
    lines = table(HAND).splitlines()
    assert lines[2] == (
        "| 100 | 90% | ssca 100x1 | 52.0 ± 2.0 | 50.0 - 54.0 | 3 of 3 | 52,000 | 104 "
        "| rate={a = 1} |"
    )
    assert "| sgd 10x10 | - | - | no trial | - | - | - |" in lines[-1]
    assert all(len(line) <= 80 for line in table(HAND, "text").splitlines())
    head, *rows = table(HAND, "csv").splitlines()
    assert head.startswith("entry,method,batch,local_steps,target,mean,sd,min,max,reached,runs")
    assert rows[0].startswith("ssca 100x1,ssca,100,1,0.9,52.0,2.0,50.0,54.0,3,3,52000,52000000")
    assert "nan" not in table(HAND, "csv")
    assert table([], "csv") == "\n"


def test_the_figure_shows_every_entry_once() -> None:
    png, svg = io.BytesIO(), io.BytesIO()
    draw_figure([*HAND, dataclasses.replace(HAND[0], target=0.95)], png, svg)
    assert png.getvalue().startswith(b"\x89PNG")
    text = svg.getvalue().decode()
    assert text.count(">ssca 10x10<") == 1
    assert ">momentum 100x1<" not in text
    assert "not reached" in text


def test_spreads() -> None:
    assert outcome("sgd 10x1", 1.0, 2.0, 3.0).sd == 1.0
    assert math.isnan(outcome("sgd 10x1", 1.0).sd)
    assert not outcome("sgd 10x1").sure
    assert functools.partial(in_processes, jobs=2)([], Cache(Path("."), ""), print) is None
