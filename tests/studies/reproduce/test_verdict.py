"""Statements against curves made by hand."""

from __future__ import annotations

import pytest

from fedssca.studies.reproduce.experiment import Statement
from fedssca.studies.reproduce.measure import Measured
from fedssca.studies.reproduce.verdict import (
    Finding,
    check_all,
    equivalent,
    falls,
    faster,
    fewest,
    identical,
    keeps,
    satisfies,
    steers,
)
from tests.studies.reproduce.reproduce_helpers import curve, measured, panel, record

U = 'problem.constraint=[{kind="loss", limit=0.13}]'


def found(*all_of: Measured) -> dict[str, Measured]:
    return {m.curve.label: m for m in all_of}


QUICK = measured(curve("quick"), [0.4, 0.3, 0.2, 0.1])
SLOW = measured(curve("slow"), [0.5, 0.4, 0.3, 0.2])
LATE = measured(curve("late"), [0.6, 0.5, 0.3, 0.05])


def test_faster_is_lower_at_all_four_rounds() -> None:
    assert faster(found(QUICK, SLOW), ["quick", "slow"]).holds
    assert not faster(found(QUICK, SLOW), ["slow", "quick"]).holds
    mixed = faster(found(QUICK, LATE), ["quick", "late"])
    assert not mixed.holds
    assert "quick ahead of late at 3 of 4 rounds: 0.400/0.600" in mixed.summary
    assert not faster(found(QUICK, QUICK), ["quick", "quick"]).holds


def test_faster_compares_level_by_level() -> None:
    both = faster(found(QUICK, SLOW, LATE), ["quick", ["slow", "late"]])
    assert both.summary.startswith("1 of 2 comparisons hold at all rounds; not: quick ahead of l")
    assert len(both.details) == 2
    assert faster(found(QUICK, SLOW, LATE), ["quick", "slow", "late"], at=[100, 200]).holds


def test_faster_by_accuracy_is_higher() -> None:
    assert faster(found(QUICK, SLOW), ["quick", "slow"], by="test_accuracy").holds
    assert not faster(found(QUICK, SLOW), ["slow", "quick"], by="test_accuracy").holds


def test_keeps_counts_the_runs() -> None:
    own = curve("c", "Algorithm 2", U)
    assert keeps(found(measured(own, [0.5, 0.3, 0.2, 0.129])), "c").holds
    edge = keeps(found(measured(own, [0.5, 0.3, 0.2, 0.1303], runs=2)), "c")
    assert not edge.holds
    assert "kept in 1 of 2 runs" in edge.summary


def test_keeps_looks_at_the_model_that_counts() -> None:
    run = record([0, 9], train_cost=lambda t: 0.5, norm_sq=lambda t: 1.0)
    run["returned"] = {"train_cost": 0.12, "norm_sq": 2.0}
    assert not keeps({"c": Measured(curve("c", "g", U), [run])}, "c").holds
    assert keeps({"c": Measured(curve("c", "g", U, model="returned"), [run])}, "c").holds


def test_fewest_rounds_to_an_accuracy() -> None:
    def at(label: str, group: str, batch: int, accuracies: list[float]) -> Measured:
        own = curve(label, group, f"algorithm.batch={batch}")
        return measured(own, [0.5] * 4, accuracies)

    runs = found(
        at("a10", "A", 10, [0.8, 0.91, 0.96, 0.97]),
        at("b10", "B", 10, [0.8, 0.85, 0.92, 0.93]),
        at("a20", "A", 20, [0.8, 0.85, 0.9, 0.94]),
        at("b20", "B", 20, [0.91, 0.92, 0.93, 0.94]),
    )
    assert fewest(runs, "A", [10]).holds
    assert "A 500, best other never" in fewest(runs, "A", [10]).summary
    assert not fewest(runs, "A", [20], [0.9]).holds
    assert fewest(runs, "A", [20], [0.9], beaten=True).holds
    assert not fewest(runs, "A", [10, 20], [0.9]).holds
    assert not fewest(runs, "A", [20], [0.99]).holds  # nobody gets there: nobody is best


def swept(costs: dict[float, float]) -> dict[str, Measured]:
    return found(
        *(
            measured(
                curve(f"s, U={u}", "g", U.replace("0.13", str(u)), series="s"),
                [1.0, 1.0, 1.0, cost],
            )
            for u, cost in costs.items()
        )
    )


def test_a_sweep_falls_and_is_steered() -> None:
    good = swept({0.1: 0.101, 0.2: 0.199, 0.3: 0.28})
    assert falls(good, "s").holds
    assert steers(good, "s").holds
    assert "3 of 3 limits, largest |F - U| 0.0200" in steers(good, "s").summary
    off = swept({0.1: 0.15, 0.2: 0.2})
    assert not steers(off, "s").holds
    assert len(steers(off, "s").details) == 2
    assert not steers(swept({0.1: 0.105, 0.11: 0.104}), "s", within=0.2).holds  # accuracy rises


def test_falls_needs_every_step() -> None:
    curves = swept({0.1: 0.1, 0.2: 0.2, 0.3: 0.3})
    for row in (run["rows"][-1] for run in curves["s, U=0.3"].runs):
        row["norm_sq"] = 1000.0
    assert not falls(curves, "s").holds
    assert "falls at 1 of 2 steps" in falls(curves, "s").summary


def test_identical_is_a_matter_of_distance() -> None:
    run = record([0, 5, 9], distance=lambda t: t * 1e-12)
    curves = {"c": Measured(curve("c"), [run])}
    assert identical(curves, "c", 1e-11).holds
    assert not identical(curves, "c", 1e-12).holds


@pytest.mark.parametrize(
    ("tuned", "word"),
    [
        (None, "holds"),
        (Finding(True, "1 of 1"), "holds"),
        (Finding(False, "0 of 1", ("17/12",)), "holds only at the printed settings"),
    ],
)
def test_the_verdict_knows_tuned_results(tuned: Finding | None, word: str) -> None:
    said = Statement("quick is quick", "here", "faster", {"order": ["quick", "slow"]})
    shown = panel("trajectory", [QUICK.curve, SLOW.curve], said)
    (verdict,) = check_all(shown, found(QUICK, SLOW), lambda *_: tuned)
    assert verdict.word == word
    assert any("tuned" in line for line in verdict.finding.details) == (tuned is not None)
    (verdict,) = check_all(shown, {"quick": SLOW, "slow": QUICK}, lambda *_: tuned)
    assert verdict.word == "does not hold"


def solved(weights: dict[float, float], prices: dict[float, float]) -> dict[str, Measured]:
    """Solutions over lambda and over U for |w|^2 = 1 / F, whose lambda = 1 / nu is 2 F^2."""

    def run(cost: float, nu: float | None) -> dict[str, object]:
        row = {"round": 9, "train_cost": cost, "norm_sq": 1 / cost}
        row["multipliers"] = [] if nu is None else [nu]
        return {"rows": [row], "returned": row, "feasible": True, "notes": []}

    free = {lam: curve(f"λ={lam}", "A", f"problem.l2={lam}", series="free") for lam in weights}
    held = {u: curve(f"U={u}", "B", U.replace("0.13", str(u)), series="held") for u in prices}
    return found(
        *(Measured(c, [run(weights[lam], None)]) for lam, c in free.items()),
        *(Measured(c, [run(u, prices[u])]) for u, c in held.items()),
    )


def test_problems_are_equivalent_if_norms_and_multipliers_agree() -> None:
    costs = [0.1 * 1.1**n for n in range(15)]
    weights = {2 * f * f: f for f in costs}
    same = solved(weights, {0.2: 1 / (2 * 0.2**2), 0.3: 1 / (2 * 0.3**2)})
    seen = equivalent(same, "free", "held", within=0.02)
    assert seen.holds, seen
    assert "at 2 limits" in seen.summary
    assert "U = 0.2: F = 0.2000, |w|² = 5.00 against 5.0" in seen.details[0]
    other = solved(weights, {0.2: 1.2 / (2 * 0.2**2), 0.5: 1.0})
    seen = equivalent(other, "free", "held", within=0.02)
    assert not seen.holds
    assert equivalent(other, "free", "held", within=0.02, multiplier_within=0.2).holds
    assert "1/ν from λ by at most 16" in seen.summary
    assert seen.details[1] == "U = 0.5: outside the costs over lambda"
    assert not equivalent(solved(weights, {0.5: 1.0}), "free", "held").holds


def test_step_sizes_satisfy_the_theorems_or_not() -> None:
    printed = ("algorithm.rho={a = 0.3, alpha = 0.1}", "algorithm.gamma={a = 0.3, alpha = 0.1}")
    one = measured(curve("printed", "A", *printed), [0.4, 0.3, 0.2, 0.1])
    seen = satisfies(found(one), "printed")
    assert not seen.holds
    assert "sum gamma^2 < inf needs gamma.alpha > 1/2" in seen.summary
    other = (printed[0], "algorithm.gamma={a = 0.3, alpha = 0.51}")
    two = measured(curve("theirs", "A", *other), [0.4, 0.3, 0.2, 0.1])
    assert satisfies(found(two), "theirs").holds
    assert not satisfies(found(QUICK), "quick").holds  # calibrated
