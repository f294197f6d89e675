"""One virtual environment per peer, made once: <folder>/<peer>-<hash of its requirements>."""

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

__all__ = ["PeerEnvironment", "environment_folder", "prepare"]

DONE = "installed.json"


class PeerEnvironment(NamedTuple):
    """The virtual environment of a peer."""

    python: Path
    """The path of its interpreter."""
    seconds: float = 0.0
    """The seconds that the installation took."""
    failure: str = ""
    """Why the installation failed; empty if it did not."""


def environment_folder(venvs: Path, name: str, requirements: Path) -> Path:
    """Return the folder of a peer's environment."""
    text = requirements.read_bytes() + sys.version.encode()
    return venvs / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"


def prepare(venvs: Path, name: str, requirements: Path, timeout: float = 1800.0) -> PeerEnvironment:
    """Make the environment, unless it exists and is complete."""
    folder = environment_folder(venvs, name, requirements)
    python = folder / "bin" / "python"
    if (folder / DONE).is_file():
        return PeerEnvironment(python, float(json.loads((folder / DONE).read_text())["seconds"]))
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
            return PeerEnvironment(python, failure=f"not installed after {timeout:g} s")
        if outcome.code != 0:
            errors = [line for line in outcome.err.splitlines() if line.startswith("ERROR")]
            return PeerEnvironment(python, failure=last_line("\n".join(errors[:1]) or outcome.err))
    seconds = time.perf_counter() - begun
    (folder / DONE).write_text(json.dumps({"seconds": seconds}))
    return PeerEnvironment(python, seconds)
