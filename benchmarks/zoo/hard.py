"""Full-size problems on which constrained training often fails: defaults, nothing set.

    FEDSSCA_DATA=FOLDER python benchmarks/zoo/hard.py [--only WORD ...] [--seeds 4]

The zoo has smaller problems with exact references; these are whole data sets, as a user has them.
A line per run: kept or not, objective, largest constraint, held-out error, KKT residual, verdict,
and the first note. `gap` limits the difference between the losses of the sexes from both sides.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import fedssca

fedssca.keep_compiled_programs()

from problems.case import dataset, dense, folder_of  # noqa: E402
from problems.groups import gap_limits  # noqa: E402

from fedssca.run.build import build  # noqa: E402
from fedssca.run.config import parse  # noqa: E402
from fedssca.run.execute import train  # noqa: E402
from fedssca.run.result import Result  # noqa: E402

Run = Callable[[int], tuple[Result, float]]
COLUMNS = {"problem": "", "seed": "", "kept": "", "objective": ".5g", "largest F_m": ".3g"}
COLUMNS |= {"held-out error": ".2%", "KKT": ".2g", "converged": ""}


def gap(limit: float, hidden: tuple[int, ...], seed: int) -> tuple[Result, float]:
    """Adult, all rows, five clients: the sexes' losses differ by at most `limit`."""
    data = dataset("adult")
    params, apply = dense((data.train["x"].shape[1], *hidden, 2), seed)
    problem = fedssca.from_scores(apply, params, gap_limits(data.train["sex"], limit))
    clients = fedssca.by_sample(data.train, 5, "iid", seed=seed)
    algorithm = fedssca.auto(problem, clients, batch=100, rounds=1000, seed=seed)
    result = fedssca.simulate(problem, clients, algorithm, 1000, seed)
    guess = jnp.argmax(apply(result.params, data.test["x"]), -1)
    return result, float(np.mean(np.asarray(guess) != data.test["y"]))


def configured(name: str, settings: list[str], seed: int) -> tuple[Result, float]:
    """A run of `fedssca run --set ...` with a named data set and five clients."""
    data = [f"data.name={name}", "data.clients=5"]
    if folder := folder_of(name):
        data.append(f"data.dir={folder}")
    result = train(build(parse("", [*data, *settings, f"run.seed={seed}"])))
    return result, 1 - float(result.final["test_accuracy"])


def runs() -> Iterator[tuple[str, Run]]:
    for hidden in ((), (32,), (64, 32)):
        name = "linear" if not hidden else "-".join(map(str, hidden))
        for limit in (0.005, 0.05):
            yield f"adult {name}, gap <= {limit:g}", partial(gap, limit, hidden)
    loss = ["problem.objective=loss"]
    parity = 'problem.constraint=[{kind="parity", column="sex", limit=0.05}]'
    adult = [*loss, "algorithm.batch=100", "model.name=mlp", parity]
    yield "adult mlp, parity <= 0.05", partial(configured, "adult", adult)
    few = 'problem.constraint=[{kind="fnr", limit=0.01}]'
    cancer = [*loss, "model.name=linear", few]
    yield "breast cancer linear, fnr <= 0.01", partial(configured, "breast-cancer", cancer)
    small = ["problem.objective=norm", 'problem.constraint=[{kind="loss", limit=0.05}]']
    credit = ["model.name=linear", *small]
    yield "credit linear, loss <= 0.05", partial(configured, "credit", credit)


def cells_of(result: Result, error: float) -> list[Any]:
    """The measured cells of a row."""
    final = result.final
    largest = float(max(final["constraints"]))
    residual = float(result.kkt_residual)
    found = [bool(result.feasible), float(final["objective"]), largest, error, residual]
    return [*found, bool(result.converged)]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--only", nargs="+", default=[""], help="problems whose name has this word")
    args.add_argument("--seeds", type=int, default=4)
    said = args.parse_args()
    warnings.simplefilter("ignore")
    print(*COLUMNS, sep=" | ")
    for name, run in runs():
        for seed in range(said.seeds) if any(word in name for word in said.only) else ():
            result, error = run(seed)
            row = zip([name, seed, *cells_of(result, error)], COLUMNS.values(), strict=True)
            cells = (f"{c:{style}}" if isinstance(c, float) else str(c) for c, style in row)
            print(" | ".join(cells), *result.notes[:1], flush=True)


if __name__ == "__main__":
    main()
