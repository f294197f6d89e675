"""How a run hides the data of its parties from the server and from each other.

noise   clipping, Gaussian noise and the accountant that computes epsilon
sums    sums whose addends stay hidden: by masks that cancel, or by encryption
psi     which row ids all parties have (private set intersection)
"""

from __future__ import annotations

from fedssca.errors import UserError
from fedssca.system import pip_install

__all__ = ["require_privacy"]


def require_privacy(package: str = "cryptography") -> None:
    """Raise a UserError if a package of the extra `privacy` is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"this needs {package}: {pip_install('privacy')}")
