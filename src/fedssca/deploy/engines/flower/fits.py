"""Which versions of Flower fit this engine."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fedssca.errors import UserError
from fedssca.system import pip_install

__all__ = ["FITS", "require"]

FITS = "1.41."
"""The versions of Flower whose interfaces this engine knows."""


def require() -> None:
    """Raise a UserError that says what to install if Flower is missing, or another version."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise UserError(f"this engine runs on Flower: {pip_install('flower')}") from None
    if not found.startswith(FITS):
        raise UserError(
            f"flwr {found} does not fit: this engine needs flwr {FITS}x; {pip_install('flower')}"
        )
