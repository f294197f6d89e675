"""The tables of docs/constraints.md: constraints.py mnist|adult|cancer|clients|time [data folder]

Every number is one training through the same code as `fedssca run`; rivals get the same number of
trials each (log-uniform draws) and the best one is shown: lowest training cost or |w|^2 among those
that keep the limits on the training data, else the one that misses by least.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.run import execute as runner
from fedssca.run.build import RUNTIMES, build
from fedssca.run.config import parse
from fedssca.run.result import Result

warnings.simplefilter("ignore")


def train(*settings: str, base: str = "") -> tuple[Any, Result]:
    job = build(parse(base, settings))
    return job, runner.train(job)


def score(result: Result, key: str) -> tuple[float, float]:
    worst = max([*result.final["constraints"], 0.0])
    return worst, result.final[key]


def draws(method: str, trials: int, seed: int = 0) -> list[list[str]]:
    """Settings to try: the same number for every rival, log-uniform over wide ranges."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(trials):
        rate, dual, penalty, initial = rng.uniform(size=4)
        momentum = rng.choice([0.0, 0.9])
        scale = (1 - momentum) * 10 ** (-1.5 + 2.5 * rate)
        out.append(
            [
                f"algorithm.name={method}",
                f"algorithm.rate={{a={scale}, cool=0.8}}",
                f"algorithm.momentum={momentum}",
                f"algorithm.dual_rate={{a={10 ** (-2 + 4 * dual)}, cool=0.8}}",
                f"algorithm.initial={10 ** (-1 + 4 * initial)}",
                f"algorithm.tolerance={-0.02 * dual}",
                f"problem.penalty={10 ** (0.5 + 4.0 * penalty)}",
            ]
        )
    return out


def best_of(method: str, trials: int, key: str, *settings: str, base: str) -> Result | None:
    found = None
    for drawn in draws(method, trials):
        try:
            _, result = train(*settings, *drawn, base=base)
        except UserError:
            continue
        if found is None or score(result, key) < score(found, key):
            found = result
    return found


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells: str) -> None:
    row(*cells)
    row(*("---" for _ in cells))


MNIST = """
data.name = "mnist"
problem.objective = "norm"
run.evaluate_every = 50
[[problem.constraint]]
kind = "loss"
limit = 0.13
"""


def mnist(directory: str, seeds: int = 3) -> None:
    head("split", "B", "rounds", "limit U", "seed", "F", "|w|^2", "test acc.", "kept", "s")
    cases = [("sample", 100), ("sample", 10), ("feature", 1000), ("feature", 100)]
    for split, batch in cases:
        for limit in (0.13, 0.2, 0.3):
            for seed in range(seeds if limit == 0.13 else 1):
                mnist_row(directory, split, batch, limit, seed)
    mnist_row(directory, "feature", 10, 0.13, 0)


def mnist_row(
    directory: str, split: str, batch: int, limit: float, seed: int, rounds: int = 1000
) -> None:
    begun = time.perf_counter()
    _, result = train(
        f"data.dir={directory}",
        f"data.split={split}",
        f"algorithm.batch={batch}",
        f"algorithm.rounds={rounds}",
        f"problem.constraint.0.limit={limit}",
        f"run.seed={seed}",
        base=MNIST,
    )
    final = result.final
    row(
        split,
        batch,
        rounds,
        limit,
        seed,
        f"{final['train_cost']:.4f}",
        f"{final['norm_sq']:.1f}",
        f"{final['test_accuracy']:.2%}",
        "yes" if result.feasible else "no: " + result.notes[0],
        f"{time.perf_counter() - begun:.0f}",
    )


ADULT = """
data.name = "adult"
model.name = "linear"
model.hidden = 16
problem.objective = "loss"
problem.l2 = 1e-4
algorithm.batch = 100
algorithm.rounds = 500
run.evaluate_every = 20
"""
PARITY = 'problem.constraint=[{{kind="parity", column="sex", limit={limit}}}]'


def adult(directory: str, trials: int = 6) -> None:
    head(
        "model", "clients", "split", "method", "limit", "gap train", "gap test", "kept", "test acc."
    )
    place = f"data.dir={directory}"
    for model in ("linear", "mlp"):
        for clients in (5, 20):
            for partition in ("iid", "dirichlet") if clients == 5 else ("dirichlet",):
                where = (
                    place,
                    f"model.name={model}",
                    f"data.clients={clients}",
                    f"data.partition={partition}",
                    f"algorithm.batch={100 if clients == 5 else 25}",
                )
                named = (model, clients, partition)
                # An idle limit, so that the gap of the unconstrained model is measured too.
                _, free = train(*where, PARITY.format(limit=0.99), base=ADULT)
                adult_row(named, "unconstrained", "-", free)
                for limit in (0.05, 0.02):
                    limited = (*where, PARITY.format(limit=limit))
                    _, ours = train(*limited, base=ADULT)
                    adult_row(named, "ssca", limit, ours)
                    if (clients, partition, limit) == (5, "iid", 0.05):
                        for rival in ("primal-dual", "augmented", "penalty", "switching"):
                            best = best_of(rival, trials, "train_cost", *limited, base=ADULT)
                            adult_row(named, f"{rival} (best of {trials})", limit, best)


def adult_row(named: tuple[Any, ...], method: str, limit: object, result: Result | None) -> None:
    if result is None:
        row(*named, method, limit, "-", "-", "diverged", "-")
        return
    final = result.final
    train_gap, test_gap = final["train_parity_sex"], final["test_parity_sex"]
    row(
        *named,
        method,
        limit,
        f"{train_gap:+.4f}",
        f"{test_gap:+.4f}",
        "-" if limit == "-" else ("yes" if result.feasible else "no"),
        f"{final['test_accuracy']:.2%}",
    )


CANCER = """
data.name = "breast-cancer"
data.clients = 5
model.name = "linear"
problem.objective = "loss"
problem.l2 = 1e-4
algorithm.batch = 20
algorithm.rounds = 500
run.evaluate_every = 10
"""


def cancer(seeds: int = 3) -> None:
    head("parties", "seed", "constraint", "FNR train", "FNR test", "FPR train", "FPR test", "kept")
    watch = '{kind="fpr", limit=0.999}'
    for split, clients, batch in (("sample", 5, 20), ("feature", 2, 100)):
        for limit in (0.999, 0.01):
            for seed in range(seeds):
                _, result = train(
                    f"data.split={split}",
                    f"data.clients={clients}",
                    f"algorithm.batch={batch}",
                    f"run.seed={seed}",
                    f'problem.constraint=[{{kind="fnr", limit={limit}}}, {watch}]',
                    base=CANCER,
                )
                final = result.final
                row(
                    f"{clients} {'hospitals' if split == 'sample' else 'parties, vertical'}",
                    seed,
                    "-" if limit > 0.5 else f"FNR <= {limit}",
                    *(
                        f"{final[key]:.4f}"
                        for key in ("train_fnr", "test_fnr", "train_fpr", "test_fpr")
                    ),
                    "yes" if result.feasible else "no",
                )


CLIENTS = """
data.name = "digits"
data.clients = 10
data.partition = "classes"
data.classes_per_client = 1
model.hidden = 32
problem.objective = "loss"
problem.l2 = 1e-4
algorithm.batch = 20
algorithm.rounds = 500
"""


def clients(seeds: int = 3) -> None:
    head(
        "labels a client", "seed", "method", "worst client's loss", "mean loss", "kept", "test acc."
    )
    for labels in (1, 2):
        for seed in range(seeds):
            shared = (f"data.classes_per_client={labels}", f"run.seed={seed}")
            average = [
                train(
                    *shared,
                    "algorithm.name=sgd",
                    "algorithm.local_steps=5",
                    f"algorithm.rate={rate}",
                    base=CLIENTS,
                )
                for rate in (0.03, 0.1, 0.3, 1.0)
            ]
            job, result = min(average, key=lambda pair: worst_client(*pair))
            client_row(labels, seed, "FedAvg, E = 5, best of 4 rates", job, result)
            limit = 'problem.constraint=[{kind="client_loss", limit=0.05}]'
            job, result = train(*shared, limit, base=CLIENTS)
            client_row(labels, seed, "ssca, every client <= 0.05", job, result)


def worst_client(job: Any, result: Result) -> float:
    from fedssca.problem.constraints import cross_entropy

    losses = []
    for i in range(job.clients.count):
        own = job.clients.client(i)
        batch = {name: jax.numpy.asarray(column) for name, column in own.items()}
        w0, w1 = result.params
        h = batch["x"].astype(w1.dtype) * job.dataset.scale @ w1.T
        losses.append(float(cross_entropy(jax.nn.swish(h) @ w0.T, batch).mean()))
    return max(losses)


def client_row(labels: int, seed: int, method: str, job: Any, result: Result) -> None:
    kept = "-" if not job.problem.constraints else ("yes" if result.feasible else "no")
    cost, accuracy = result.final["train_cost"], result.final["test_accuracy"]
    worst = f"{worst_client(job, result):.4f}"
    row(labels, seed, method, worst, f"{cost:.4f}", kept, f"{accuracy:.2%}")


def timing(directory: str, turns: int = 41, rounds: int = 20) -> None:
    """Rounds with M constraints against the unconstrained round.

    Turns are short and alternate, so that other work on the machine slows all of them alike.
    """
    head("M", "ms a round", "ratio to the unconstrained round")
    engines = {}
    for count in (0, 1, 3, 10):
        kinds = [f'{{kind="fnr", positive={m}, limit=0.05}}' for m in range(count)]
        settings = [f"data.dir={directory}", "algorithm.batch=100", "data.name=mnist"]
        job = build(parse("", [*settings, f"problem.constraint=[{', '.join(kinds)}]"]))
        engine = RUNTIMES["fused"](job.problem, job.clients, job.algorithm, 0)
        engines[count] = engine, engine.advance(job.algorithm.init(job.problem.start), 2)
    seconds: dict[int, list[float]] = {count: [] for count in engines}
    for turn in range(turns):
        for count in (*engines,) if turn % 2 else reversed(engines):
            engine, state = engines[count]
            begun = time.perf_counter()
            engine.advance(state, 2 + rounds).w.block_until_ready()
            seconds[count].append((time.perf_counter() - begun) / rounds)
    base = np.median(seconds[0])
    for count, spent in seconds.items():
        row(count, f"{1e3 * np.median(spent):.2f}", f"{np.median(spent) / base:.2f}")


PAPER = {
    100: ("rho={a=0.3, alpha=0.1}", "gamma={a=0.3, alpha=0.1}", "tau=0.05"),
    10: ("rho={a=0.9, alpha=0.1}", "gamma={a=0.5, alpha=0.1}", "tau=0.2"),
}


def picture(directory: str) -> None:
    """docs/constraints.png: the loss over the rounds, the paper's rule against the default."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    for axis, (batch, steps) in zip(figure.subplots(1, 2, sharey=True), PAPER.items(), strict=True):
        shared = [f"data.dir={directory}", f"algorithm.batch={batch}", "run.evaluate_every=20"]
        printed = [f"algorithm.{step}" for step in steps]
        _, plain = train(*shared, *printed, "algorithm.multipliers=exact", base=MNIST)
        _, ours = train(*shared, base=MNIST)
        axis.axhspan(0, 0.13, color="#009E73", alpha=0.12, label="limit kept")
        axis.axhline(0.13, color="black", linewidth=1)
        for result, name, colour, dash in (
            (plain, "exact penalty, printed step sizes", "#D55E00", "--"),
            (ours, "default, nothing set", "#0072B2", "-"),
        ):
            seen = [(each["round"], each["train_cost"]) for each in result.rows]
            norm = result.final["norm_sq"]
            kept = "kept" if result.feasible else "broken"
            label = f"{name}: limit {kept}, |w|² {norm:.0f}"
            axis.plot(*zip(*seen, strict=True), label=label, color=colour, linestyle=dash)
            axis.plot(seen[-1][0], result.final["train_cost"], "o", color=colour)
        axis.set(xlabel="communication round", ylim=(0, 0.6), title=f"ten clients, B = {batch}")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        print(batch, plain.final["train_cost"], ours.final["train_cost"], flush=True)
    figure.axes[0].set_ylabel("training loss")
    figure.savefig("docs/constraints.png", dpi=120)


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    directory = sys.argv[2] if len(sys.argv) > 2 else ""
    parts = {
        "mnist": lambda: mnist(directory),
        "adult": lambda: adult(directory),
        "cancer": cancer,
        "clients": clients,
        "time": lambda: timing(directory),
        "picture": lambda: picture(directory),
    }
    for name in parts if what == "all" else [what]:
        print(f"\n{name}\n")
        parts[name]()


if __name__ == "__main__":
    main()
