"""The files of an exported model."""

from __future__ import annotations

from pathlib import Path

from fedssca.errors import UserError

__all__ = ["write_file"]


def write_file(path: Path, content: bytes, option: str) -> Path:
    """Write a file that an option of `fedssca export` names; returns its path."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; choose another file for {option}"
        ) from None
    return path
