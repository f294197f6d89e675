"""The engines that can run a deployment, each behind `deploy.engine.Engine`."""

from __future__ import annotations

from pathlib import Path

from fedssca.deploy.engine import Engine
from fedssca.deploy.engines import flower, nvflare
from fedssca.errors import UserError

__all__ = ["DEFAULT", "ENGINES", "chosen_engine", "engine_of"]

ENGINES: dict[str, Engine] = {"nvflare": nvflare, "flower": flower}
DEFAULT = "nvflare"


def chosen_engine(name: str = DEFAULT) -> Engine:
    """The engine of this name, installed."""
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}: choose {' or '.join(ENGINES)}")
    ENGINES[name].require()
    return ENGINES[name]


def engine_of(kit: Path) -> Engine:
    """The engine that a kit was made for; the default one if it is no kit at all."""
    made_for = [name for name, engine in ENGINES.items() if engine.is_kit(kit)]
    return chosen_engine(made_for[0] if made_for else DEFAULT)
