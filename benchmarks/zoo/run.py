"""Train the problems of the zoo and compare with their references; see README.md.

    python benchmarks/zoo/run.py [--case NAME ...] [--method default] [--seeds 3] [--summary]

Every result is appended to a file as soon as it exists; a run that is started again goes on. With
--record, the summary also writes its tables to docs/evidence/zoo.json.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fedssca

fedssca.keep_compiled_programs()

from methods import METHODS  # noqa: E402
from problems import CASES, Case  # noqa: E402
from records import Record, Store  # noqa: E402
from reference import reference  # noqa: E402
from rivals import FREE, RIVALS, TRIALS, fitting, rival, settings  # noqa: E402
from table import HEAD, best_trial, line  # noqa: E402

CHOICES = {
    "default": ["default"],
    "steered": ["steered"],
    "exact": ["exact-printed", "exact-calibrated"],
    "rivals": [*RIVALS, *FREE],
    "all": [*METHODS, *RIVALS, *FREE],
}


def train(case: Case, algorithm: Callable[[], Any], seed: int) -> Record:
    """Train once; the record has raw numbers only, comparisons are made when it is read."""
    begun = time.perf_counter()
    try:
        result = fedssca.simulate(case.problem, case.clients, algorithm(), case.rounds, seed)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        return {"failed": failed[:300], "seconds": time.perf_counter() - begun}
    certificate, done = result.certificate, getattr(result, "converged", None)
    return {
        "kept": result.feasible,
        "objective": result.final["objective"],
        "constraints": list(result.final["constraints"]),
        "prices": [entry["multiplier"] for entry in certificate["constraints"]],
        "kkt": result.kkt_residual,
        "converged": None if done is None else bool(done),
        "rounds": result.rows[-1]["round"] + 1,
        "returned": certificate.get("returned", {}).get("round"),
        "last_objective": result.rows[-1]["objective"],
        "last_worst": max(result.rows[-1]["constraints"], default=None),
        "seconds": time.perf_counter() - begun,
        "notes": list(result.notes),
    }


def own_runs(store: Store, name: str, method: str, seeds: range) -> Iterator[Record]:
    """A method without settings: one run per seed."""
    for seed in seeds:
        key = {"case": name, "method": method, "seed": seed}
        if key not in store:
            case = CASES[name].build(seed)
            store.add(key | train(case, partial(METHODS[method], case, seed), seed))
        yield store[key]


def rival_runs(store: Store, name: str, method: str, seeds: range) -> Iterator[Record]:
    """All trials with the first seed, then the best one with the other seeds."""
    case = CASES[name].build(seeds[0])
    if method not in fitting(case) or not CASES[name].feasible:
        return
    tried = []
    for trial in range(TRIALS):
        key = {"case": name, "method": method, "seed": seeds[0], "trial": trial}
        if key not in store:
            own = {"settings": settings(method, trial, case)}
            found = train(case, partial(rival, method, trial, case), seeds[0])
            store.add(key | own | found)
        tried.append(store[key])
    best = best_trial(tried)
    yield best
    for seed in seeds[1:]:
        key = {"case": name, "method": method, "seed": seed, "trial": best["trial"]}
        if key not in store:
            case = CASES[name].build(seed)
            found = train(case, partial(rival, method, best["trial"], case), seed)
            store.add(key | {"settings": best["settings"]} | found)
        yield store[key]


def decided(store: Store, name: str) -> bool:
    """The default method has reached an exact optimum, so that rivals need not be run."""
    from summary import at_optimum

    runs = [r for r in store.records if (r["case"], r["method"]) == (name, "default")]
    return bool(runs) and at_optimum(runs, reference(name))


def write_tables(store: Store) -> None:
    """Write the tables of docs/constraints.md into the record of the zoo.

    It names no code: the results may come from runs that were stopped and continued later.
    """
    from counts import tables

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks.evidence.record import facts_of, read_parts, write_record

    facts = facts_of(read_parts()["zoo"])
    found = tables(store.records, list(CASES))
    write_record("zoo", facts | {"code": "", "tables": found})


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--case", nargs="+", default=[], help="cases (default: all but large ones)")
    args.add_argument("--method", nargs="+", default=["default"], help=", ".join(CHOICES))
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=0, help="the first seed")
    args.add_argument("--large", action="store_true", help="include the large cases")
    args.add_argument("--fresh", action="store_true", help="forget earlier results")
    args.add_argument("--summary", action="store_true", help="train nothing; count and plot")
    args.add_argument("--record", action="store_true", help="write the tables of the pages")
    args.add_argument("--out", type=Path, default=Path("runs/zoo"), help="folder of the results")
    said = args.parse_args()
    if unknown := set(said.case) - set(CASES):
        args.error(f"no case is named {sorted(unknown)[0]!r}; known: {', '.join(CASES)}")
    if unknown := set(said.method) - {*CHOICES, *CHOICES["all"]}:
        args.error(f"no method is named {sorted(unknown)[0]!r}; known: {', '.join(CHOICES)}")
    warnings.simplefilter("ignore")
    store = Store(said.out / "results.jsonl", said.fresh)
    shutil.copy(Path(__file__).with_name("references.json"), said.out)  # fedssca ui shows both
    names = said.case or [n for n, e in CASES.items() if said.large or not e.large]
    if said.summary:
        from summary import plot, summarise

        print(summarise(store.records, said.case or list(CASES)))
        print(f"\n{plot(store.records, said.case or list(CASES), said.out / 'zoo.png')}")
        if said.record:
            write_tables(store)
        return
    methods = list(dict.fromkeys(m for s in said.method for m in CHOICES.get(s, [s])))
    seeds = range(said.first, said.first + said.seeds)
    print(HEAD)
    for name in names:
        for method in methods:
            if method in CHOICES["rivals"] and not said.case and decided(store, name):
                continue
            runs = own_runs if method in METHODS else rival_runs
            for record in runs(store, name, method, seeds):
                print(line(record, reference(name)), flush=True)


if __name__ == "__main__":
    main()
