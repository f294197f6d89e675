"""The public API: explicit, sorted, documented, and light to import."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import fedssca

CHECK = """
import sys, fedssca
heavy = [m for m in ("matplotlib", "sklearn", "pyarrow", "typer") if m in sys.modules]
assert not heavy, heavy
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
import fedssca.cli.main
assert "matplotlib" not in sys.modules and "sklearn" not in sys.modules
assert not xla_bridge.backends_are_initialized()
"""


def test_all_is_sorted_and_there() -> None:
    assert fedssca.__all__ == sorted(fedssca.__all__)
    assert len(set(fedssca.__all__)) == len(fedssca.__all__)
    assert all(hasattr(fedssca, name) for name in fedssca.__all__)


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
        [sys.executable, "-W", "error", "-c", CHECK], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
