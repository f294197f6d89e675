"""The error with which a site refuses what its [limits] do not allow."""

from __future__ import annotations

import json
from typing import Any

from fedssca.errors import UserError

__all__ = ["LimitRefused"]


class LimitRefused(UserError):
    """A request exceeds a limit of this site. The line names the limit, and nothing of the data."""

    def __init__(self, key: str, value: Any, why: str) -> None:
        super().__init__(f"refused by {key} = {json.dumps(value)} in its site.toml: {why}")
        self.key, self.value, self.why = key, value, why

    def __reduce__(self) -> tuple[type[LimitRefused], tuple[str, Any, str]]:
        return type(self), (self.key, self.value, self.why)
