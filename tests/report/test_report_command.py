"""`fedssca report`: the file it writes, and what it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from fedssca.report.page import distinct_names, embed, report_page
from tests.cli_helpers import Shell
from tests.run_helpers import made_up


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_it_writes_one_file(shell: Shell, tmp_path: Path) -> None:
    runs = [made_up(tmp_path / name) for name in ("a", "b")]
    out = tmp_path / "out.html"
    done = shell("report", *runs, runs[0], "-o", out, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"report": str(out), "runs": [str(run) for run in runs]}
    text = out.read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_bad_input_is_one_line(shell: Shell, tmp_path: Path) -> None:
    assert "holds no run" in shell.refused("report", tmp_path)
    run = made_up(tmp_path / "run")
    line = shell.refused("report", run, "-o", tmp_path / "no" / "x.html")
    assert "choose another file with -o" in line


def test_the_policy_lets_only_its_own_script_and_style_in(tmp_path: Path) -> None:
    text = report_page([made_up(tmp_path / "run")])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        mark = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind} 'sha256-{mark}'" in policy


def test_data_cannot_end_their_element() -> None:
    hostile = {"x": "</script><script>alert(1)</script><!--", "é": "&amp;\u2028"}
    text = embed(hostile)
    assert "<" not in text
    assert json.loads(text) == hostile


def test_names_are_told_apart() -> None:
    paths = [Path("/a/x/run"), Path("/a/y/run"), Path("/b/x/run"), Path("/b/other")]
    assert distinct_names(paths) == ["a/x/run", "y/run", "b/x/run", "other"]
    assert distinct_names([Path("/")]) == ["/"]


def test_a_hundred_runs_fit(tmp_path: Path) -> None:
    runs = [made_up(tmp_path / f"run-{k}", rows=100) for k in range(100)]
    assert len(report_page(runs)) < 8_000_000
