"""One virtual environment a peer, made once: <folder>/<peer>-<hash of its requirements>."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

from fedssca.errors import UserError
from fedssca.studies.bench.child import last_line, run_child

__all__ = ["Made", "place", "prepare"]

DONE = "installed.json"


class Made(NamedTuple):
    """Its interpreter and how long it took to install, or why there is none."""

    python: Path
    seconds: float = 0.0
    failure: str = ""


def place(venvs: Path, name: str, requirements: Path) -> Path:
    """The folder of a peer's environment."""
    text = requirements.read_bytes() + sys.version.encode()
    return venvs / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"


def prepare(venvs: Path, name: str, requirements: Path, timeout: float = 1800.0) -> Made:
    """Make the environment, unless it is there and complete."""
    folder = place(venvs, name, requirements)
    python = folder / "bin" / "python"
    if (folder / DONE).is_file():
        return Made(python, float(json.loads((folder / DONE).read_text())["seconds"]))
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write to {venvs}: {error.strerror}; choose another --venvs"
        ) from error
    begun = time.perf_counter()
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), *install, str(requirements)],
    )
    for step in steps:
        outcome = run_child(step, timeout)
        if outcome.code is None:
            return Made(python, failure=f"not installed after {timeout:g} s")
        if outcome.code != 0:
            errors = [line for line in outcome.err.splitlines() if line.startswith("ERROR")]
            return Made(python, failure=last_line("\n".join(errors[:1]) or outcome.err))
    seconds = time.perf_counter() - begun
    (folder / DONE).write_text(json.dumps({"seconds": seconds}))
    return Made(python, seconds)
