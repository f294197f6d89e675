"""Limits for an existing Flower app: a strategy for its server, and a loss for its clients.

LimitedFedAvg   takes the place of Flower's FedAvg in the ServerApp
LimitedLoss     takes the place of the criterion in the ClientApp, and measures the constraints
"""

from __future__ import annotations

from fedssca.errors import UserError
from fedssca.system import pip_install

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as missing:
    raise UserError(
        f"Flower is missing, or older than flwr 1.22: {pip_install('flower')}"
    ) from missing

from fedssca.run.apps.flower.limited_loss import LimitedLoss
from fedssca.run.apps.flower.strategy import LimitedFedAvg

__all__ = ["LimitedFedAvg", "LimitedLoss"]
