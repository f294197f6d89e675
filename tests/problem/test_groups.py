"""Groups of rows: values, intersections, bins, rare groups, clients; values by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.problem import constraints as c
from fedssca.problem.limits import stated
from fedssca.problem.models import classifier, linear

pytestmark = pytest.mark.usefixtures("float64")

RACE = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
SEX = np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 1])
AGE = np.array([20, 24, 25, 39, 40, 70, 25, 41, 19, 30], np.float32)
Y = np.array([1, 1, 0, 1, 1, 0, 1, 1, 1, 0])
GUESS = np.array([1, 0, 1, 1, 0, 0, 1, 1, 1, 1])
SCORES = np.eye(2)[GUESS] * 2
SIZES = (6, 4)
CLIENT = np.repeat([0, 1], SIZES)
COLUMNS = {"y": Y, "race": RACE, "sex": SEX, "age": AGE}
NAMES = ("Asian", "Black", "White")
ROWS = c.TrainingRows(
    COLUMNS, ("no", "yes"), SIZES, 1, {"race": NAMES, "sex": ("F", "M")}, ("site-1", "site-2")
)


def make(kind: Any, limit: float = 0.1, **options: Any) -> list[c.Constraint]:
    return c.from_config(kind, limit, {"least_rows": 1, **options}, ROWS)


def values(made: list[c.Constraint]) -> dict[str, float]:
    """The mean that each constraint limits, by name; the reported rate must be the same."""
    batch = {**COLUMNS, "client": CLIENT}
    found = {}
    for each in made:
        total = sum(a * fn(jnp.asarray(SCORES), batch).mean() for a, fn in each.terms.values())
        found[each.name] = float(total)
        if each.rates is not None and "recall" not in each.name:
            rates = each.rates(jnp.asarray(SCORES), batch)
            reported = float(sum(a * top.sum() / bottom.sum() for a, top, bottom in rates))
            assert reported == pytest.approx(found[each.name])
    return found


def titles(made: list[c.Constraint]) -> list[str]:
    return [limit.title for limit in stated([each.bound for each in made if each.bound])]


def rate(hits: np.ndarray, among: np.ndarray) -> float:
    return float(hits[among].mean())


def test_rates_of_every_group_by_hand() -> None:
    made = make("fnr", column="race")
    assert values(made) == pytest.approx(
        {"fnr_race_Asian": 1 / 3, "fnr_race_Black": 1 / 2, "fnr_race_White": 0.0}
    )
    assert titles(made) == [f"fnr of 'yes', race = {name}" for name in NAMES]
    made = make("error", column="race")
    assert values(made) == pytest.approx(
        {"error_race_Asian": 2 / 4, "error_race_Black": 1 / 3, "error_race_White": 1 / 3}
    )
    made = make("fpr", column="sex", positive="no")
    assert values(made)["fpr_0_sex_F"] == pytest.approx(rate(GUESS == 0, (SEX == 0) & (Y == 1)))
    made = make("recall", 0.9, column="race")
    assert [each.limit for each in made] == pytest.approx([0.1] * 3)
    assert [each.bound.low for each in made if each.bound] == [0.9] * 3
    assert values(made)["recall_race_Black"] == pytest.approx(1 / 2)


def test_precision_of_every_group_by_hand() -> None:
    (asian, _, white) = make("precision", 0.8, column="race")
    batch = {**COLUMNS, "client": CLIENT}
    ((_, fn),) = white.terms.values()
    # White: of three predicted positive two are; two are positive.
    mean = float(fn(jnp.asarray(SCORES), batch).mean())
    assert mean == pytest.approx((0.8 * 1 - 0.2 * 2) / 2)
    assert asian.rates is not None
    ((_, top, bottom),) = asian.rates(jnp.asarray(SCORES), batch)
    assert float(top.sum() / bottom.sum()) == pytest.approx(2 / 3)


def test_losses_of_groups_and_their_gaps() -> None:
    losses = np.log(np.exp(SCORES).sum(axis=1)) - SCORES[np.arange(10), Y]
    made = make("loss", 0.5, column="race")
    assert values(made) == pytest.approx(
        {f"loss_race_{name}": rate(losses, i == RACE) for i, name in enumerate(NAMES)}
    )
    assert not any(each.stepwise for each in made)
    gaps = make("loss_gap", 0.5, column="race")
    black = rate(losses, RACE == 1) - losses.mean()
    assert values(gaps)["loss_gap_race_Black"] == pytest.approx(black)
    assert values(gaps)["loss_gap_race_Black_lower"] == pytest.approx(-black)
    assert titles(gaps)[1] == "loss gap, race = Black against all"


def test_each_against_all_is_the_default_for_more_than_two() -> None:
    made = make("parity", column="race")
    shares = [rate(GUESS, i == RACE) - GUESS.mean() for i in range(3)]
    found = values(made)
    for name, share in zip(NAMES, shares, strict=True):
        assert found[f"parity_race_{name}"] == pytest.approx(share)
        assert found[f"parity_race_{name}_lower"] == pytest.approx(-share)
    assert titles(made)[1] == "parity of 'yes', race = Black against all"
    problem = classifier(linear(2, 2), made)
    assert problem.combine.shape == (1 + 6, 1 + 4)  # the loss, all rows and three groups


def test_pairs_share_the_means_of_their_groups() -> None:
    made = make("opportunity", column="race", compare="pairs")
    rates = [rate(GUESS, (i == RACE) & (Y == 1)) for i in range(3)]
    found = values(made)
    assert found["opportunity_race_White_Asian"] == pytest.approx(rates[2] - rates[0])
    assert found["opportunity_race_Black_Asian_lower"] == pytest.approx(rates[0] - rates[1])
    assert len(made) == 6
    assert titles(made)[2] == "opportunity of 'yes', race = White against Black"
    assert classifier(linear(2, 2), made).combine.shape == (1 + 6, 1 + 3)


def test_two_groups_are_compared_with_each_other() -> None:
    made = make("parity", column="sex")
    assert list(values(made)) == ["parity_sex", "parity_sex_lower"]
    assert titles(made) == ["parity of 'yes', sex = M against F"]
    assert classifier(linear(2, 2), made).combine.shape == (3, 2)
    assert len(make("parity", column="sex", compare="all")) == 4


def test_intersections() -> None:
    made = make("error", columns=["sex", "race"])
    assert len(made) == 6
    assert made[0].name == "error_sex_race_F_Asian"
    assert titles(made)[0] == "error, sex = F, race = Asian"
    own = (SEX == 0) & (RACE == 0)
    assert values(made)[made[0].name] == pytest.approx(rate(GUESS != Y, own))


def test_bins() -> None:
    made = make("parity", column="age", bins=[25, 40])
    assert titles(made) == [
        f"parity of 'yes', {bin} against all" for bin in ("age < 25", "25 <= age < 40", "age >= 40")
    ]
    among = (AGE >= 25) & (AGE < 40)
    assert values(made)["parity_age_25_to_40"] == pytest.approx(rate(GUESS, among) - GUESS.mean())
    two = make("error", columns=["age", "sex"], bins={"age": [25]})
    assert titles(two)[0] == "error, age < 25, sex = F"
    assert "error_age_sex_from_25_M" in values(two)


def test_rare_groups_are_merged() -> None:
    made = make("error", column="race", least_rows=4)
    assert titles(made) == ["error, race = Asian", "error, race = other (Black; White)"]
    assert values(made)["error_race_merged"] == pytest.approx(rate(GUESS != Y, RACE > 0))
    # Five white rows are too few alone, so the smallest of the others joins them.
    rows = ROWS._replace(columns={**COLUMNS, "race": np.array([0] * 4 + [1] * 5 + [2])})
    options: dict[str, Any] = {"column": "race", "least_rows": 3}
    (one, other) = c.from_config("error", 0.1, options, rows)
    assert titles([one, other]) == ["error, race = Black", "error, race = other (Asian; White)"]


def test_rare_is_judged_by_the_rows_of_the_class() -> None:
    with pytest.raises(UserError, match=r"fewer than 3 .* of 'yes': .*Black \(2\), .*White \(2\)"):
        make("fnr", column="race", least_rows=3, rare="refuse")


def test_the_default_merges_groups_of_less_than_twenty_rows() -> None:
    race = np.repeat([0, 1, 2, 3], [100, 50, 19, 1])
    rows = ROWS._replace(
        columns={"race": race, "y": np.arange(170) % 2}, sizes=(170,), kinds={"race": "abcd"}
    )
    made = c.from_config("parity", 0.1, {"column": "race"}, rows)
    assert [title.partition(", ")[2] for title in titles(made)] == [
        "race = a against all",
        "race = b against all",
        "race = other (c; d) against all",
    ]


def test_groups_of_every_client() -> None:
    made = make("fnr", column="sex", per_client=True)
    assert titles(made) == [
        f"fnr of 'yes', sex = {sex}, site-{i}" for i in (1, 2) for sex in ("F", "M")
    ]
    own = (SEX == 0) & (CLIENT == 0) & (Y == 1)
    assert values(made)["fnr_sex_F_client_0"] == pytest.approx(rate(GUESS != 1, own))
    assert [each.bound.client for each in made if each.bound] == [0, 0, 1, 1]
    alone = make("fnr", per_client=True)
    assert titles(alone) == ["fnr of 'yes', site-1", "fnr of 'yes', site-2"]
    own = (CLIENT == 1) & (Y == 1)
    assert values(alone)["fnr_client_1"] == pytest.approx(rate(GUESS != 1, own))
    gap = make("parity", column="sex", per_client=True)
    assert titles(gap)[1] == "parity of 'yes', sex = M against F, site-2"
    men, women = ((s == SEX) & (CLIENT == 1) for s in (1, 0))
    assert values(gap)["parity_sex_client_1"] == pytest.approx(
        rate(GUESS, men) - rate(GUESS, women)
    )


def test_a_client_without_enough_rows_is_left_out_and_named() -> None:
    made = make("fnr", per_client=True, least_rows=4)
    assert [each.name for each in made] == ["fnr_client_0"]
    note = "constraint 'fnr' does not limit site-2, which does not have 4 training rows of 'yes'"
    assert made[0].note == note
    assert classifier(linear(2, 2), made).notes == (note,)
    with pytest.raises(UserError, match="site-2 does not have 4 training rows of 'yes'"):
        make("fnr", per_client=True, least_rows=4, rare="refuse")
    with pytest.raises(UserError, match="no client has 9 training rows of 'yes'"):
        make("fnr", per_client=True, least_rows=9)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("fnr", {"column": "race", "columns": ["sex"]}, "give column or columns, not both"),
        ("fnr", {"columns": ["sex", "sex"]}, "names a column twice"),
        ("fnr", {"columns": ["sex", "colour"]}, "there is no column 'colour'; known: age, race"),
        ("fnr", {"column": "age", "bins": [40, 25]}, "give numbers that increase"),
        ("fnr", {"column": "race", "bins": [1]}, "'race' is text, which has no bins"),
        ("fnr", {"columns": ["age", "sex"], "bins": [1]}, r"such as bins = \{age = \[1\]\}"),
        ("fnr", {"column": "sex", "bins": {"age": [1]}}, "bins for 'age', which is not one"),
        ("fnr", {"bins": [1]}, "bins goes with column"),
        ("loss", {"rare": "refuse"}, "least_rows goes with column, columns or per_client"),
        ("parity", {}, "needs column = <name>; the data's are: age, race, sex"),
        ("loss", {"compare": "all"}, "no key 'compare'"),
        ("parity", {"column": "race", "least_rows": 7}, r"needs two groups with 7 .*Asian \(4\)"),
        ("error", {"column": "age", "bins": [5]}, r"'age' has 1 value \(age >= 5\)"),
        ("fnr", {"column": "race", "least_rows": 0}, "least_rows = 0: it must be at least 1"),
    ],
)
def test_bad_input_is_one_clear_line(kind: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        make(kind, **options)
    assert "\n" not in str(error.value)


def test_clients_with_columns_have_no_groups_of_their_own() -> None:
    with pytest.raises(UserError, match=r'use data\.split = "sample", or leave per_client out'):
        c.from_config("fnr", 0.1, {"per_client": True}, ROWS._replace(sizes=None))


def test_groups_in_python() -> None:
    groups = c.Groups({"race": RACE}, kinds={"race": NAMES}, least_rows=1)
    made = c.parity_gap_at_most(0.1, groups, positive=1)
    assert values(made)["parity_race_Black"] == pytest.approx(rate(GUESS, RACE == 1) - GUESS.mean())
    with pytest.raises(UserError, match="leave column out"):
        c.parity_gap_at_most(0.1, groups, "race")
    with pytest.raises(UserError, match="needs column="):
        c.parity_gap_at_most(0.1, RACE)
    with pytest.raises(UserError, match="give it the column"):
        c.loss_gap_at_most(0.1, c.Groups(sizes=SIZES))
