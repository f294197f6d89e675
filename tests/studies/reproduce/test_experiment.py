"""Panels as TOML: the printed numbers are in them, and a mistake is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.run.schema import StepSettings
from fedssca.studies.reproduce.experiment import known, read
from tests.studies.reproduce.reproduce_helpers import TINY, tiny

PANELS = [f"fig1{x}" for x in "abcdef"] + [f"fig2{x}" for x in "abcd"]
PANELS += ["fig3a", "fig3b", "fig4a", "fig4b", "identity", "schedules", "schedules_limit"]

SAMPLE = {10: (0.9, 0.5, 0.1, 0.2), 100: (0.3, 0.3, 0.1, 0.05), 6000: (0.2, 0.3, 0.1, 0.03)}
FEATURE = {10: (0.9, 0.3, 0.3, 0.1), 100: (0.9, 0.5, 0.1, 0.2), 1000: (0.3, 0.3, 0.1, 0.05)}


def test_every_panel_is_there_and_judges_something() -> None:
    assert known() == sorted([*PANELS, "equivalence"])
    for name in PANELS:
        panel = read(name)
        assert panel.name == panel.source == name
        assert panel.statements
        assert panel.title
        assert all(c.config.data.name == "mnist" for c in panel.curves)
        assert all(c.config.data.clients == 10 for c in panel.curves)
        assert all(c.config.model.hidden == 128 for c in panel.curves)


@pytest.mark.parametrize(
    ("names", "group", "table"),
    [
        (["fig1a", "fig1c"], "Algorithm 1", SAMPLE),
        (["fig1e"], "Algorithm 2", SAMPLE),
        (["fig2a"], "Algorithm 3", FEATURE),
        (["fig2c"], "Algorithm 4", FEATURE),
    ],
)
def test_the_proposed_algorithms_have_the_printed_numbers(names, group, table) -> None:
    curves = [c for name in names for c in read(name).drawn if c.group == group]
    assert [c.config.algorithm.batch for c in curves] == list(table)
    for c in curves:
        a1, a2, alpha, tau = table[c.config.algorithm.batch]
        chosen, problem = c.config.algorithm, c.config.problem
        assert chosen.rho == StepSettings(a1, alpha)
        assert chosen.gamma == StepSettings(a2, alpha)
        assert chosen.tau == tau
        assert chosen.rounds == 1000
        assert c.config.data.split == ("sample" if table is SAMPLE else "feature")
        if group in ("Algorithm 2", "Algorithm 4"):
            assert problem.objective == "norm"
            assert [(e.kind, e.limit) for e in problem.constraint] == [("loss", 0.13)]
            assert problem.penalty == 1e5
            assert chosen.multipliers == "exact"
        else:
            assert (problem.objective, problem.l2, problem.constraint) == ("loss", 1e-5, [])


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("fig1a", [(10, 1), (10, 10), (50, 2), (100, 1)]),
        ("fig1c", [(60, 100), (600, 10), (6000, 1)]),
        ("fig2a", [(10, 1), (100, 1), (1000, 1)]),
    ],
)
def test_the_baselines_have_the_printed_numbers(name, pairs) -> None:
    for group, method, rate in (
        ("SGD", "sgd", StepSettings(0.3, 0.3)),
        ("SGD-m", "momentum", StepSettings(0.3, 0.0)),
    ):
        chosen = [c.config.algorithm for c in read(name).drawn if c.group == group]
        assert [(a.batch, a.local_steps) for a in chosen] == pairs
        assert all(a.name == method and a.rate == rate for a in chosen)
        assert all(a.momentum == 0.1 for a in chosen)


def test_our_own_method_is_marked_and_calibrated() -> None:
    for name, batches in (("fig1e", [10, 100]), ("fig2c", [10, 100, 1000])):
        own = [c for c in read(name).curves if c.extra]
        assert [c.config.algorithm.batch for c in own] == batches
        for c in own:
            assert c.model == "returned"
            chosen = c.config.algorithm
            assert chosen.multipliers == "steered"
            assert chosen.rho is chosen.gamma is chosen.tau is None


def test_panels_share_their_runs() -> None:
    for one, two in (("fig1a", "fig1b"), ("fig1c", "fig1d"), ("fig2a", "fig3b")):
        assert [c.config for c in read(one).drawn] == [c.config for c in read(two).drawn]
    both = [c.config for name in ("fig1a", "fig1c") for c in read(name).drawn]
    assert [c.config for c in read("fig3a").drawn] == both


def test_curves_that_take_long_have_fewer_runs() -> None:
    seeds = {c.label: c.seeds(10) for c in read("fig3a").curves}
    assert {len(s) for label, s in seeds.items() if "6000" in label or "B=60" in label} == {5}
    assert {len(s) for label, s in seeds.items() if label.endswith("B=100")} == {10}
    assert [c.seeds(2) for c in read("fig1c").drawn] == [[0, 1]] * 7


def test_a_panel_of_step_sizes_shares_the_printed_runs() -> None:
    printed = {c.label: c.config for c in read("fig1a").curves + read("fig1e").curves}
    for name in ("schedules", "schedules_limit"):
        own = [c for c in read(name).curves if not c.extra]
        assert [c.config for c in own] == [printed[c.label.removesuffix(", printed")] for c in own]


def test_a_sweep_is_a_curve_for_every_value() -> None:
    limits = [c.limit for c in read("fig4b").curves]
    assert limits[:6] == limits[6:] == sorted(limits[:6])
    weights = [c.config.problem.l2 for c in read("fig4a").curves]
    assert weights == sorted(weights)
    assert len({c.series for c in read("fig4a").curves}) == 1


def test_an_own_file_may_borrow_from_its_folder_or_from_the_paper(tmp_path: Path) -> None:
    tiny(tmp_path)
    text = 'title = "t"\nkind = "trajectory"\ncurves = ["tiny"]\ncompare = ["fig2a"]\n'
    panel = read(str(tiny(tmp_path, text, "other")))
    assert [c.label for c in panel.drawn] == ["Algorithm 1, B=5", "SGD, B=20"]
    assert len(panel.curves) == 11


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("title =", "titel =", "unknown key 'titel': did you mean 'title'?"),
        ("trajectory", "trajectorie", "did you mean 'trajectory'?"),
        ("group", "grup", "unknown key 'grup'"),
        ('"A tiny panel"', "3", "title = 3: it must be a string"),
        ("batch = 20", "bach = 20", "curve 'SGD, B=20': unknown key 'bach' in [algorithm]"),
        ('"faster"', '"fastest"', "did you mean 'faster'?"),
        ('B=5", "SGD', 'B=5", "SGX', "'SGX, B=20' is no order of this panel: did you mean 'SGD"),
        ("at = [5, 11]", 'at = ["5"]', "it must be a list of numbers"),
        ("at = [5, 11]", 'by = "cost"', "by = 'cost': "),
        ("at = [5, 11]", "near = 1", "unknown key 'near'"),
        ('order = ["Algorithm 1, B=5", "SGD, B=20"]', "", "lacks order"),
        ('kind = "traj', 'curves = ["fig9"]\nkind = "traj', "there is no panel 'fig9'"),
        ('kind = "traj', 'curves = ["tiny"]\nkind = "traj', "from itself"),
        ('kind = "traj', 'quantity = "cost"\nkind = "traj', "quantity = 'cost': known are"),
        ('kind = "traj', 'runs = 0\nkind = "traj', "runs = 0: it must be at least 1"),
        ('kind = "traj', 'runs = true\nkind = "traj', "runs = True: it must be a whole number"),
        ("[base]", "[base", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in TINY
    with pytest.raises(UserError) as error:
        read(str(tiny(tmp_path, TINY.replace(old, new, 1))))
    assert line in str(error.value)
    assert "tiny.toml" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("check", "line"),
    [
        ('check = "keeps"\ncurve = "SGD, B=20"', "keeps needs a constraint"),
        ('check = "fewest"\ngroup = "SGD"\nat = [7]', "no two groups have curves with that"),
    ],
)
def test_a_check_that_does_not_fit_is_refused(tmp_path: Path, check: str, line: str) -> None:
    text = TINY[: TINY.index("[[statement]]")] + f'[[statement]]\ntext = "t"\n{check}\n'
    with pytest.raises(UserError, match=line):
        read(str(tiny(tmp_path, text)))


def test_an_unknown_name_lists_the_nearest_first() -> None:
    with pytest.raises(UserError, match=r"no figure is named 'fig1z': known are fig1a, .*, all$"):
        read("fig1z")
