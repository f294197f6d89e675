"""Parts for apps that people already have, written for other libraries: `flower`."""

from __future__ import annotations

from fedssca.run.apps import flower

__all__ = ["flower"]
