"""How much calibrated step sizes depend on the rows that are probed.

    python benchmarks/probes.py --data FOLDER [--seeds 8]

The two banks of `benchmarks/deep.py` are calibrated with the same first parameters and other rows
for each seed, with 50 rows per probe, as their rounds have, and with more. The noise that is found
with more rows is converted to that of 50: |gradient|^2 / noise grows with the rows. Printed are
the smallest and the largest tau; steps are as long as tau is small.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from deep import BOTTOMS, bank

from fedssca.methods import calibrate
from fedssca.rounds.fused import Fused
from fedssca.run.build import Job, build
from fedssca.run.config import parse

ROWS = 50
ROUNDS = 500


def job_of(folder: Path, made: Path) -> Job:
    """The two banks, with step sizes that nobody uses, so that nothing is calibrated."""
    files = [str(bank(folder, name, made)[0]) for name in ("guest", "host")]
    said = [f"data.path={files}", "data.id=id", "data.label=y", "data.split=feature", *BOTTOMS]
    fixed = ["algorithm.rho={a=0.9,alpha=0.3}", "algorithm.gamma={a=0.9,alpha=0.6}"]
    fixed.append("algorithm.tau=1.0")
    rest = ["problem.l2=0.0003", f"algorithm.rounds={ROUNDS}"]
    return build(parse("[problem]\nconstraint = []", [*said, *fixed, *rest]))


def found(job: Job, rows: int, seeds: int) -> list[float]:
    """The calibrated tau for each seed."""
    problem, taus = job.problem, []
    probing = calibrate.probe(problem, rows)
    engine = Fused(problem, job.clients, probing, 0)
    for seed in range(seeds):
        state = engine.twin(job.clients, seed).advance(
            probing.init(problem.start), calibrate.PROBES
        )
        base = np.linalg.norm(np.asarray(state.memory.base, float), axis=1)
        bend = np.asarray(state.memory.curvature, float)
        span = float((bend / base).max() * np.linalg.norm(problem.start))
        snr = 1 + max(float(state.memory.snr) - 1, 0) * ROWS / rows if rows > ROWS else None
        steps = calibrate.step_sizes(
            bend * problem.growth,
            float(state.memory.snr) if snr is None else snr,
            ROUNDS,
            span=span,
            lengths=base,
            steady=problem.steady,
        )
        taus.append(steps.tau[0])
    return taus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the files")
    parser.add_argument("--seeds", type=int, default=8)
    asked = parser.parse_args()
    print("| rows per probe | smallest tau | largest tau |\n| --- | --- | --- |")
    with TemporaryDirectory() as made:
        job = job_of(asked.data, Path(made))
    for rows in (ROWS, 4 * ROWS, 16 * ROWS):
        taus = found(job, rows, asked.seeds)
        print(f"| {rows} | {min(taus):g} | {max(taus):g} |", flush=True)


if __name__ == "__main__":
    main()
