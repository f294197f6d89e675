"""Carries out the runs of a reproduction: configurations in, numbers out.

The fingerprint of the cache covers this module and everything that it imports.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax

from fedssca.data import Dataset
from fedssca.run.build import build, load_dataset
from fedssca.run.config import Config, parse, render
from fedssca.run.result import Result
from fedssca.run.seeds import train_together
from fedssca.studies.reproduce.identity import against_momentum

__all__ = ["carry_out"]

Row = dict[str, Any]
Progress = Callable[[float], None]
OWN_TEST = ("adult", "fashion", "mnist")
"""Data sets whose test rows do not depend on the seed; they are loaded once for all seeds."""


def carry_out(
    task: str,
    configs: Sequence[Config],
    evaluate_at: Sequence[int],
    progress: Progress = lambda share: None,
) -> Iterator[Row]:
    """Carry out runs that differ only in the seed; yield one record per run, in order.

    A record holds `rows` (one per evaluated round), `returned` (the numbers of the model that the
    run returns), `feasible` and `notes`. `progress` is called with the fraction of the work done.
    """
    done = [0.0] * len(configs)

    def tell(number: int, row: Row) -> None:
        done[number] = row["round"] / max(configs[number].algorithm.most_rounds - 1, 1)
        progress(sum(done) / len(configs))

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # The paper's step sizes violate conditions of its theorems.
        if task == "identity":
            yield from (_compared(c, evaluate_at, partial(tell, n)) for n, c in enumerate(configs))
        else:
            shared = _dataset(configs[0]) if _own_test(configs[0]) else None
            options: Row = {"dataset": shared, "evaluate_at": evaluate_at, "on_row": tell}
            yield from map(_record, train_together(configs, **options))


def _compared(config: Config, evaluate_at: Sequence[int], tell: Callable[[Row], None]) -> Row:
    with jax.enable_x64(config.run.precision == "float64"):
        rows = against_momentum(build(config, _dataset(config)), evaluate_at, tell)
    return {"rows": rows, "returned": rows[-1], "feasible": True, "notes": []}


def _record(result: Result) -> Row:
    return {
        "rows": result.rows,
        "returned": result.final,
        "feasible": result.feasible,
        "notes": result.notes,
    }


def _dataset(config: Config) -> Dataset:
    seed = 0 if _own_test(config) else config.run.seed
    return _loaded(render(Config(data=config.data)), seed)


def _own_test(config: Config) -> bool:
    return config.data.name in OWN_TEST and not config.data.path


@functools.lru_cache(maxsize=1)
def _loaded(text: str, seed: int) -> Dataset:
    return load_dataset(parse(text, [f"run.seed={seed}"]))
