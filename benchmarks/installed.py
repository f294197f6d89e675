"""How large the package is, and whether it runs: the wheel in an empty environment per Python.

    python benchmarks/installed.py 3.11 3.12 3.13

Each argument is a version, whose interpreter is looked for on the path and in ~/.pyenv, or the path
of an interpreter. The wheel is built from the repository, installed with the newest packages that
fit, and trains the default job; prints a Markdown table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADS = (
    "Python",
    "wheel",
    "installed with all that it needs, not yet compiled by Python",
    "default job",
)


def interpreter(wanted: str) -> Path | None:
    """An interpreter that starts; None if this machine has none."""
    made = sorted(Path.home().glob(f".pyenv/versions/{wanted}*/bin/python"))
    named = shutil.which(f"python{wanted}")
    for path in [*made, *([Path(named)] if named else []), Path(wanted)]:
        if path.is_file() and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def quietly(*words: object) -> str:
    """Run a command with no packages but its own, and return what it prints."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, words)), env=own, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr[-2000:]}")
    return done.stdout


def size(folder: Path) -> float:
    """The megabytes of the files in a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_size for path in files) / 1e6


def tried(python: Path, wheel: Path, folder: Path) -> list[str]:
    """One line of the table."""
    quietly(python, "-m", "venv", folder)
    before, own = size(folder), folder / "bin/python"
    quietly(own, "-m", "pip", "install", "--quiet", "--no-compile", wheel)
    after = size(folder)
    result = json.loads(
        quietly(own, "-m", "fedssca", "run", "--quiet", "--json", "--out", folder / "run")
    )
    version = quietly(own, "-c", "import platform; print(platform.python_version())").strip()
    ends = "ends, its limit is kept" if result["feasible"] else "ends, its limit is broken"
    return [version, f"{wheel.stat().st_size / 1e6:.1f} MB", f"{after - before:.0f} MB", ends]


def main() -> None:
    print(f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        quietly(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
        (wheel,) = Path(folder).glob("fedssca-*.whl")
        for wanted in sys.argv[1:]:
            python = interpreter(wanted)
            if python is None:
                line = [wanted, "", "", "not tested: no interpreter here"]
            else:
                line = tried(python, wheel, Path(folder) / f"venv-{wanted.replace('/', '-')}")
            print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
