"""The examples with real files: nothing edited by hand, and predictions that agree with the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_helpers import Shell, result

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"
EXAMPLES = {
    "adult": ("tabular", "adult.test", "parity of '>50K', race = Black against all"),
    "heart": ("heart", "processed.va.data", "fnr of 'num > 0', sex = 0"),
    "credit": (
        "tabular",
        "UCI_Credit_Card.csv",
        "parity of class 1, SEX = 1, EDUCATION = 2 against all",
    ),
}


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_kept_and_predicts_what_it_reported(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With a few rounds only: the last steps keep the limits all the same."""
    folder, file, title = EXAMPLES[name]
    toml = ROOT / "examples" / f"{name}.toml"
    assert len(toml.read_text().splitlines()) <= 20
    if not (SHARED / folder / file).is_file():
        pytest.skip(f"needs {file}")
    for path in (SHARED / folder).iterdir():
        (shell.folder / path.name).symlink_to(path)
    monkeypatch.chdir(shell.folder)
    done = shell("run", toml, "--set", "algorithm.rounds=60", "--out", "run", "--quiet")
    assert done.code == 0, done.err
    told = result(shell.folder / "run")
    assert told["feasible"]
    assert title in [limit["title"] for limit in told["certificate"]["limits"]]
    if name != "adult":
        file = "test.csv"
        assert shell("data", "held-out", "run", "--out", file).code == 0
    found = shell("predict", "run", file, "--out", "p.csv", "--json")
    assert found.code == 0, found.err
    evaluation = json.loads(found.out)["evaluation"]
    reported = {n.removeprefix("test_"): v for n, v in told.items() if n.startswith("test_")}
    assert {n: evaluation[n] for n in reported} == reported
