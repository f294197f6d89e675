"""Every kit says what its owner does with it, in commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedssca.deploy.instructions import FILE, SITE
from fedssca.run.config import section
from fedssca.run.schema import ProjectFile, SiteFile
from tests.cli_helpers import follow

PROJECT = ProjectFile("study", "fl.example.org", 9000, ["site-1", "site-2"])


@pytest.mark.parametrize(("engine", "package"), [("nvflare", "nvflare"), ("flower", "flwr")])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_kit_has_instructions_of_ours(engine: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    from fedssca.deploy.engines import chosen_engine

    made = chosen_engine(engine).provision(PROJECT, tmp_path / "kits")
    for party, folder in made.items():
        text = (folder / FILE).read_text()
        assert "study" in text
        assert not list(folder.rglob("readme.txt")), "the engine's own text names other commands"
        commands = re.findall(r"^ +fedssca (.+)$", text, re.M)
        assert bool(commands) == (party != "ca")
        for command in commands:
            follow(shlex.split(command))
        for key in re.findall(r"`(startup/\S+)`", text):
            assert "PRIVATE KEY" in (folder / key).read_text()


def test_the_site_file_of_the_instructions_can_be_read() -> None:
    block = SITE.partition("    path = ")
    lines = (block[1] + block[2]).partition("\n\nFor a database")[0]
    source = section(SiteFile, re.sub("^    ", "", lines, flags=re.M), "site.toml")
    assert (source.path, source.label) == ("patients.csv", "outcome")
