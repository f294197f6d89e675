"""What the README shows is true: its Python runs, its TOML is a run."""

import re
from pathlib import Path

from fedssca.build import build
from fedssca.config import parse

README = (Path(__file__).parents[1] / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, re.S)
    return found


def test_the_python_example_keeps_its_limit(capsys) -> None:
    names: dict = {}
    exec(compile(block("python"), "README.md", "exec"), names)
    assert names["result"].feasible
    assert names["result"].final["train_cost"] <= 0.2
    assert "True" in capsys.readouterr().out


def test_the_toml_example_is_a_run() -> None:
    job = build(parse(block("toml")))
    assert job.problem.names == ("fnr",)
    assert job.clients.count == 5


def test_it_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 110
