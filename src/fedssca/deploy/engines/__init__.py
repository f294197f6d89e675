"""The engines that can run a deployment, each behind `deploy.engine.Engine`."""

from __future__ import annotations

from fedssca.deploy.engine import Engine
from fedssca.deploy.engines import nvflare

__all__ = ["chosen_engine"]


def chosen_engine() -> Engine:
    """The engine of this installation."""
    return nvflare
