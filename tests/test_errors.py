"""Errors as types, also across processes: the key travels beside the message."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedssca.errors import ERROR_FILE, read_error
from tests.cli_helpers import SMALL, Shell


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_a_command_saves_its_error_with_the_key(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "error.json"
    assert read_error(file) is None
    monkeypatch.setenv(ERROR_FILE, str(file))
    (tmp_path / "run.toml").write_text(SMALL)
    line = shell.refused("run", tmp_path / "run.toml", "--set", "algorithm.batch=0")
    error = read_error(file)
    assert error is not None
    assert (str(error), error.key) == (line, "algorithm.batch")


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"', "null"])
def test_a_damaged_file_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "error").write_text(text)
    assert read_error(tmp_path / "error") is None
