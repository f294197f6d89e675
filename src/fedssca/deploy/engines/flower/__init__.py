"""Deployments on Flower: the one place that knows this engine.

provision   certificates, keys and startup kits for all parties of a project
kit         a startup kit, and the process that runs from it (`python -m` this package)
superlink   the server's process: Flower's SuperLink behind a gate; `desk` serves the submitter
session     the submitting side's requests to the desk
job         the ServerApp of a job; `link` sends its envelopes as messages
node        a site's process: a SuperNode; `parties` answers the messages
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fedssca.deploy.engines.flower.kit import FlowerKit, is_kit, open_kit
from fedssca.deploy.engines.flower.provision import provision
from fedssca.deploy.engines.flower.session import FlowerSession, open_session
from fedssca.errors import UserError

__all__ = [
    "FlowerKit",
    "FlowerSession",
    "is_kit",
    "open_kit",
    "open_session",
    "provision",
    "require",
]

FITS = "1.41."
"""The versions of Flower whose interfaces this engine knows."""


def require() -> None:
    """Raise a UserError that says what to install if Flower is missing, or another version."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise UserError("this engine runs on Flower: pip install 'fedssca[flower]'") from None
    if not found.startswith(FITS):
        raise UserError(
            f"flwr {found} does not fit: this engine needs flwr {FITS}x; "
            "pip install 'fedssca[flower]'"
        )
