"""A small fast run, and the command line called in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pytest

from fedssca.cli import main as cli
from fedssca.cli.commands import root_command

SMALL = """
[data]
name = "breast-cancer"
clients = 4

[model]
hidden = 3

[problem]
objective = "norm"

[[problem.constraint]]
kind = "loss"
limit = 0.3

[algorithm]
batch = 5
rounds = 21
rho = {a = 0.9, alpha = 0.3}
gamma = {a = 0.9, alpha = 0.6}
tau = 0.1

[run]
evaluate_every = 5
checkpoint_every = 10
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def rows_instead(runs: Mapping[Path, Any], limits: object, file: IO[bytes], *_: object) -> None:
    """What curves.png would show. To draw it takes half of the time of a small run."""
    file.write(json.dumps([limits, *runs.values()]).encode())


class Shell:
    """`fedssca ...` in a folder of its own, without the cost of a new process and of a picture."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self._patch, self._capture = folder, patch, capture
        self.small = folder / "small.toml"
        self.small.write_text(SMALL)
        patch.setattr("fedssca.cli.results.draw_curves", rows_instead)

    def __call__(self, *arguments: object) -> Outcome:
        self._patch.setattr(sys, "argv", ["fedssca", *map(str, arguments)])
        self._capture.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        seen = self._capture.readouterr()
        return Outcome(int(end.value.code or 0), seen.out, seen.err)

    def run(self, out: Path, *settings: str, options: Sequence[str] = ("--quiet",)) -> Outcome:
        """The small run with settings, which must succeed."""
        extra = [part for setting in settings for part in ("--set", setting)]
        outcome = self("run", self.small, *extra, "--out", out, *options)
        assert outcome.code == 0, outcome.err
        return outcome

    def refused(self, *arguments: object) -> str:
        """Bad input: exit code 2, one line on stderr, nothing on stdout; returns the line."""
        outcome = self(*arguments)
        assert outcome.code == 2, outcome
        return one_line(outcome.err, outcome.out)


def one_line(err: str, out: str = "") -> str:
    """The one line on stderr, without its prefix."""
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("fedssca: ")
    return lines[0].removeprefix("fedssca: ")


def process(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """`fedssca ...` in a process of its own."""
    command = [sys.executable, "-m", "fedssca", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **options)


def rows(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the seconds; every line must be whole."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def weights(folder: Path, name: str = "w") -> np.ndarray:
    """The returned model, or with "w_last" where the run ended."""
    with np.load(folder / "model.npz", allow_pickle=False) as model:
        assert model.files == ["w", "w_last"]
        return model[name]


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def same_run(one: Path, two: Path) -> bool:
    """Bit for bit: both models, the certificate and, but for the seconds, the rows."""
    pairs = [(weights(one, name), weights(two, name)) for name in ("w", "w_last")]
    proofs = [[result(run)[name] for name in ("certificate", "notes")] for run in (one, two)]
    return (
        all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)
        and rows(one) == rows(two)
        and proofs[0] == proofs[1]
    )


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if not p.is_dir()}


def follow(words: list[str]) -> None:
    """Parse a command as the command line would, without doing anything."""
    command: Any = root_command()
    if words[0].startswith("-"):
        assert any(words[0] in option.opts for option in command.params), words
        return
    context = command.make_context("fedssca", list(words))
    while hasattr(command, "commands"):
        left = [*context._protected_args, *context.args]
        name, command, left = command.resolve_command(context, left)
        context = command.make_context(name, left, parent=context)
