"""The command line: what it prints, its exit codes, and one clear line for bad input."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedssca.run.curves import draw_curves
from fedssca.run.execute import load_config
from fedssca.system import pip_install
from tests.cli_helpers import SMALL, Shell, files, one_line, process, result, rows, weights

MNIST = Path(__file__).parents[3] / "shared/data/mnist"


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("COLUMNS", "80")
    return Shell(tmp_path, monkeypatch, capsys)


def test_version(shell: Shell) -> None:
    outcome = shell("--version")
    assert outcome.code == 0
    first, *others = outcome.out.splitlines()
    assert first.startswith("fedssca 0.")
    assert {line.split()[0] for line in others} == {
        *("python", "jax", "jaxlib", "numpy", "scipy"),
        "extra",
    }
    torch = next(line for line in others if line.startswith("extra torch: "))
    there = importlib.util.find_spec("torch") is not None
    assert ("torch 2." if there else pip_install("torch")) in torch


def test_flags_are_shown_without_a_type(shell: Shell) -> None:
    for command in ((), ("run",), ("deploy", "submit")):
        said = shell(*command, "--help").out
        assert "--help" in said
        assert "bool" not in said


def test_completion_offers_commands_and_options(tmp_path: Path) -> None:
    """In a real bash: the script that we print is sourced, and asked what it would complete."""
    (tmp_path / "fedssca").write_text(f'#!/bin/sh\nexec {sys.executable} -m fedssca "$@"\n')
    (tmp_path / "fedssca").chmod(0o755)
    ask = 'COMP_WORDS=({}); COMP_CWORD={}; _fedssca_completion fedssca; echo "${{COMPREPLY[@]}}"; '
    lines = ("fedssca repr", "fedssca run --res")
    asked = "".join(ask.format(line, line.count(" ")) for line in lines)
    done = subprocess.run(
        ["bash", "-c", f'eval "$(fedssca --show-completion)"; {asked}'],
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["reproduce", "--resume", ""]


@pytest.mark.parametrize("module", ["typer", "fedssca.cli.run", "jax"])
def test_ctrl_c_while_loading_leaves_no_traceback(module: str) -> None:
    """The signal comes while a module is being imported, before the run has begun."""
    code = (
        "import os, signal, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.argv[1:] = ['run', '--out', '/proc/nowhere']\n"
        "from fedssca.cli.main import program\n"
        "program()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 130
    assert done.stderr == "stopped before anything was done\n"
    assert done.stdout == ""


@pytest.mark.parametrize("command", [("run",), ("data", "get"), ("data", "list")])
def test_help_has_an_example(shell: Shell, command: tuple[str, ...]) -> None:
    outcome = shell(*command, "--help")
    assert outcome.code == 0
    assert f"Example: fedssca {' '.join(command)}" in outcome.out


@pytest.mark.parametrize("command", [(), ("data",)])
def test_no_command_shows_the_help(shell: Shell, command: tuple[str, ...]) -> None:
    outcome = shell(*command)
    assert "Usage: fedssca" in outcome.out
    assert outcome.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rnu",), "Did you mean 'run'? (see fedssca --help)"),
        (("--vresion",), "No such option: --vresion"),
        (("run", "--ouy", "x"), "No such option: --ouy"),
        (("run", "a.toml", "b.toml"), "unexpected extra argument"),
        (("run", "--out"), "requires an argument"),
        (("data", "get"), "Missing argument 'name'. (see fedssca data get --help)"),
        (("data", "get", "mnst"), "did you mean 'mnist'?"),
        (("data", "get", "zzzzz"), "known are adult, breast-cancer"),
        (("data", "get", "digits"), "it comes with scikit-learn"),
        (("run", "no.toml"), "cannot read no.toml: No such file or directory"),
        (("run", "/"), "cannot read /"),
        (("run", "--resume", "nowhere"), "nowhere holds no run"),
        (("run", "--resume", "x", "--set", "run.seed=1"), "--resume takes the run as it is"),
        (("run", "--set", "seed=1"), "section.key=value"),
    ],
)
def test_bad_commands(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    assert said.lower() in shell.refused(*arguments).lower()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("algorithm.bacth=1", "unknown key 'bacth' in [algorithm]: did you mean 'batch'?"),
        ("modle.hidden=1", "unknown section [modle]: did you mean 'model'?"),
        ("algorithm.tau=-1", "algorithm.tau = -1: it must be positive"),
        ("algorithm.tau=big", "algorithm.tau = 'big': it must be a number"),
        ("algorithm.rho.a=1.5", "algorithm.rho.a = 1.5: it must lie in (0, 1]"),
        ("algorithm.rho.a=0", "algorithm.rho.a = 0: it must be positive"),
        ("algorithm.gamma.alpha=-1", "algorithm.gamma.alpha = -1: it must be at least 0"),
        ("algorithm.batch=500", "batch = 500 is larger than client 0's 114 rows"),
        ("data.sizes=[100, 100, 3, 50]", "larger than client 2's 3 rows"),
        ("algorithm.name=scca", "algorithm.name = 'scca' is unknown: did you mean 'ssca'?"),
        ("algorithm.name=sgd", "momentum know no constraints"),
        ("algorithm.surrogate=zzz", "known are diagonal, exact, first-order"),
        ("problem.constraint.0.kind=lss", "did you mean 'loss'?"),
        ("problem.objective=cost", "problem.objective = 'cost' is unknown: known are loss, norm"),
        ("problem.l2=-1", "problem.l2 = -1: it must be at least 0"),
        ("problem.penalty=-1", "problem.penalty = -1: it must be positive"),
        ("problem.constraint=[]", "add a constraint"),
        ("model.name=resnet", "model.name = 'resnet' is unknown"),
        ("model.activation=zzz", "activation = 'zzz'"),
        ("data.name=breast-cancr", "did you mean 'breast-cancer'?"),
        ("data.path=/no/such.csv", "/no/such.csv is not there"),
        ("data.split=rows", "data.split = 'rows'"),
        ("data.partition=zzz", "data.partition = 'zzz' is unknown"),
        ("data.clients=0", "data.clients = 0: it must be at least 1"),
        ("data.clients=100000", "clients is 100000"),
        ("data.test_fraction=1.5", "data.test_fraction = 1.5: it must lie in (0, 1)"),
        ("run.seed=-1", "run.seed = -1: it must be at least 0"),
        ("run.evaluate_every=0", "run.evaluate_every = 0: it must be at least 1"),
        ("run.runtime=zzz", "run.runtime = 'zzz' is unknown"),
        ("run.precision=float16", "run.precision = 'float16' is unknown"),
    ],
)
@pytest.mark.filterwarnings("default")
def test_bad_settings_leave_no_run_behind(shell: Shell, setting: str, said: str) -> None:
    before = files(shell.folder)
    out = shell.folder / "deep/out"
    assert said in shell.refused("run", shell.small, "--set", setting, "--out", out, "--twin")
    assert files(shell.folder) == before
    assert not out.parent.exists()


def test_the_schema_of_every_file(shell: Shell) -> None:
    shown = json.loads(shell("schema").out)
    assert set(shown["properties"]) == {
        "data",
        "model",
        "problem",
        "algorithm",
        "privacy",
        "run",
        "deploy",
    }
    assert "id" in json.loads(shell("schema", "--kind", "site").out)["properties"]
    file = shell.folder / "project.schema.json"
    assert shell("schema", "--kind", "project", "--out", file).out == ""
    assert "sites" in json.loads(file.read_text())["properties"]
    assert "did you mean 'site'?" in shell.refused("schema", "--kind", "sit")
    assert "cannot write to" in shell.refused("schema", "--out", shell.folder / "no/file")


def test_bad_input_of_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[algorithm\nbatch = 1")
    child = process("run", tmp_path / "bad.toml", "--out", tmp_path / "out", cwd=tmp_path)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 2
    assert "bad.toml is not valid TOML" in one_line(err, out)
    assert not (tmp_path / "out").exists()


def test_bad_data(shell: Shell) -> None:
    good = [f"{i},{i % 7},{i % 2}" for i in range(40)]
    cases = {
        "inf,1,1": "column 'a' holds inf in row 41",
        "1,1,": "the label is missing in row 41",
        "1,1,0.5": "labels out of range: row 41 has label 0.5",
        "1,1": "2 cells for 3 columns",
    }
    path, out = shell.folder / "own.csv", shell.folder / "out"
    arguments = ("run", shell.small, "--set", f"data.path={path}", "--out", out)
    for line, said in cases.items():
        path.write_text("\n".join(["a,b,y", *good, line]) + "\n")
        assert said in shell.refused(*arguments)
    path.write_text("a,b,y\n" + "".join(f"{i},{i % 7},1\n" for i in range(40)))
    assert "at least two classes are needed" in shell.refused(*arguments)
    path.write_text("a,b,c\n1,2,3\n")
    assert "label" in shell.refused(*arguments)
    path.write_text("")
    assert "is empty" in shell.refused(*arguments)
    (shell.folder / "own.npz").write_bytes(b"no zip")
    arguments = ("run", "--set", f"data.path={shell.folder / 'own.npz'}", "--out", out)
    assert "own.npz" in shell.refused(*arguments)
    assert not out.exists()


@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is not on this machine")
def test_a_corrupt_data_file(shell: Shell) -> None:
    folder = shell.folder / "data/mnist"
    shutil.copytree(MNIST, folder)
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(labels.read_bytes())
    content[len(content) // 2] ^= 1
    labels.write_bytes(content)
    settings = ("--set", "data.name=mnist", "--set", f"data.dir={shell.folder / 'data'}")
    line = shell.refused("run", shell.small, *settings, "--out", shell.folder / "out")
    assert str(labels) in line
    assert "fetch it again" in line
    assert not (shell.folder / "out").exists()


def test_places_that_cannot_be_written(shell: Shell) -> None:
    (shell.folder / "file").write_text("mine")
    for out in (shell.folder / "file", shell.folder / "file/out", Path("/proc/out")):
        line = shell.refused("run", shell.small, "--out", out, "--quiet")
        assert line.startswith(f"cannot write to {out}: ")
    assert (shell.folder / "file").read_text() == "mine"


def test_a_folder_that_holds_a_run_is_left_alone(shell: Shell) -> None:
    for taken in ("out", "out-unconstrained"):
        (shell.folder / taken).mkdir()
        (shell.folder / taken / "config.toml").write_text("")
        before = files(shell.folder)
        out = shell.folder / "out"
        line = shell.refused("run", shell.small, "--out", out, "--twin")
        assert f"{taken} already holds a run (config.toml)" in line
        assert files(shell.folder) == before
        shutil.rmtree(shell.folder / taken)


def test_json_is_one_object_and_quiet_is_quiet(shell: Shell) -> None:
    outcome = shell.run(shell.folder / "a", options=("--json",))
    result = json.loads(outcome.out)
    assert outcome.out.count("\n") == 1
    assert result == json.loads((shell.folder / "a/result.json").read_text())
    assert outcome.err == ""
    outcome = shell.run(shell.folder / "b", options=("--quiet",))
    assert (outcome.out, outcome.err) == ("", "")
    listed = json.loads(shell("data", "list", "--json").out)
    assert {"name": "digits", "state": "embedded"} in listed["data"]


def test_twin_has_its_own_folder_and_one_table(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedssca.cli.results.draw_curves", draw_curves)
    settings = ("algorithm.gamma.alpha=0.35", "problem.constraint.0.limit=0.01")
    outcome = shell.run(shell.folder / "out", *settings, options=("--twin",))
    free = shell.folder / "out-unconstrained"
    assert rows(shell.folder / "out")[-1]["constraints"]
    assert rows(free)[-1]["constraints"] == []
    last, l2 = rows(free)[-1], load_config(free).problem.l2
    assert last["objective"] == pytest.approx(last["train_cost"] + l2 * last["norm_sq"], rel=1e-5)
    assert outcome.out.count("train cost") == 1
    assert "out: limits broken on the training rows" in outcome.out
    assert re.search(r"out: loss: 0\.\d+ is over its limit 0\.01 by 0\.\d+; it ", outcome.out)
    assert f"saved in {free}" in outcome.out
    table = outcome.out.split("out: loss")[0]
    assert max(map(len, (table + outcome.err).splitlines())) <= 80
    assert "without limits" in table
    assert outcome.err.count("note:") == 1  # both runs break the same condition
    assert "21/21" in outcome.err

    picture = shell.folder / "out/curves.png"
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from matplotlib import image

    height, width, _ = image.imread(picture).shape
    assert width > 1000
    assert height > 300

    before = files(shell.folder)
    again = shell("run", "--resume", shell.folder / "out", "--twin", "--json")
    assert json.loads(again.out)["twin"] == json.loads((free / "result.json").read_text())
    assert files(shell.folder) == before


def test_default_folder_and_embedded_default(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)
    small = ("--set", "algorithm.rounds=3", "--set", "model.hidden=4")
    assert shell("run", *small, "--quiet").code == 0
    (out,) = Path("runs").iterdir()
    assert out.name.endswith("-digits")
    assert rows(out)[-1]["round"] == 2


@pytest.mark.parametrize(
    "settings",
    [
        ("algorithm.name=sgd", "algorithm.rate=1e30", "problem={objective='loss', l2=1.0}"),
        ("algorithm.tau=1e-30", "problem={objective='loss'}"),
    ],
)
def test_divergence_ends_the_run_with_the_best_point_and_a_note(
    shell: Shell, settings: tuple[str, ...]
) -> None:
    extra = [part for setting in settings for part in ("--set", setting)]
    out = shell.folder / "out"
    assert shell("run", shell.small, *extra, "--out", out, "--quiet").code == 0
    found = result(out)
    assert "training diverged" in " ".join(found["notes"])
    kept = (out / "metrics.jsonl").read_text()
    assert kept
    assert "NaN" not in kept
    assert "Infinity" not in kept
    assert np.isfinite(weights(out)).all()


def test_data_list(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSSCA_DATA", str(shell.folder / "none"))
    outcome = shell("data", "list")
    assert outcome.code == 0
    for name in ("adult", "breast-cancer", "credit", "digits", "fashion", "heart", "mnist"):
        assert name in outcome.out
    assert "missing" in outcome.out


def test_not_enough_memory(shell: Shell) -> None:
    line = shell.refused(
        "run", shell.small, "--set", "model.hidden=2000000000", "--out", shell.folder / "out"
    )
    assert "not enough memory" in line
    assert not (shell.folder / "out").exists()


def test_the_small_run_breaks_no_condition() -> None:
    assert "alpha = 0.6" in SMALL  # so that tests without a note mean what they say
