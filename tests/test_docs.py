"""README and docs are true: every block is run, parsed, or says why not; the site builds.

Each page is run from top to bottom in a folder of its own: Python blocks run and share their
names, TOML blocks are parsed, both are saved under the name in their first line, and commands are
run with fewer rounds and trials (`SMALL`). See `markdown_blocks` for remarks that make exceptions.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedssca
from fedssca.run.config import parse, section
from fedssca.run.execute import execute
from fedssca.run.schema import SiteFile
from tests.cli_helpers import Shell, follow
from tests.markdown_blocks import PAGES, ROOT, Block, blocks

SMALL = {
    "run": ("--set", "algorithm.rounds=31", "--set", "run.evaluate_every=15"),
    "tune": ("--set", "algorithm.rounds=21", "--trials", "1"),
}
"""What is added to commands, so that they take a second."""
BY_FIRST = [page for page in PAGES if blocks(page)]
NAME = re.compile(r"# ([\w.-]+\.(?:toml|py))\b")


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return Shell(tmp_path, monkeypatch, capsys)


Names = dict[str, Any]


@pytest.mark.parametrize("page", BY_FIRST, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
@pytest.mark.filterwarnings("ignore:GroupNorm takes the place of BatchNorm")
def test_every_block_of_the_page(page: Path, shell: Shell) -> None:
    names: Names = {}
    after: dict[str, Names] = {}
    for block in blocks(page):
        {"python": run_python, "toml": read_toml, "console": run_commands}.get(
            block.language, leave_alone
        )(block, shell, names)
        after[block.heading] = dict(names)
    if check := CHECKS.get(str(page.relative_to(ROOT))):
        check(after)


def run_python(block: Block, shell: Shell, names: Names) -> None:
    if not block.skipped:
        if name := NAME.match(block.text):
            Path(name[1]).write_text(block.text)  # the folder is on the path, see `shell`
        exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)


def read_toml(block: Block, shell: Shell, names: Names) -> None:
    assert not block.skipped, f"{block}: a TOML can always be parsed"
    name = NAME.match(block.text)
    if name and name[1] == "site.toml":
        section(SiteFile, block.text, str(block))
        return
    parse(block.text, source=str(block))
    if name:
        Path(name[1]).write_text(block.text)


def run_commands(block: Block, shell: Shell, names: Names) -> None:
    assert block.commands(), f"{block}: begin commands with $"
    for words in block.commands():
        program, *rest = words
        if program == "fedssca":
            follow(rest)
            if not block.skipped:
                added = () if "--resume" in rest else SMALL.get(rest[0], ())
                outcome = shell(*rest, *added)
                assert outcome.code == 0, f"{block}: {words}: {outcome.err}"
        elif program == "make":
            assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.M), block
        elif program == "pip":
            for extra in re.findall(r"fedssca\[([\w,]+)\]", " ".join(rest)):
                assert set(extra.split(",")) <= extras(), block
        elif program != "source":
            assert block.skipped, f"{block}: {program} is not ours; say <!-- not run: why -->"
            if program == "python":
                assert (ROOT / rest[0]).exists(), block


def leave_alone(block: Block, shell: Shell, names: Names) -> None:
    """What a program says is marked as text; everything else would be unchecked code."""
    if block.language == "json":
        json.loads(block.text)
    else:
        assert block.language == "text" or block.skipped, (
            f"{block}: a block of kind {block.language!r} is neither run nor marked: fence it as "
            "python, toml, console, json or text, or say <!-- not run: why --> before it"
        )


def extras() -> set[str]:
    return set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )


# What pages leave behind -------------------------------------------------------------------------


def check_readme(after: dict[str, Names]) -> None:
    (names,) = [names for names in after.values() if "result" in names][-1:]
    assert names["result"].feasible
    assert names["result"].final["train_cost"] <= 0.2


def check_quick_start(after: dict[str, Names]) -> None:
    assert after["The same from Python"]["result"].feasible
    assert Path("curves.png").stat().st_size > 10_000
    assert Path("runs/strict/result.json").exists()


def check_own_model(after: dict[str, Names]) -> None:
    jax_function = after["A JAX function"]["result"]
    assert jax_function.feasible
    assert jax_function.params["b"].shape == (8,)
    if "equinox" in after["Flax and Equinox"]:
        assert after["Flax and Equinox"]["result"].final["train_accuracy"] > 0.9
    if "torch" in after["PyTorch"]:
        result, module = after["PyTorch"]["result"], after["PyTorch"]["module"]
        assert result.feasible
        assert (module[0].weight.detach().numpy() == result.params["0.weight"]).all()
    assert after["scikit-learn"]["model"].feasible_


def check_own_constraint(after: dict[str, Names]) -> None:
    entries = after["A function of scores and rows"]["result"].certificate["constraints"]
    assert [entry["name"] for entry in entries] == ["fnr", "loss", "brier"]
    assert all(entry["feasible"] for entry in entries)
    assert after["Anything at all"]["result"].feasible


def check_own_data(after: dict[str, Names]) -> None:
    assert after["From Python"]["result"].feasible


def check_vertical(after: dict[str, Names]) -> None:
    assert after["A model of your own"]["result"].feasible


def check_streaming(after: dict[str, Names]) -> None:
    (result,) = [names["result"] for names in after.values()]
    assert result.feasible
    assert "client 1's rows ended after 3,200 rows, in round 161 of 199" in result.notes[0]


def check_nvflare(after: dict[str, Names]) -> None:
    """NVFlare's simulator trains the model of ours, and its own places have it."""
    names = after["Where the results are"]
    if "folder" not in names:
        return  # a package is missing
    config = replace(names["recipe"].config, data=replace(names["recipe"].config.data, clients=2))
    execute(config, Path("simulated"))
    ours, theirs = (np.load(run / "model.npz") for run in (Path("simulated"), names["folder"]))
    # In 32 bits the last steps enlarge the rounding errors of the rounds.
    apart = np.linalg.norm(theirs["w_last"] - ours["w_last"])
    assert apart <= 1e-4 * np.linalg.norm(ours["w_last"])
    saved = torch_vector(names["net"])
    assert (saved == theirs["w"]).all()
    (entry,) = names["certificate"]["constraints"]
    assert (entry["name"], entry["feasible"]) == ("fnr", True)
    (events,) = (Path(names["job"]) / "tb_events").rglob("events.out.tfevents*")
    assert all(tag in events.read_bytes() for tag in (b"constraint/fnr", b"returned/objective"))


def torch_vector(module: Any) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


CHECKS: dict[str, Callable[[dict[str, Names]], None]] = {
    "README.md": check_readme,
    "docs/nvflare.md": check_nvflare,
    "docs/own-constraint.md": check_own_constraint,
    "docs/own-data.md": check_own_data,
    "docs/own-model.md": check_own_model,
    "docs/quick-start.md": check_quick_start,
    "docs/streaming.md": check_streaming,
    "docs/vertical.md": check_vertical,
}


# The pages themselves ----------------------------------------------------------------------------


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_links_of_the_readme_resolve() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text()):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_paths_that_pages_name_exist() -> None:
    """Files of the repository and, without `src/fedssca/`, of the package."""
    package = ROOT / "src" / "fedssca"
    rooms = "|".join(sorted(folder.name for folder in package.iterdir() if folder.is_dir()))
    named = re.compile(
        rf"(?<![\w/.-])(?:tests|benchmarks|examples|src|{rooms})/[\w/]+\.(?:py|js)\b"
    )
    found = [
        (page.name, path)
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        for path in named.findall(page.read_text())
    ]
    assert len(found) > 40
    missing = [
        (page, path)
        for page, path in found
        if not (ROOT / path).exists() and not (package / path).exists()
    ]
    assert not missing


def test_the_tests_of_the_threat_model_exist() -> None:
    """Every cell in brackets names the tests that show it."""
    text = (ROOT / "docs" / "threat-model.md").read_text()
    named = re.findall(r"\b(?:[a-z]+/)+test_\w+", text)
    assert len(named) > 30
    missing = [
        name
        for name in named
        if not (ROOT / "tests" / f"{re.sub('^a/', 'attacks/', name)}.py").exists()
    ]
    assert not missing


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs/api.md").read_text()
    listed = re.findall(r"^::: (\S+)\.(\w+)$", page, re.M)
    for module, name in listed:
        if module != "fedssca.problem.torch":  # needs an extra
            assert hasattr(importlib.import_module(module), name), (module, name)
    assert set(fedssca.__all__) <= {name for _, name in listed}


def test_the_map_of_the_paper_names_what_exists() -> None:
    page = (ROOT / "docs/paper-map.md").read_text()
    found = [name.split("(")[0] for name in re.findall(r"`([a-z_]+(?:\.\w+)+)[^`]*`", page)]
    known = [name for name in found if not name.startswith(("problem.penalty", "run.", "tests"))]
    assert len(known) > 20
    for name in known:
        module, *parts = name.split(".")
        thing: Any = importlib.import_module(f"fedssca.{module}")
        for part in parts:
            thing = getattr(thing, part, None) or importlib.import_module(
                f"{thing.__name__}.{part}"
            )


def test_the_example_of_streaming_keeps_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    result = runpy.run_path(str(ROOT / "examples/streaming.py"))["main"]()
    assert result.feasible
    assert result.final["train_accuracy"] > 0.9
    said = capsys.readouterr().out
    assert said.count("9,980 rows, each used once") == 3
    assert "limit 0.35 kept" in said


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers.python")
    with chdir(ROOT):
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        )
    assert done.returncode == 0, done.stderr
    loaded = re.compile(
        r"""<(?:script|img|link|iframe|source)[^>]*(?:src|href)=["']?(https?:)?//"""
    )
    for file in tmp_path.rglob("*.html"):
        assert not loaded.search(file.read_text()), file
    for file in tmp_path.rglob("*.css"):
        assert "@import" not in file.read_text(), file
        assert not re.search(r"url\([\"']?(https?:)?//", file.read_text()), file
