"""`fedssca audit` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_helpers import Shell

RUN = """
[data]
name = "breast-cancer"
clients = 4

[model]
hidden = 6

[algorithm]
batch = 2
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch, capsys) -> Shell:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "notes.toml").write_text(RUN + "[problem]\nconfidence = 0.9\n")
    return Shell(tmp_path, monkeypatch, capsys)


def test_an_audit_with_an_attack_leaves_numbers_words_and_a_picture(shell) -> None:
    seen = shell("audit", "run.toml", "--attack", "--out", "o")
    assert seen.code == 0, seen.err
    found = json.loads((shell.folder / "o" / "audit.json").read_text())
    assert found["verdict"] == "open"
    by_name = {entry["protection"]: entry for entry in found["observers"]}
    alone = by_name["alone"]
    assert (alone["rows"], alone["unknowns"], alone["equations"]) == (2, 64, 192)
    assert alone["rank"] == alone["rank_needed"] == 62
    assert alone["attack"]["correlation"] > 0.999
    assert "secure_sum" in alone["remedy"]
    assert by_name["sum of 4 clients"]["condition_holds"]
    assert by_name["alone, noise 1"]["rank"] is None
    assert (shell.folder / "o" / "audit.png").read_bytes().startswith(b"\x89PNG")
    for words in ("server", "peer", "open", "to change it", "secure_sum", "proves nothing"):
        assert words in seen.out
    assert "…" not in seen.out  # nothing is cut off in 80 columns


def test_json_is_one_object_on_stdout(shell) -> None:
    columns = ["--set", "data.split=feature", "--set", "data.collection=open"]
    seen = shell("audit", "run.toml", *columns, "--out", "o", "--json")
    assert (seen.code, seen.err) == (0, "")
    found = json.loads(seen.out)
    assert found == json.loads((shell.folder / "o" / "audit.json").read_text())
    assert found["verdict"] == "open"
    assert [entry["sees"] for entry in found["observers"]] == [
        "h_i and its Jacobian, which is x_i itself; the labels"
    ]
    assert not (shell.folder / "o" / "audit.png").exists()


def test_help_has_an_example(shell) -> None:
    seen = shell("audit", "--help")
    assert seen.code == 0
    assert "fedssca audit my.toml" in seen.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.toml"], "cannot read none.toml"),
        (["run.toml", "--set", "algorithm.bach=3"], "did you mean 'batch'"),
        (["run.toml", "--set", "algorithm.batch=400"], "larger than client 0's"),
        (["run.toml", "--set", "privacy.noise_multiplier=1"], "privacy.clip"),
        (["run.toml", "--set", "privacy.clip=1", "--set", "privacy.unit=x"], "privacy.unit"),
        (["run.toml", "--set", "data.path=none.csv"], "none.csv"),
        (["run.toml", "--out", "run.toml"], "name a folder"),
        (["notes.toml", "--privacy"], "the run has no noise"),
        (["run.toml", "--set", "data.name=mnist", "--set", "data.dir=none"], "mnist"),
    ],
)
def test_bad_input_is_one_line(shell, arguments, words) -> None:
    assert words in shell.refused("audit", *arguments)
