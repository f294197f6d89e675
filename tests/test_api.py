"""The public API: explicit, sorted, documented, and light to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fedssca
from fedssca.cli.commands import COMMANDS, command

HEAVY = ("jax", "numpy", "scipy", "sklearn", "matplotlib", "pyarrow", "nvflare")
CHECK = f"""
import sys, fedssca
heavy = [module for module in {HEAVY} if module in sys.modules]
assert not heavy, heavy
assert "typer" not in sys.modules
assert not hasattr(fedssca, "no_such_name")
from fedssca.cli.main import main
for arguments in [["--help"]] + [[command, "--help"] for command in {tuple(COMMANDS)}]:
    sys.argv = ["fedssca", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
    heavy = [module for module in {HEAVY} if module in sys.modules]
    assert not heavy, (arguments, heavy)
fedssca.loss_at_most
assert "jax" in sys.modules and "sklearn" not in sys.modules and "matplotlib" not in sys.modules
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
"""


def test_all_is_sorted_and_there() -> None:
    assert fedssca.__all__ == sorted(fedssca.__all__)
    assert len(set(fedssca.__all__)) == len(fedssca.__all__)
    assert all(hasattr(fedssca, name) for name in fedssca.__all__)


def test_editors_see_what_is_imported_when_it_is_used() -> None:
    """The table of lazy names and the imports for type checkers agree."""
    tree = ast.parse(Path(str(fedssca.__file__)).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: (alias.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: (name, module) for name, module in fedssca._MODULE_OF.items()}
    assert list(fedssca._MODULE_OF) == sorted(fedssca._MODULE_OF)
    assert set(fedssca.__all__) < set(dir(fedssca))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_first_line_of_their_help(name: str) -> None:
    assert command(name).help.splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("name", fedssca.__all__)
def test_every_name_is_documented(name: str) -> None:
    thing = getattr(fedssca, name)
    text = thing.__doc__ or ""
    assert text.strip(), name
    assert not text.startswith(f"{name}("), f"{name} has the docstring that Python made up"
    assert thing.__module__.startswith("fedssca.")


def test_version_is_the_package_version() -> None:
    assert fedssca.__version__ == version("fedssca")


def test_import_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHECK], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_commands_has_every_command(name: str) -> None:
    page = Path(__file__).parents[1] / "docs" / "commands.md"
    assert f"| `fedssca {name}` |" in page.read_text()
