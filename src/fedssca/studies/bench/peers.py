"""The same task in other frameworks, each in its own virtual environment, in turns."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.studies.bench.child import last_line, run_child
from fedssca.studies.bench.deep import network_of
from fedssca.studies.bench.task import SCALE, Images
from fedssca.studies.bench.venv import prepare

__all__ = ["PEERS", "PeerTiming", "Plan", "folder", "measure", "measure_peers", "read_timing"]

PEERS = ("pytorch", "pytorch-joined", "flower", "nvflare", "pfl", "fedjax")
"""Names of environments; after a dash, the variant of its script."""
OURS = "ours"
SCRIPTS = Path(__file__).parents[4] / "benchmarks" / "peers"
"""The scripts of peers, in a clone of the repository."""


@dataclass(frozen=True)
class Plan:
    """The task that all scripts receive; see benchmarks/peers/common.py."""

    clients: int = 10
    rows: int = 6000
    batch: int = 10
    rounds: int = 200
    warmup: int = 20
    rate: float = 0.1
    loss_rows: int = 10_000
    seconds: float = 1.0
    threads: int = 2
    network: str = "mlp"
    """mlp, or the convolutional network cnn of the section deep."""
    hidden: int = 128


class PeerTiming(NamedTuple):
    """The result that the script of a peer printed."""

    seconds: list[float]
    startup: float
    loss: float
    rest: dict[str, Any]


def folder() -> Path:
    """Return the folder of the scripts of peers."""
    if not (SCRIPTS / "common.py").is_file():
        raise UserError("the comparison with peers needs a clone of the repository (benchmarks/)")
    return SCRIPTS


def measure_peers(
    data: Images, plan: Plan, cycles: int, venvs: Path, tick: Callable[[str], None]
) -> dict[str, Any]:
    """Return `peers`: name -> its seconds per round / ours, if its loss agrees with ours.

    `peers_cnn` has the same with a convolutional network.
    """
    scripts, commands, failures, installs = folder(), {}, {}, {}
    for name in PEERS:
        tick(f"preparing {name}")
        package = name.partition("-")[0]
        made = prepare(venvs, package, scripts / f"{package}.txt")
        installs[name] = made.seconds
        if made.failure:
            failures[name] = f"not installed: {made.failure}"
        else:
            commands[name] = [str(made.python), str(scripts / f"run_{package}.py")]

    def measured(network: str) -> dict[str, Any]:
        def told(what: str) -> None:
            tick(f"{network}: {what}")

        own = replace(plan, network=network)
        return measure(data, own, cycles, commands, told, failures=failures, installs=installs)

    return measured("mlp") | {"peers_cnn": measured("cnn")}


def measure(
    data: Images,
    plan: Plan,
    cycles: int,
    commands: Mapping[str, Sequence[str]],
    tick: Callable[[str], None],
    *,
    ours: Sequence[str] = (sys.executable, "-m", "fedssca.studies.bench.ours"),
    timeout: float = 300.0,
    failures: Mapping[str, str] | None = None,
    installs: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Measure this library and every peer in cycles; a peer that fails is left out."""
    wrong = dict(failures or {})
    answers: dict[str, list[PeerTiming]] = {OURS: [], **{name: [] for name in commands}}
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as place:
        files = write_data(Path(place), data, plan)
        for cycle in range(cycles):
            for name, command in {OURS: ours, **commands}.items():
                if name in wrong:
                    continue
                tick(f"{name}, cycle {cycle + 1} of {cycles}")
                own = {"seed": cycle, "variant": name.partition("-")[2]}
                settings = files | asdict(plan) | own
                answer = run_peer(command, settings, Path(place), timeout)
                if not isinstance(answer, PeerTiming):  # A start can fail by chance.
                    answer = run_peer(command, settings, Path(place), timeout)
                if isinstance(answer, PeerTiming):
                    answers[name].append(answer)
                elif name == OURS:
                    raise UserError(f"fedssca's own side of the comparison failed: {answer}")
                else:
                    wrong[name] = answer
    return _compared(answers, wrong, dict(installs or {}))


def write_data(place: Path, data: Images, plan: Plan) -> dict[str, str]:
    """Write the data and the first parameters for the scripts."""
    paths = {"data": place / "data.npz", "weights": place / "weights.npz"}
    np.savez(paths["data"], x=data.x, y=data.y, scale=SCALE)
    head, bottom = network_of(plan.network, plan.hidden).init(0)
    layers = [np.asarray(leaf) for leaf in jax.tree.leaves((bottom, head))]
    np.savez(paths["weights"], *layers)
    return {name: str(path) for name, path in paths.items()}


def run_peer(
    command: Sequence[str], settings: Mapping[str, Any], place: Path, timeout: float
) -> PeerTiming | str:
    """Return the result of one run, or one line that says why there is none."""
    file = place / "settings.json"
    file.write_text(json.dumps({**settings, "launched": time.time()}))
    path = os.pathsep.join([str(Path(command[-1]).parent), os.environ.get("PYTHONPATH", "")])
    env = os.environ | ({"PYTHONPATH": path} if command[-1].endswith(".py") else {})
    outcome = run_child([*command, str(file)], timeout, env)
    Path(f"{file}.result").unlink(missing_ok=True)
    if outcome.code is None:
        return f"no answer after {timeout:g} s"
    if outcome.code != 0:
        return f"exit code {outcome.code}: {last_line(outcome.err)}"
    return read_timing(outcome.out) or f"printed no result but: {last_line(outcome.out)}"


def read_timing(text: str) -> PeerTiming | None:
    """Return the last line of the text that is a complete result."""
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
            seconds = [float(s) for s in found.pop("seconds")]
            numbers = float(found.pop("startup")), float(found.pop("loss"))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if seconds and min(seconds) > 0 and all(map(math.isfinite, (*seconds, *numbers))):
            return PeerTiming(seconds, *numbers, found)
    return None


def _compared(
    answers: Mapping[str, list[PeerTiming]], wrong: dict[str, str], installs: dict[str, float]
) -> dict[str, Any]:
    """Return the ratios of the peers whose loss equals ours up to the noise of batches."""
    losses = [loss for answer in answers[OURS] for loss in answer.rest["losses"]]
    middle = statistics.median(losses)
    noise = 5 * statistics.stdev(losses) + 0.02 * middle
    details: dict[str, Any] = {}
    for name, given in answers.items():
        if not given or name in wrong:
            continue
        medians = [statistics.median(answer.seconds) for answer in given]
        median, loss = statistics.median(medians), statistics.median(a.loss for a in given)
        details[name] = given[-1].rest | {
            "seconds": median,
            "best": min(min(answer.seconds) for answer in given),
            "spread": (max(medians) - min(medians)) / median,
            "cycles": medians,
            "startup": statistics.median(answer.startup for answer in given),
            "loss": loss,
        }
        if name in installs:
            details[name]["install"] = installs[name]
        if abs(loss - middle) > noise:
            wrong[name] = f"its loss {loss:.4f} is not ours, {middle:.4f} ± {noise:.4f}: left out"
    kept = [name for name in details if name != OURS and name not in wrong]

    def ratios(key: str) -> dict[str, float]:
        return {name: details[name][key] / details[OURS][key] for name in kept}

    return {
        "peers": ratios("seconds"),
        "peers_best": ratios("best"),
        "peers_failed": wrong,
        "peers_details": details,
        "peers_task": {"loss": middle, "loss_tolerance": noise},
    }
