"""The form says what the schema says: every key, every default, every error at its field."""

from __future__ import annotations

import dataclasses

import pytest

from fedssca.problem.constraint_kinds import KINDS
from fedssca.report.live.form import as_toml, field_of, fields, fill, from_toml, values_of
from fedssca.run.config import Config, from_tree, parse, render
from fedssca.run.schema import ConstraintSettings


def all_fields() -> dict[str, dict]:
    return {field["key"]: field for section in fields() for field in section["fields"]}


def test_every_key_of_the_schema_has_a_field() -> None:
    tree = dataclasses.asdict(Config())
    keys = {f"{s}.{k}" for s, part in tree.items() if s != "deploy" for k in part}
    limit = {each.name for each in dataclasses.fields(ConstraintSettings)}
    assert {"kind", "limit", "positive", "column", "bins", "sharpness"} < limit
    assert set(all_fields()) == keys - {"problem.constraint"} | limit
    assert all(field["help"] for field in all_fields().values())
    assert {"data.name", "algorithm.rounds", "kind", "limit"} <= {
        key for key, field in all_fields().items() if field["basic"]
    }


def test_the_defaults_are_those_of_the_schema() -> None:
    defaults = {k: f["default"] for k, f in all_fields().items() if "." in k}
    tree, errors = fill(defaults)
    assert errors == {}
    assert from_tree(tree) == Config()


def test_every_choice_is_known() -> None:
    kinds = ("choice", "suggestions")
    chosen = {k: f for k, f in all_fields().items() if f["kind"] in kinds and "." in k}
    assert len(chosen) > 10
    for key, field in chosen.items():
        assert field["default"] in field["choices"] or (
            not field["default"] and field["placeholder"]
        )
        for choice in field["choices"]:
            beside = {"problem.column": "sex"} if choice == "worst_group" else {}
            if key == "problem.loss":
                beside = {"problem.task": "regression"}
            if key == "model.join":
                beside = {"model.bottom": "4", "data.split": "feature"}
            if choice == "multilabel":
                beside = {"data.label": "a, b"}
            assert fill({key: choice} | beside).errors == {}


def test_functions_of_users_can_be_typed() -> None:
    """A list of suggestions takes other text; what cannot be a name is an error at the field."""
    for key in ("model.name", "algorithm.name"):
        assert all_fields()[key]["kind"] == "suggestions"
        tree, errors = fill({key: "my_package.parts:make"})
        assert errors == {}
        assert tree == {key.partition(".")[0]: {"name": "my_package.parts:make"}}
        assert list(fill({key: "my package:make"}).errors) == [key]


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("algorithm.batch", "0", "batch = 0: it must be at least 1"),
        ("algorithm.batch", "ten", "must be a whole number"),
        ("algorithm.batch", "1.5", "must be a whole number"),
        ("algorithm.rounds", "many", 'must be a whole number or "auto"'),
        ("algorithm.rounds", "0", "at least 1"),
        ("data.clients", "-3", "at least 1"),
        ("data.test_fraction", "much", "must be a number"),
        ("data.partition", "dirichlett", "did you mean 'dirichlet'"),
        ("algorithm.rho", "{a = 1, b = 2}", "unknown key 'b'"),
        ("algorithm.rho", "{a = 1, cool = 7}", "[0, 1]"),
        ("data.sizes", "1, x", "must be a number"),
        ("problem.penalty", "-1", "positive"),
        ("run.seed", "nan", "whole number"),
        ("data.nonsense", "1", "there is no setting"),
        ("nonsense", "1", "there is no setting"),
    ],
)
def test_errors_stand_at_their_field(key: str, text: str, words: str) -> None:
    errors = fill({key: text, "data.name": "digits"}).errors
    assert list(errors) == [key]
    assert words in errors[key]


def test_the_number_of_rounds_may_be_a_word() -> None:
    assert fill({"algorithm.rounds": "auto"}) == ({"algorithm": {"rounds": "auto"}}, {})
    assert fill({"algorithm.rounds": "9"}).tree == {"algorithm": {"rounds": 9}}
    assert values_of({"algorithm": {"rounds": "auto"}})[0] == {"algorithm.rounds": "auto"}


def test_all_errors_at_once() -> None:
    errors = fill({"algorithm.batch": "0", "data.clients": "x", "algorithm.rounds": "9"}).errors
    assert set(errors) == {"algorithm.batch", "data.clients"}


def test_keys_are_checked_together() -> None:
    both = {"privacy.secure_sum": True, "privacy.homomorphic": True}
    assert list(fill(both).errors) == ["privacy.homomorphic"]
    assert list(fill({"algorithm.dropout": "0.5"}).errors) == ["algorithm.dropout"]
    assert fill({"algorithm.dropout": "0.5", "algorithm.cohort": "3"}).errors == {}


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"kind": "loss", "limit": ""}, "limit"),
        ({"kind": "loss", "limit": "-1"}, "limit"),
        ({"kind": "loss", "limit": "low"}, "limit"),
        ({"kind": "lost", "limit": "1"}, "kind"),
        ({"kind": "fnr", "limit": "2"}, "limit"),
        ({"kind": "parity", "limit": "0.1"}, "column"),
        ({"kind": "fnr", "limit": "0.1", "column": "age", "bins": "40, 25"}, "bins"),
        ({"kind": "fnr", "limit": "0.1", "column": "age", "columns": "sex, race"}, "columns"),
    ],
)
def test_errors_of_limits_stand_at_their_field(entry: dict, field: str) -> None:
    good = {"kind": "loss", "limit": "0.3"}
    errors = fill({}, [good, entry]).errors
    assert list(errors) == [f"problem.constraint.1.{field}"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_limit_passes(kind: str) -> None:
    beside = {"column": "sex"} if KINDS[kind].gap else {}
    beside |= {"bound": "2"} if "bound" in KINDS[kind].options else {}
    task = {"problem.task": KINDS[kind].tasks[0]}
    tree, errors = fill(task, [{"kind": kind, "limit": "0.5"} | beside])
    assert errors == {}
    assert tree["problem"]["constraint"][0]["limit"] == 0.5


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("sick", "sick"), ("1", 1), ("true", True), ('"1"', "1"), (">50K", ">50K"), ("1.5", "1.5")],
)
def test_a_class_is_a_name_or_a_number(typed: str, meant: object) -> None:
    tree, errors = fill({}, [{"kind": "fnr", "limit": "0.5", "positive": typed}])
    assert errors == {}
    assert tree["problem"]["constraint"][0]["positive"] is meant or (
        tree["problem"]["constraint"][0]["positive"] == meant and not isinstance(meant, bool)
    )


def test_bins_are_a_list_or_a_table() -> None:
    limit = {"kind": "parity", "limit": "0.1"}
    one = fill({}, [limit | {"column": "age", "bins": "25, 40"}])
    assert one.errors == {}
    assert one.tree["problem"]["constraint"][0]["bins"] == [25, 40]
    two = fill({}, [limit | {"columns": "age, sex", "bins": "{age = [25]}"}])
    assert two.errors == {}
    assert two.tree["problem"]["constraint"][0]["bins"] == {"age": [25]}
    assert two.tree["problem"]["constraint"][0]["columns"] == ["age", "sex"]


def test_form_and_toml_are_the_same_run() -> None:
    text = """
[data]
keep = ["a", "b"]
sizes = [1, 2.5]
[problem]
penalty = [1.0, 10.0]
[[problem.constraint]]
kind = "fnr"
limit = 0.1
positive = 0
[[problem.constraint]]
kind = "recall"
limit = 0.1
positive = "sick"
columns = ["age", "sex"]
bins = {age = [25, 40.5]}
per_client = true
rare = "refuse"
[algorithm]
rho = {a = 0.5, alpha = 0.1}
tau = [0.1, 0.2]
[privacy]
secure_sum = true
"""
    tree, errors = from_toml(text)
    assert errors == {}
    values, limits = values_of(tree)
    assert values["data.keep"] == "a, b"
    assert values["privacy.secure_sum"] is True
    again = fill(values, limits)
    assert again.errors == {}
    assert parse(as_toml(again.tree)) == parse(text)
    assert values_of(from_toml(render(Config())).tree)[1] == []


def test_errors_of_a_toml_name_their_place() -> None:
    assert list(from_toml("[data").errors) == ["toml"]
    assert list(from_toml("[algorithm]\nbatch = 0").errors) == ["algorithm.batch"]


def test_keys_find_their_field() -> None:
    assert field_of("algorithm.rate.cool") == "algorithm.rate"
    assert field_of("problem.constraint.1.column") == "problem.constraint.1.column"
    assert field_of("problem.constraint.1") == "problem.constraint.1.limit"
    assert field_of("nonsense") == "toml"
