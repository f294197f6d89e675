"""Compiled programs are kept, found again, and damage to them does no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedssca.system import keep_compiled_programs, pip_install

RUN = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "linear"
[algorithm]
name = "sgd"
rounds = 5
"""


def fedssca(home: Path, out: Path, **more: str) -> subprocess.CompletedProcess[str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    config = out.with_suffix(".toml")
    config.write_text(RUN)
    command = [sys.executable, "-m", "fedssca", "run", str(config), "--json", "--out", str(out)]
    return subprocess.run(
        command,
        env=own | {"XDG_CACHE_HOME": str(home), **more},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def entries(home: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in home.rglob("*-cache")}


def test_programs_are_kept_and_damage_does_no_harm(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = fedssca(home, tmp_path / "a")
    assert first.returncode == 0, first.stderr
    kept = entries(home)
    assert any(name.startswith("jit_advance") for name in kept)

    second = fedssca(home, tmp_path / "b")
    assert (second.returncode, second.stderr) == (0, first.stderr)
    assert entries(home).keys() == kept.keys(), "the second run compiled something again"

    for path in home.rglob("*-cache"):
        path.write_bytes(path.read_bytes()[:100])
    third = fedssca(home, tmp_path / "c")
    assert third.returncode == 0, third.stderr
    json.loads(third.stdout)
    ends = [np.load(tmp_path / run / "model.npz")["w"] for run in "abc"]
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], ends[2])


def test_no_place_to_keep_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = fedssca(tmp_path / "file", tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_the_users_own_setting_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "own"))
    assert keep_compiled_programs(tmp_path / "ours") is None
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_while_starting_ends_at_once_unless_the_parent_ignored_it(ignored: bool) -> None:
    handler = "SIG_IGN" if ignored else "default_int_handler"
    code = (
        f"import signal; signal.signal(signal.SIGINT, signal.{handler})\n"
        "from fedssca.system import starting_up\n"
        "with starting_up():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == ((0, "went on\n") if ignored else (130, ""))
    assert done.stderr == ("" if ignored else "stopped before anything was done\n")


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        (None, "pip install 'fedssca[ui]'"),
        (
            {"url": "file:///home/ann/fed%20ssca", "dir_info": {"editable": True}},
            "pip install -e '/home/ann/fed ssca[ui]'",
        ),
        (
            {"url": "file:///dist/fedssca-0.2.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'fedssca[ui] @ file:///dist/fedssca-0.2.0-py3-none-any.whl'",
        ),
    ],
)
def test_extras_come_from_where_the_package_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: object, command: str
) -> None:
    """As pip notes it in the metadata of an installation."""
    made = tmp_path / "fedssca-0.2.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.4\nName: fedssca\nVersion: 0.2.0\n")
    if noted:
        (made / "direct_url.json").write_text(json.dumps(noted))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert pip_install("ui") == command


@pytest.mark.parametrize("editable", [True, False])
def test_extras_have_the_versions_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: bool
) -> None:
    (tmp_path / "constraints.txt").write_text("numpy==2.2.0\n")
    made = tmp_path / "fedssca-0.2.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.4\nName: fedssca\nVersion: 0.2.0\n")
    noted = {"url": tmp_path.as_uri(), "dir_info": {"editable": True} if editable else {}}
    (made / "direct_url.json").write_text(json.dumps(noted))
    monkeypatch.syspath_prepend(str(tmp_path))
    flag = "-e " if editable else ""
    expected = f"pip install -c '{tmp_path}/constraints.txt' {flag}'{tmp_path}[ui]'"
    assert pip_install("ui") == expected
