"""The commands around a deployment: project file, kits, and one clear line for what is wrong."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedssca.cli.deploy import app
from fedssca.deploy.engines.nvflare import open_kit, provision, require
from fedssca.deploy.engines.nvflare.session import write_job
from fedssca.deploy.project import read_project
from fedssca.deploy.submit import SubmittedRun
from fedssca.errors import UserError
from fedssca.run.schema import ProjectFile
from fedssca.system import pip_install

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None,
    reason="needs the deploy extra: pip install 'fedssca[deploy]'",
)


def run(*words: str) -> None:
    CliRunner().invoke(app, words, catch_exceptions=False, standalone_mode=False)


def test_init_writes_a_project_that_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "project.toml"
    run("init", str(file), "--server", "fl.example.org", "--port", "9000", "--sites", "3")
    expected = ProjectFile("study", "fl.example.org", 9000, ["site-1", "site-2", "site-3"])
    assert read_project(file) == expected
    assert file.read_text().count("#") > 4
    with pytest.raises(UserError, match="exists already"):
        run("init", str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sites = []", "name every site once"),
        ('sites = ["a", "a"]', "name every site once"),
        ('sites = ["A site"]', "small letters"),
        ('sites = ["ca"]', "cannot be called 'ca'"),
        ('sites = ["a"]\nport = 0', r"port = 0: it must lie in \[1, 65535\]"),
        ('sits = ["a"]', "did you mean 'sites'"),
    ],
)
def test_a_wrong_project_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "project.toml").write_text(text)
    with pytest.raises(UserError, match=said):
        read_project(tmp_path / "project.toml")


@needs_engine
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kits_hold_their_own_key_and_only_that(tmp_path: Path) -> None:
    made = provision(
        ProjectFile("study", "localhost", 9000, ["site-1", "site-2"]), tmp_path / "kits"
    )
    assert set(made) == {"server", "submit", "site-1", "site-2", "ca"}
    root = json.loads((made["ca"] / "cert.json").read_text())["root_pri_key"]
    keys = {}
    for party in ("server", "submit", "site-1", "site-2"):
        texts = [p.read_text(errors="replace") for p in made[party].rglob("*") if p.is_file()]
        assert not any(root in text for text in texts), "the CA's key stays apart"
        keys[party] = [text for text in texts if "PRIVATE KEY" in text]
        assert made[party].stat().st_mode & 0o077 == 0
    assert all(len(own) == 1 for own in keys.values())
    assert len({own[0] for own in keys.values()}) == 4
    site, submit = open_kit(made["site-1"]), open_kit(made["submit"])
    assert (site.kind, site.name, site.address) == ("site", "site-1", "localhost:9000")
    assert submit.sites == ["site-1", "site-2"]
    with pytest.raises(UserError, match="is the kit of a site"):
        open_kit(made["site-1"], "server")
    with pytest.raises(UserError, match="is not empty"):
        provision(ProjectFile(sites=["site-1"]), tmp_path / "kits")
    site.prepare()
    local = json.loads((made["site-1"] / "local" / "resources.json").read_text())
    assert local["class_list_enforcement_mode"] == "enforce"
    assert all(
        name.startswith(("fedssca.", "nvflare.collab.")) for name in local["class_allow_list"]
    )
    assert local["allow_log_streaming"] is False
    rights = json.loads((made["site-1"] / "local" / "authorization.json").read_text())
    assert rights["permissions"]["project_admin"]["byoc"] == "none"
    assert rights["permissions"]["project_admin"]["shell_commands"] == "none"


def test_a_job_brings_no_code(tmp_path: Path) -> None:
    write_job(tmp_path / "job", SubmittedRun.new(["site-1"], "config").order(resume=False))
    files = sorted(p.name for p in (tmp_path / "job").rglob("*") if p.is_file())
    assert files == ["config_fed_client.json", "config_fed_server.json", "meta.json"]


def test_a_submitted_comes_back(tmp_path: Path) -> None:
    submitted = SubmittedRun.new(["site-1"], "[run]\n")
    submitted.write(tmp_path / "run")
    assert SubmittedRun.read(tmp_path / "run") == submitted
    with pytest.raises(UserError, match=r"no deploy\.json"):
        SubmittedRun.read(tmp_path)


def test_without_the_engine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedssca.deploy.engines.nvflare.find_spec", lambda name: None)
    with pytest.raises(UserError, match=re.escape(pip_install("deploy"))):
        require()
    with pytest.raises(UserError, match=re.escape(pip_install("deploy"))):
        run("local")


def test_no_kit_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no startup kit"):
        open_kit(tmp_path)
