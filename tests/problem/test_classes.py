"""The class that a rate is about: by name, by number, or clear from the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.problem import constraints as c
from fedssca.problem.constraints.classes import target_class

SICK = ("sick", "well")


@pytest.mark.parametrize(
    ("positive", "classes", "place", "words"),
    [
        ("sick", SICK, 0, "'sick'"),
        ("well", SICK, 1, "'well'"),
        (1, SICK, 1, "'well'"),  # a number is a place where names are text
        (2, (1, 2), 1, "class 2"),  # and a name where names are numbers
        (1, (1, 2), 0, "class 1"),
        ("2", (1, 2), 1, "class 2"),
        (None, (0, 1), 1, "class 1"),
        (None, (False, True), 1, "class True"),
        (None, ("False", "True"), 1, "'True'"),
        (True, (False, True), 1, "class True"),
        (True, ("false", "true"), 1, "'true'"),
        ("1", ("0", "1"), 1, "'1'"),
        (7, range(10), 7, "class 7"),
    ],
)
def test_the_class_that_is_meant(
    positive: Any, classes: Sequence[Any], place: int, words: str
) -> None:
    assert target_class("it", positive, classes) == (place, words, False)


def test_a_data_set_may_define_its_own_class() -> None:
    assert target_class("it", None, ("<=50K", ">50K"), default=1).words == "'>50K'"
    assert target_class("it", None, None) == (1, "class 1", True)


@pytest.mark.parametrize(
    ("positive", "classes", "says"),
    [
        (None, SICK, 'needs positive = <class>.*counts as positive: "sick", "well"$'),
        (None, (1, 2), "counts as positive: 1, 2$"),
        (None, range(12), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more$"),
        ("ill", SICK, 'positive = \'ill\' is not a class; the classes are: "sick", "well"$'),
        (0, (1, 2), "positive = 0 is not a class; the classes are: 1, 2$"),
        (2, SICK, "positive = 2 is not a class"),
        (True, (0, 1), "positive = True is not a class: it must be a whole number from 0 to 1"),
        ("sick", None, "give classes=<names"),
    ],
)
def test_a_guess_or_an_unknown_class_is_refused(
    positive: Any, classes: Sequence[Any] | None, says: str
) -> None:
    with pytest.raises(UserError, match=says) as error:
        target_class("constraint 'fnr'", positive, classes)
    assert "\n" not in str(error.value)


def test_the_false_negative_rate_of_the_sick_by_hand() -> None:
    """Class 0 in sorted order is 'sick'; two of the four sick are predicted well."""
    y = np.array(["sick", "sick", "well", "sick", "sick", "well"])
    (made,) = c.false_negative_rate_at_most(0.1, y, positive="sick")
    codes = np.array([0, 0, 1, 0, 0, 1])
    scores = jnp.asarray([[1.0, 0], [0, 1], [0, 1], [1, 0], [0, 1], [0, 1]])
    ((weight, fn),) = made.terms.values()
    assert weight * float(fn(scores, {"y": codes}).mean()) == pytest.approx(0.5)
    assert made.name == "fnr_0"
    assert made.bound is not None
    assert made.bound.title == "fnr of 'sick'"
    with pytest.raises(UserError, match='counts as positive: "sick"'):
        c.false_negative_rate_at_most(0.1, y)
    (named,) = c.false_negative_rate_at_most(0.1, codes, positive="sick", classes=SICK)
    assert named.bound == made.bound


def test_a_class_that_was_not_named_is_marked() -> None:
    """An estimator that knows the names of the classes can then refuse the guess."""
    y = np.array([0, 1, 1])
    assert c.false_negative_rate_at_most(0.1, y)[0].assumed
    assert not c.false_negative_rate_at_most(0.1, y, positive=1)[0].assumed
    assert not c.false_negative_rate_at_most(0.1, y, classes=(0, 1))[0].assumed
    assert c.parity_gap_at_most(0.1, y, "sex")[0].assumed
