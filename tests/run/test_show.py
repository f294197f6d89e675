"""A Result as a figure, as a notebook's cell, as a table."""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from fedssca import Result, UserError, custom_problem, loss_at_most, power, simulate, ssca
from fedssca.problem.scores import from_scores
from fedssca.system import pip_install


@pytest.fixture(scope="module")
def result() -> Result:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    rows = {"x": x, "y": (x[:, 0] > 0).astype(np.int32)}
    start = rng.normal(size=(3, 2))
    problem = from_scores(lambda w, x: x @ w, start, loss_at_most(0.5), objective="norm")
    steps = ssca(problem, batch=5, rho=power(0.9, 0.3), gamma=power(0.9, 0.6), tau=0.2)
    return simulate(problem, [rows, rows], steps, rounds=21, evaluate_every=5, test=rows)


def test_plot_draws_rows_limit_and_returned_model(result: Result) -> None:
    figure = result.plot()
    cost, accuracy, norm, worst = figure.axes
    curve, star, limit = cost.lines
    assert list(curve.get_xdata()) == [row["round"] for row in result.rows]
    assert list(curve.get_ydata()) == [row["train_cost"] for row in result.rows]
    assert list(star.get_ydata()) == [result.final["train_cost"]]
    assert list(limit.get_ydata()) == [0.5, 0.5]
    assert [axis.get_xlabel() for axis in figure.axes] == ["communication round"] * 4
    assert "accuracy" in accuracy.get_title()
    assert norm.get_title() == "|w|²"
    assert "value - limit" in worst.get_title()
    shown = [text.get_text() for text in result.plot(other=result).legends[0].get_texts()]
    assert shown == ["result", "other", "limit 0.5", "returned model, after the last steps"]


def test_what_was_not_measured_is_not_drawn() -> None:
    problem = custom_problem(lambda w, batch: ((batch["x"] - w) ** 2).sum(1)[None], np.zeros(2))
    steps = ssca(problem, batch=2, rho=power(0.9, 0.3), gamma=power(0.9, 0.6), tau=1.0)
    bare = simulate(problem, [{"x": np.ones((4, 2), np.float32)}], steps, rounds=3)
    titles = [axis.get_title() for axis in bare.plot().axes]
    assert "|w|²" in titles
    assert "test accuracy" not in titles
    assert "<table" not in bare._repr_html_()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)


def test_a_notebook_shows_verdict_certificate_and_picture(result: Result) -> None:
    text = result._repr_html_()
    assert ("1 of 1 limits kept" in text) == result.feasible
    assert f"{result.certificate['constraints'][0]['value']:.4f}" in text
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert len(text) < 100_000
    assert "http" not in text


def test_names_and_notes_are_escaped(result: Result) -> None:
    bad = "<img src=x onerror=alert(1)>"
    entry = result.certificate["constraints"][0] | {"name": bad}
    hostile = replace(
        result, certificate=result.certificate | {"constraints": [entry]}, notes=[bad]
    )
    seen = Tags()
    seen.feed(hostile._repr_html_())
    assert seen.names.count("img") == 1
    assert "script" not in seen.names


def test_to_pandas_has_a_column_a_number(result: Result) -> None:
    pytest.importorskip("pandas")
    table = result.to_pandas()
    assert list(table["round"]) == [0, 5, 10, 15, 20]
    assert list(table["constraint_loss"]) == [row["constraints"][0] for row in result.rows]
    assert list(table["multiplier_loss"]) == [row["multipliers"][0] for row in result.rows]
    assert set(table.dtypes.map(lambda kind: kind.kind)) <= {"i", "f"}


def test_to_pandas_without_pandas(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=re.escape(pip_install("pandas"))):
        result.to_pandas()


def test_what_is_promised_stands_beside_the_limit() -> None:
    from fedssca.evaluate.verdicts import limits_kept, promise_words

    sure = {"promise": {"low": -0.05, "high": 0.05, "certified": True}, "status": "certified"}
    unsure = {"promise": {"low": None, "high": 0.123456, "certified": False}, "status": "kept"}
    unknown = {"promise": {"low": None, "high": None, "certified": False}, "status": "kept"}
    words = [promise_words(entry) for entry in (sure, unsure, unknown, {})]
    assert words == ["±0.05", "≤ 0.1235 alone", "-", ""]
    entries = [entry | {"feasible": True} for entry in (sure, sure)]
    assert limits_kept(entries) == (2, 2, "certified")
    assert limits_kept([*entries, unsure | {"feasible": True}]) == (3, 3, "kept")
