"""Versions of the packages that a run uses."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

__all__ = ["extras", "versions"]


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide the numbers of a run."""
    names = ("fedssca", "jax", "jaxlib", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def extras() -> dict[str, dict[str, str]]:
    """Return the packages of each optional extra with their versions; "" if not installed."""
    found: dict[str, dict[str, str]] = {}
    for line in requires("fedssca") or ():
        named = re.match(r"""([\w.-]+).*;.*extra == ["']([\w-]+)["']""", line)
        if named and named[2] not in ("docs", "test"):
            found.setdefault(named[2], {})[named[1]] = _installed(named[1])
    if "flower-simulation" in found:  # flwr[simulation] is flwr and Ray
        found["flower-simulation"]["ray"] = _installed("ray")
    return found


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
