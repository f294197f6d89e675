"""How often promises about new rows are false, and what they cost.

    FEDSSCA_DATA=FOLDER python benchmarks/certify.py --out FOLDER --draws 300      # coverage
    FEDSSCA_DATA=FOLDER python benchmarks/certify.py --out FOLDER --draws 100 --power
    python benchmarks/certify_table.py FOLDER docs/new-rows.png                    # table, figure

Each draw takes a small training set and a small calibration set from a population
(`certify_populations`), trains a linear model under one kind of limit, certifies it, and looks on
the whole population whether the limit holds. A line of JSON per draw is appended to
FOLDER/coverage.jsonl (or power.jsonl); what is there already is not drawn again.

Training rows have the same number of rows of every class, group and site in each draw, so that the
compiled programs are the same; calibration rows are independent draws, as certificates assume.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from certify_linear import CLIP, LinearRows, linear_evaluator, linear_evidence
from certify_populations import POPULATIONS, Population
from scipy.stats import t as student

import fedssca
from fedssca.data import Rows
from fedssca.evaluate.biases import biases
from fedssca.evaluate.certificate import BestPoints, refine, restore
from fedssca.evaluate.confidence.claims import Claim, ClaimResult
from fedssca.evaluate.confidence.evidence import Evidence, evidence_pass
from fedssca.evaluate.confidence.path import cautious_to_bold, last_passed
from fedssca.evaluate.confidence.statement import Calibration, TestedStatement, Tester
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.evaluate.finish import finish
from fedssca.evaluate.passes import held_out
from fedssca.evaluate.thresholds import set_thresholds
from fedssca.rounds.fused import Fused
from fedssca.run.conclude import last_steps
from fedssca.system import keep_compiled_programs

Table = dict[str, np.ndarray]
DELTA, ROUNDS, BATCH = 0.05, 40, 20
KINDS = ("fnr", "gap", "loss", "client")
POWER = (("synthetic", "fnr"), ("synthetic", "gap"), ("adult", "fnr"), ("adult", "gap"))
SIZES = (100, 200, 400, 800, 1600, 3200)
"""Numbers of calibration rows for the curve of power."""


class Setting(NamedTuple):
    """A population and a kind of limit, with everything that all draws share."""

    population: Population
    kind: str
    cells: list[np.ndarray]
    """The rows of each class, group and site, from which training rows are drawn."""
    counts: list[int]
    problem: Any
    algorithm: Any
    engine: Fused
    thresholds: np.ndarray | None
    whole: np.ndarray
    """The features of the population with a leading column of ones."""

    @property
    def limit(self) -> float:
        """The limit of this kind."""
        return self.population.limits[self.kind]

    def rows(self, columns: Table, site: np.ndarray) -> LinearRows:
        """Rows of this setting, for sums over them."""
        ones = np.ones((len(site), 1), np.float32)
        names = list(dict.fromkeys(bound.quantity for bound in self.problem.bounds))
        x, y, group = (columns[name] for name in ("x", "y", "group"))
        a = np.hstack([ones, x])
        return LinearRows(self.kind, self.limit, a, y, group, site, self.sites, names)

    @property
    def sites(self) -> int:
        """The number of sites."""
        return int(self.population.site.max()) + 1


def setting(name: str, kind: str) -> Setting:
    """Everything that does not depend on the draw, compiled once."""
    population = POPULATIONS[name]()
    cells, counts = [], []
    for site in range(int(population.site.max()) + 1):
        for y in (0, 1):
            for group in (0, 1):
                own = (population.site == site) & (population.y == y) & (population.group == group)
                if own.any():
                    cells.append(np.flatnonzero(own))
                    counts.append(max(1, round(own.mean() * population.train)))
    first = trained_on(population, cells, counts, np.random.default_rng(0))
    table, limit = first.columns, population.limits[kind]
    model = fedssca.linear(population.x.shape[1], 2)
    if kind == "fnr":
        limits = fedssca.false_negative_rate_at_most(limit, table["y"], positive=1)
    elif kind == "gap":
        limits = fedssca.parity_gap_at_most(limit, table["group"], "group", positive=1)
    elif kind == "loss":
        limits = fedssca.loss_at_most(limit)
    else:
        limits = fedssca.client_loss_at_most(limit, first.sizes)
    objective = "loss" if kind in ("fnr", "gap") else "norm"
    problem = fedssca.classifier(model, limits, objective=objective)
    algorithm = fedssca.auto(problem, first, batch=min(BATCH, *first.sizes), rounds=ROUNDS)
    return Setting(
        population,
        kind,
        cells,
        counts,
        problem,
        algorithm,
        Fused(problem, first, algorithm, 0),
        biases(problem, first) if problem.stepwise else None,
        np.hstack([np.ones((len(population.y), 1), np.float32), population.x]),
    )


def trained_on(
    population: Population, cells: list[np.ndarray], counts: list[int], rng: np.random.Generator
) -> Rows:
    """Training rows, site by site, with the same number of rows of every cell."""
    rows = np.concatenate([rng.choice(own, n) for own, n in zip(cells, counts, strict=True)])
    sizes = np.bincount(population.site[rows])
    return Rows(taken(population, rows), tuple(int(size) for size in sizes))


def taken(population: Population, rows: np.ndarray) -> Table:
    """Some rows of a population."""
    return {name: getattr(population, name)[rows] for name in ("x", "y", "group")}


class Values(NamedTuple):
    """The limited quantity as means over parts of some rows: its value, and a t-test."""

    limit: float
    two_sided: bool
    means: list[list[np.ndarray]]
    """For each claim the values whose mean is limited; of a gap those of two groups."""

    def broken(self) -> bool:
        """A limit is broken on these rows."""
        return any(self._value(parts) > self.limit + 1e-9 for parts in self.means)

    def _value(self, parts: list[np.ndarray]) -> float:
        if not all(len(part) for part in parts):
            return -np.inf
        value = parts[0].mean() - (parts[1].mean() if len(parts) > 1 else 0.0)
        return abs(value) if self.two_sided else float(value)

    def error(self, parts: list[np.ndarray], rows: float = 1.0) -> float:
        """The standard error of the value; `rows` scales the numbers of rows."""
        return float(np.sqrt(sum(p.var(ddof=1) / (len(p) * rows) for p in parts)))

    def margin(self, share: float) -> float:
        """The least distance from a limit in standard errors, with this share of the rows."""
        return min(
            (self.limit - self._value(parts)) / max(self.error(parts, share), 1e-12)
            for parts in self.means
            if all(len(part) > 1 for part in parts)
        )

    def passes_t_test(self) -> bool:
        """Every claim passes a t-test (of a gap: that of Welch) at the level DELTA."""
        for parts in self.means:
            if any(len(part) < 2 for part in parts):
                return False
            variances = np.array([part.var(ddof=1) / len(part) for part in parts])
            freedom = np.array([len(part) - 1 for part in parts])
            total = variances.sum()
            degrees = total**2 / (variances**2 / freedom).sum() if total > 0 else freedom.min()
            bound = self._value(parts) + student.ppf(1 - DELTA, degrees) * np.sqrt(total)
            if bound > self.limit:
                return False
        return True


def judged(at: Setting, z: np.ndarray, rows: np.ndarray, each_site: bool = False) -> Values:
    """The limited quantity on rows of the population with scores z, or that of every site."""
    people = at.population
    y, group, site = people.y[rows], people.group[rows], people.site[rows]
    whole = np.ones(len(rows), bool)
    if at.kind == "fnr":
        parts, value = [y == 1], (z <= 0).astype(float)
    elif at.kind == "gap":
        parts, value = [group == 1, group == 0], (z > 0).astype(float)
    else:
        parts, value = [whole], np.minimum(losses(z, y), CLIP)
    apart = each_site or at.kind == "client"
    where = [site == i for i in range(at.sites)] if apart else [whole]
    means = [[value[part & own] for part in parts] for own in where]
    return Values(at.limit, at.kind == "gap", means)


def losses(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The cross-entropy of every row."""
    return np.asarray(np.logaddexp(0, np.where(y == 1, -z, z)))


def scores(at: Setting, w: Any, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """The score of class 1 on rows of the population; that of class 0 is 0."""
    return np.asarray(at.whole[rows] @ np.asarray(w, np.float32))


class StudentTester(Tester):
    """The certificate of common practice: a t-test on the same rows."""

    at: Setting
    drawn: np.ndarray

    def test(self, w: Any, train: Any) -> TestedStatement:
        """Pass if every claim passes a t-test."""
        del train
        z = scores(self.at, w, self.drawn)
        passes = judged(self.at, z, self.drawn).passes_t_test()
        nothing = Evidence(*(np.zeros(1) for _ in range(3)), *(np.zeros((1, 2, 3)),) * 2, 1.0, True)
        claim = ClaimResult(0, None, Claim(1.0, 0.0, DELTA), 0.0 if passes else 1.0, nothing)
        return TestedStatement([claim])


def trained(at: Setting, clients: Rows, evaluator: Any, seed: int) -> tuple[Any, bool]:
    """The model that a run returns on training rows alone, and whether it keeps its limits there.

    The steps are those of `fedssca.run.conclude`.
    """
    points, engine = BestPoints(), at.engine.twin(clients, seed)
    state = engine.advance(at.algorithm.init(at.problem.start), ROUNDS - 1)
    w = jnp.asarray(state.w)
    row = evaluator.row(w) | {"round": ROUNDS - 1}
    points.see(w, row)
    finish(evaluator, points, w, row, last_steps(at.algorithm, at.problem, clients, state))
    set_thresholds(at.problem, evaluator, points, w, row, at.thresholds)
    if points.best is None:
        restore(evaluator, points, w, row)
    if points.best is None:
        assert points.least is not None
        return points.least[0], False
    return refine(evaluator, points, w)[0], True


def drawn(at: Setting, number: int, calibration: int, power: bool) -> dict[str, Any]:
    """One draw: the model on training rows alone, and the certified ones."""
    rng, people = np.random.default_rng([number, 7]), at.population
    clients = trained_on(people, at.cells, at.counts, rng)
    held = rng.integers(len(people.y), size=calibration)
    columns = taken(people, held) | {"client": people.site[held]}
    evaluator = linear_evaluator(at.rows(clients.columns, clients.owners()))
    w, kept = trained(at, clients, evaluator, number)
    start, rows = (w, evaluator.row(w) | {"round": 0}), at.rows(columns, people.site[held])
    out: dict[str, Any] = {"plain": {"kept": kept} | truth(at, w)}

    def tester(kind: type[Tester], each_site: bool) -> Any:
        given = Calibration(columns, 1 - DELTA, each_site, CLIP, at.sites)
        return kind(at.problem, given, lambda w, bets: linear_evidence(rows, w, bets))

    def outcome(tester: Tester) -> dict[str, Any]:
        passed, _, tested = last_passed(tester, evaluator, path)
        told = {"certified": passed is not None, "tested": tested}
        return told if passed is None else told | truth(at, passed)

    for name, each_site in (("pooled", False), ("each_site", True)):
        if each_site and (at.kind == "client" or power):
            continue
        own = tester(Tester, each_site)
        path, _ = cautious_to_bold(at.problem, evaluator, own, start, at.thresholds)
        out[name] = outcome(own) | {"margin": margin(at, path[0], each_site, calibration)}
        if not each_site:
            common = tester(StudentTester, False)
            common.at, common.drawn = at, held
            out["student"] = outcome(common)
        if power:
            known = [truth(at, model) for model in path]
            out["oracle"] = next((each for each in reversed(known) if not each["false"]), None)
    return out


def margin(at: Setting, w: Any, each_site: bool, calibration: int) -> float:
    """How far a model is inside its limits, in standard errors of so many calibration rows."""
    z = scores(at, w)
    return judged(at, z, np.arange(len(z)), each_site).margin(calibration / len(z))


def truth(at: Setting, w: Any) -> dict[str, Any]:
    """What the population says of a model."""
    z, y = scores(at, w), at.population.y
    everyone = np.arange(len(y))
    return {
        "false": judged(at, z, everyone).broken(),
        "false_at_a_site": judged(at, z, everyone, each_site=True).broken(),
        "loss": float(losses(z, y).mean()),
        "accuracy": float(((z > 0) == (y == 1)).mean()),
    }


def check(at: Setting) -> None:
    """The sums of `certify_linear` are those of the package, at a random model."""
    rng = np.random.default_rng(1)
    clients = trained_on(at.population, at.cells, at.counts, rng)
    w = jnp.asarray(rng.normal(size=at.problem.dimension), jnp.float32)
    rows = at.rows(clients.columns, clients.owners())
    own, real = linear_evaluator(rows), evaluator_over(at.problem, clients, None)
    for name in ("objective", "constraints", "norm_sq"):
        np.testing.assert_allclose(own.row(w)[name], real.row(w)[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own.gradients(w), real.gradients(w), rtol=1e-3, atol=1e-4)
    columns = dict(clients.columns) | {"client": clients.owners()}
    tester = Tester(at.problem, Calibration(columns, 0.9, True, CLIP, at.sites))
    bets = tester.bets_on(own.tally(w))
    for name, theta in tester.bets_on(real.tally(w)).items():
        np.testing.assert_allclose(bets[name].theta, theta.theta, rtol=1e-3)
    real_lines = evidence_pass(at.problem, at.sites)(w, held_out(columns), bets)
    for mine, theirs in zip(linear_evidence(rows, w, bets), real_lines, strict=True):
        for name in mine:
            assert mine[name].counted == theirs[name].counted
            for part in ("weights", "top", "rows"):
                np.testing.assert_allclose(
                    getattr(mine[name], part), getattr(theirs[name], part), rtol=1e-4, atol=1e-4
                )
            if not mine[name].counted:
                np.testing.assert_allclose(mine[name].sums, theirs[name].sums, rtol=1e-3, atol=1e-3)


def wanted(power: bool, draws: int, done: set[Any]) -> Iterator[tuple[str, str, int, int]]:
    """What is to be drawn: a few draws of every setting, then the next few."""
    pairs = POWER if power else [(name, kind) for name in POPULATIONS for kind in KINDS]
    for first in range(0, draws, 20):
        for name, kind in pairs:
            for size in SIZES if power else (0,):
                for draw in range(first, min(first + 20, draws)):
                    if (name, kind, size, draw) not in done:
                        yield name, kind, size, draw


def main() -> None:
    """Draw until there are as many draws as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare all sums with the package")
    given = parser.parse_args()
    keep_compiled_programs()
    warnings.simplefilter("ignore")
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / ("power.jsonl" if given.power else "coverage.jsonl")
    lines = file.read_text().splitlines() if file.exists() else []
    done = {tuple(json.loads(line)["of"]) for line in lines}
    settings: dict[tuple[str, str], Setting] = {}
    for name, kind, size, draw in wanted(given.power, given.draws, done):
        begun = time.perf_counter()
        if (name, kind) not in settings:
            settings[name, kind] = setting(name, kind)
            if given.check:
                check(settings[name, kind])
        at = settings[name, kind]
        found = drawn(at, draw, size or at.population.calibration, given.power)
        found |= {"of": [name, kind, size, draw], "seconds": time.perf_counter() - begun}
        with file.open("a") as out:
            out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
