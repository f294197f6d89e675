"""`fedssca doctor` finds what is wrong, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedssca.cli import doctor
from fedssca.data.fetch import DataStatus


def test_this_installation_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    answer = CliRunner().invoke(doctor.app, ["--json"])
    found = json.loads(answer.stdout)
    assert (answer.exit_code, found["ok"]) == (0, True)
    assert set(found["checks"]) == set(doctor.CHECKS)
    assert found["checks"]["compiler"]["state"] == "ok"
    shown = CliRunner().invoke(doctor.app, [])
    assert "fedssca works on this machine" in shown.stdout


def test_a_package_that_is_too_old_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["numpy>=99", "no-such-package>=1", 'onnx>=99; extra == "onnx"']
    monkeypatch.setattr(doctor, "requires", lambda name: needs)
    monkeypatch.setattr(doctor, "CHECKS", {"packages": doctor.CHECKS["packages"]})
    answer = CliRunner().invoke(doctor.app, ["--json"])
    found = json.loads(answer.stdout)["checks"]["packages"]
    assert answer.exit_code == 1
    assert "numpy>=99" in found["found"]
    assert "no-such-package>=1 (not installed)" in found["found"]
    assert "onnx" not in found["found"]
    assert found["todo"].startswith("pip install")


def test_a_cache_that_cannot_be_written_is_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "file" / "cache"))
    found = doctor.CHECKS["compile cache"]()
    assert found.state == "note"
    assert "JAX_COMPILATION_CACHE_DIR" in found.todo


def test_damaged_data_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = [DataStatus("mnist", "corrupt", Path("x"))]
    monkeypatch.setattr("fedssca.data.status", lambda: damaged)
    assert "mnist" in doctor.CHECKS["data"]().found


def test_a_check_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> doctor.Checked:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "CHECKS", {"a": broken, "Python": doctor.CHECKS["Python"]})
    found = json.loads(CliRunner().invoke(doctor.app, ["--json"]).stdout)["checks"]
    assert found["a"]["state"] == "wrong"
    assert found["Python"]["state"] == "ok"
