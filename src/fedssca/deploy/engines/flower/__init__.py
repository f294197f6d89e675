"""Deployments on Flower: the one place that knows this engine.

provision   certificates, keys and startup kits for all parties of a project
kit         a startup kit, and the process that runs from it (`python -m` this package)
superlink   the server's process: Flower's SuperLink behind a gate; `desk` serves the submitter
session     the submitting side's requests to the desk
job         the ServerApp of a job; `link` sends its envelopes as messages
node        a site's process: a SuperNode; `parties` answers the messages
app         an app that Flower's own commands start instead: `flwr run`, simulated or deployed
"""

from __future__ import annotations

from fedssca.deploy.engines.flower.app import app_files
from fedssca.deploy.engines.flower.fits import require
from fedssca.deploy.engines.flower.kit import FlowerKit, is_kit, open_kit
from fedssca.deploy.engines.flower.provision import provision
from fedssca.deploy.engines.flower.session import FlowerSession, open_session

__all__ = [
    "FlowerKit",
    "FlowerSession",
    "app_files",
    "is_kit",
    "open_kit",
    "open_session",
    "provision",
    "require",
]
