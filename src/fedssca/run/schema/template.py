"""A TOML file to start from: settings with the help of every key as a comment."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

import tomli_w

from fedssca.run.schema.validate import keys_of

__all__ = ["commented"]


def commented(settings: Any) -> str:
    """The TOML of settings without sub-tables, every key below its help."""
    values, parts = dataclasses.asdict(settings), []
    for key, field in keys_of(type(settings)).items():
        lines = textwrap.wrap(field.description or "", 96)
        parts.append("".join(f"# {line}\n" for line in lines) + tomli_w.dumps({key: values[key]}))
    return "\n".join(parts)
