"""Short runs that cover every method, every split and every way to hide messages.

A change of the sources that is meant to change no result must leave the final `w` of each run
as it is, bit for bit. The runs use the command line and the names that `import fedssca` exports,
and nothing else, so that they do not depend on where a function is defined.

`python -m tests.regression.runs --save tests/regression/golden.npz` computes and saves them all;
names after that select some of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import jax
import jaxlib
import numpy as np

import fedssca
from tests.compiler import FAST, IN_ONE_PART

# Every run of the command line starts from these keys. Its own settings override them.
BASE = """
[data]
name = "breast-cancer"
clients = 4
[model]
hidden = 8
[problem]
penalty = 100.0
l2 = 1e-5
[algorithm]
batch = 10
rounds = 21
[run]
seed = 3
evaluate_every = 5
checkpoint_every = 0
"""
# Step sizes as in the paper; runs that are called default find theirs by calibration.
FIXED = ["algorithm.rho={a=0.9,alpha=0.3}", "algorithm.gamma={a=0.9,alpha=0.6}"]
FIXED += ["algorithm.tau=0.2"]
EXACT = [*FIXED, "algorithm.multipliers=exact"]
DIGITS = ["data.name=digits", "data.clients=5"]
DOUBLE = ["run.precision=float64"]
LOSS = ["problem.objective=norm", 'problem.constraint=[{kind="loss",limit=0.35}]']
HELD = [*FIXED, *LOSS, "algorithm.opening=[1.0]"]
RATES = ['problem.constraint=[{kind="fnr",limit=0.1},{kind="fpr",limit=0.2},{kind="loss",limit=1}]']
COLUMNS = ["data.split=feature", "algorithm.batch=30"]
# Messages are moved one by one. Only then does it matter who holds the labels, and who collects.
MOVED = ["run.runtime=local"]
STEPS = ["algorithm.local_steps=3", "algorithm.rate=0.2"]
COHORT = ["data.clients=6", "algorithm.cohort=3"]
SECURE = ["privacy.secure_sum=true", "algorithm.rounds=11"]
NOISE = ["privacy.clip=1.0", "privacy.value_clip=3.0", "privacy.noise_multiplier=0.5"]

# The number of threads does not matter: one core and two gave the same bits in every run below.
# A sum of encrypted messages (privacy.homomorphic) is left out: the encryption itself adds random
# numbers, so that two runs differ in their last digits. Masks cancel exactly and are covered.
COMMANDS: dict[str, list[str]] = {
    "algorithm-1": [*EXACT, *DIGITS],
    "algorithm-2": [*EXACT, *LOSS, "problem.penalty=[10.0,100.0]"],
    "algorithm-3": [*EXACT, *COLUMNS],
    "algorithm-4": [*EXACT, *COLUMNS, *LOSS],
    "algorithm-4-float64-messages": [*EXACT, *COLUMNS, *LOSS, *DOUBLE, *MOVED],
    "default-dirichlet": [*DIGITS, "data.partition=dirichlet", "algorithm.batch=4"],
    "default-one-limit": LOSS,
    "default-three-limits-float64": [*RATES, *DOUBLE, "model.name=linear"],
    "messages": [*HELD, *MOVED],
    "steered-messages": [*HELD, *MOVED, "algorithm.multipliers=steered"],
    "sgd": ["algorithm.name=sgd", "algorithm.rate={a=0.5,alpha=0.2}"],
    "fedavg": [*STEPS, "algorithm.name=sgd", "data.sizes=[0.4,0.3,0.2,0.1]"],
    "momentum-float64": [*DOUBLE, "algorithm.name=momentum", "algorithm.momentum=0.8"],
    "rival-penalty": [*LOSS, "algorithm.name=penalty", "algorithm.rate=0.02"],
    "rival-primal-dual": [*LOSS, "algorithm.name=primal-dual", "algorithm.rate=0.1"],
    "rival-augmented": [*LOSS, "algorithm.name=augmented", "algorithm.rate=0.02"],
    "rival-switching": [*LOSS, "algorithm.name=switching", "algorithm.tolerance=0.01"],
    "local-steps": [*FIXED, *STEPS],
    "local-steps-limit": [*HELD, *STEPS],
    "cohort-dropout": [*HELD, *COHORT, "algorithm.dropout=0.3"],
    "noise-sample": [*NOISE, *HELD],
    "noise-client": [*NOISE, *FIXED, *STEPS, "privacy.unit=client"],
    "noise-columns": [*NOISE, *FIXED, *COLUMNS],
    "secure-sum": [*SECURE, *HELD],
    "secure-sum-cohort": [*SECURE, *COHORT, "algorithm.name=sgd"],
    "secure-sum-columns": [*SECURE, *HELD, *COLUMNS],
    "columns-label-holder": [*HELD, *COLUMNS, *MOVED, "data.label_holder=1"],
    "columns-open": [*EXACT, *COLUMNS, *MOVED, "data.collection=open"],
    "surrogate-diagonal": [*HELD, "algorithm.surrogate=diagonal"],
    "surrogate-exact": [*FIXED, "algorithm.surrogate=exact", "problem.l2=0.01"],
}

Weights = dict[str, np.ndarray]


def from_command(settings: list[str]) -> Weights:
    """The model that `fedssca run` leaves, from the program called in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.toml").write_text(BASE)
        words = ["run", str(folder / "run.toml"), "--out", str(folder / "out"), "--quiet"]
        words += [word for setting in settings for word in ("--set", setting)]
        try:
            with (
                mock.patch.object(sys, "argv", ["fedssca", *words]),
                mock.patch("matplotlib.figure.Figure.savefig"),  # pictures take time
            ):
                runpy.run_module("fedssca", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"fedssca {' '.join(words)} ended with {end.code}") from end
        with np.load(folder / "out" / "model.npz", allow_pickle=False) as model:
            return {"w": model["w"], "w_last": model["w_last"]}


def python_auto() -> Weights:
    """The default method, called from Python."""
    data = fedssca.load("digits")
    clients = fedssca.by_sample(data.train, clients=6)
    model = fedssca.mlp(features=64, hidden=8, classes=10, scale=data.scale)
    problem = fedssca.classifier(model, fedssca.loss_at_most(1.0), objective="norm")
    algorithm = fedssca.auto(problem, clients, batch=20, rounds=31)
    return weights(fedssca.simulate(problem, clients, algorithm, rounds=31, test=data.test))


def python_stream() -> Weights:
    """Two clients whose rows arrive; those of the second one end before the last round."""

    def sensor(seed: int, blocks: int) -> Iterator[dict[str, np.ndarray]]:
        rng = np.random.default_rng(seed)
        for _ in range(blocks):
            x = rng.normal(size=(8, 4)).astype(np.float32)
            yield {"x": x, "y": (x[:, 0] + x[:, 1] > 0).astype(np.int32)}

    blocks = list(sensor(9, 20))
    check = {name: np.concatenate([block[name] for block in blocks]) for name in ("x", "y")}
    clients = fedssca.Streams([sensor(0, 80), sensor(1, 60)], check=check)
    model = fedssca.mlp(features=4, hidden=8, classes=2)
    problem = fedssca.classifier(model, fedssca.loss_at_most(0.5), objective="norm")
    algorithm = fedssca.auto(problem, clients, batch=20, rounds=31)
    return weights(fedssca.simulate(problem, clients, algorithm, rounds=31))


def weights(result: fedssca.Result) -> Weights:
    """The returned model, and where the run ended."""
    return {"w": np.asarray(result.w), "w_last": np.asarray(result.last)}


PYTHON: dict[str, Callable[[], Weights]] = {
    "python-auto": python_auto,
    "python-stream": python_stream,
}
NAMES = [*COMMANDS, *PYTHON]
PRIVATE = {name for name, said in COMMANDS.items() if any("privacy." in key for key in said)}
# Simulated noise is a function of the bits of w: one other bit, and all later noise is another.
NOISY = {name for name, said in COMMANDS.items() if NOISE[-1] in said}


def compute(name: str) -> Weights:
    """Carry out one run; warnings about its settings do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PYTHON[name]() if name in PYTHON else from_command(COMMANDS[name])


def surroundings() -> dict[str, str]:
    """What decides on the last bits: processor, compiler flags, versions of numerical packages."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    seen = dict.fromkeys(line for line in lines if line.startswith(("model name", "flags")))
    text = "\n".join([platform.machine(), platform.processor(), *seen])
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__}
    machine = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {"machine": machine, "compiler": compiler(), **versions}


def compiler() -> str:
    """The flags of the compiler: those of other tests but for one that changes the last bits."""
    return os.environ.get("XLA_FLAGS", FAST).replace(IN_ONE_PART, "").strip()


def main() -> None:
    """Compute runs and save them with the surroundings in which they were computed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--save", type=Path, required=True, help="the npz file to write")
    parser.add_argument("names", nargs="*", help="runs to compute; none: all")
    said, arrays = parser.parse_args(), {}
    os.environ["XLA_FLAGS"] = compiler()
    for name in said.names or NAMES:
        begun = time.perf_counter()
        arrays |= {f"{name}/{key}": value for key, value in compute(name).items()}
        print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
    np.savez_compressed(said.save, surroundings=np.array(json.dumps(surroundings())), **arrays)


if __name__ == "__main__":
    main()
