"""The same task in other frameworks, each in a virtual environment of its own, taking turns."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedssca
from fedssca.errors import UserError
from fedssca.problem.models import mlp
from fedssca.studies.bench.child import last_line, run_child
from fedssca.studies.bench.task import CLASSES, FEATURES, SCALE, Images
from fedssca.studies.bench.venv import prepare

__all__ = ["PEERS", "Answer", "Plan", "folder", "measure", "measure_peers", "read_answer"]

PEERS = ("pytorch", "pytorch-joined", "flower", "nvflare", "pfl", "fedjax")
"""Name of an environment, and after a dash the way of several that its script knows."""
OURS = "ours"


@dataclass(frozen=True)
class Plan:
    """The task as all scripts get it; see benchmarks/peers/common.py."""

    clients: int = 10
    rows: int = 6000
    batch: int = 10
    rounds: int = 200
    warmup: int = 20
    rate: float = 0.1
    loss_rows: int = 10_000
    seconds: float = 1.0
    threads: int = 2


class Answer(NamedTuple):
    """What a script printed."""

    seconds: list[float]
    startup: float
    loss: float
    rest: dict[str, Any]


def folder() -> Path:
    """Where the scripts of peers are."""
    place = Path(fedssca.__file__).parents[2] / "benchmarks" / "peers"
    if not (place / "common.py").is_file():
        raise UserError("the comparison with peers needs a clone of the repository (benchmarks/)")
    return place


def measure_peers(
    data: Images, plan: Plan, cycles: int, venvs: Path, tick: Callable[[str], None]
) -> dict[str, Any]:
    """`peers`: name -> their seconds a round / ours, for those that agree with us."""
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
    return measure(data, plan, cycles, commands, tick, failures=failures, installs=installs)


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
    """Ours, then every peer, again and again; one that fails is left out from then on."""
    wrong = dict(failures or {})
    answers: dict[str, list[Answer]] = {OURS: [], **{name: [] for name in commands}}
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as place:
        files = write_data(Path(place), data)
        for cycle in range(cycles):
            for name, command in {OURS: ours, **commands}.items():
                if name in wrong:
                    continue
                tick(f"{name}, cycle {cycle + 1} of {cycles}")
                own = {"seed": cycle, "variant": name.partition("-")[2]}
                settings = files | asdict(plan) | own
                answer = ask(command, settings, Path(place), timeout)
                if not isinstance(answer, Answer):  # ports and start-ups fail now and then
                    answer = ask(command, settings, Path(place), timeout)
                if isinstance(answer, Answer):
                    answers[name].append(answer)
                elif name == OURS:
                    raise UserError(f"our own side of the comparison failed: {answer}")
                else:
                    wrong[name] = answer
    return _judge(answers, wrong, dict(installs or {}))


def write_data(place: Path, data: Images, hidden: int = 128) -> dict[str, str]:
    """Data and first weights where the scripts find them."""
    paths = {"data": place / "data.npz", "weights": place / f"weights-{hidden}.npz"}
    if not paths["data"].exists():
        np.savez(paths["data"], x=data.x, y=data.y, scale=SCALE)
    w0, w1 = mlp(FEATURES, hidden, CLASSES, scale=SCALE).init(0)
    np.savez(paths["weights"], w0=np.asarray(w0), w1=np.asarray(w1))
    return {name: str(path) for name, path in paths.items()}


def ask(
    command: Sequence[str], settings: Mapping[str, Any], place: Path, timeout: float
) -> Answer | str:
    """The answer of one run, or in one line why there is none."""
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
    return read_answer(outcome.out) or f"printed no result but: {last_line(outcome.out)}"


def read_answer(text: str) -> Answer | None:
    """The last line of the text that is a complete answer."""
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
            seconds = [float(s) for s in found.pop("seconds")]
            numbers = float(found.pop("startup")), float(found.pop("loss"))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if seconds and min(seconds) > 0 and all(map(math.isfinite, (*seconds, *numbers))):
            return Answer(seconds, *numbers, found)
    return None


def _judge(
    answers: Mapping[str, list[Answer]], wrong: dict[str, str], installs: dict[str, float]
) -> dict[str, Any]:
    """Ratios of those whose loss is ours but for the noise of other batches."""
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
