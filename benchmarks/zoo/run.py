"""Train the problems of the zoo and compare with their references; see README.md.

    python benchmarks/zoo/run.py [--case NAME ...] [--method default] [--seeds 3]

Every result is appended to a file as soon as it exists; a run that is started again goes on.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import fedssca

fedssca.keep_compiled_programs()

from methods import METHODS  # noqa: E402
from problems import CASES, Case  # noqa: E402
from reference import reference  # noqa: E402
from table import HEAD, line  # noqa: E402


def train(name: str, case: Case, method: str, algorithm: Any, seed: int) -> dict[str, Any]:
    """Train once; the record has raw numbers only, comparisons are made when it is read."""
    begun = time.perf_counter()
    record: dict[str, Any] = {"case": name, "method": method, "seed": seed}
    try:
        result = fedssca.simulate(case.problem, case.clients, algorithm(), case.rounds, seed)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        return record | {"failed": failed[:300], "seconds": time.perf_counter() - begun}
    certificate = result.certificate
    return record | {
        "kept": result.feasible,
        "objective": result.final["objective"],
        "constraints": list(result.final["constraints"]),
        "prices": [entry["multiplier"] for entry in certificate["constraints"]],
        "kkt": result.kkt_residual,
        "converged": getattr(result, "converged", None),
        "rounds": result.rows[-1]["round"] + 1,
        "returned": certificate["returned"]["round"],
        "last_objective": result.rows[-1]["objective"],
        "last_worst": max(result.rows[-1]["constraints"], default=None),
        "seconds": time.perf_counter() - begun,
        "notes": result.notes,
    }


def records(place: Path) -> list[dict[str, Any]]:
    """What has been recorded so far; a line that was cut off is left out."""
    found = []
    for text in place.read_text().splitlines() if place.exists() else []:
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--case", nargs="+", default=[], help="cases (default: all but large ones)")
    args.add_argument("--method", default="default", choices=[*METHODS])
    args.add_argument("--seeds", type=int, default=3)
    args.add_argument("--first", type=int, default=0, help="the first seed")
    args.add_argument("--large", action="store_true", help="include the large cases")
    args.add_argument("--fresh", action="store_true", help="forget earlier results")
    args.add_argument("--out", type=Path, default=Path("runs/zoo"), help="folder of the results")
    said = args.parse_args()
    if unknown := set(said.case) - set(CASES):
        args.error(f"no case is named {sorted(unknown)[0]!r}; known: {', '.join(CASES)}")
    warnings.simplefilter("ignore")
    said.out.mkdir(parents=True, exist_ok=True)
    place = said.out / "results.jsonl"
    if said.fresh:
        place.unlink(missing_ok=True)
    names = said.case or [n for n, e in CASES.items() if said.large or not e.large]
    done = {(r["case"], r["method"], r["seed"]): r for r in records(place)}
    print(HEAD)
    for name in names:
        for seed in range(said.first, said.first + said.seeds):
            key = (name, said.method, seed)
            if key not in done:
                case = CASES[name].build(seed)
                maker = METHODS[said.method]
                done[key] = train(
                    name, case, said.method, lambda c=case, s=seed, m=maker: m(c, s), seed
                )
                with place.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
            print(line(done[key], CASES[name].build(0), reference(name)), flush=True)


if __name__ == "__main__":
    main()
