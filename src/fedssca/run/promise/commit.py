"""A holder's commitment to its calibration rows: a salted SHA-256 that shows nothing of them.

    commitment = sha256(salt | for each column: name, type, shape, bytes)

The salt, 32 random bytes, stays with the holder, and so do the rows. Without the salt nobody can
try out rows against the commitment; with both the holder shows which rows were counted (`Opening`).
Rows are committed to as they were counted: encoded, in their order.
"""

from __future__ import annotations

import hashlib
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.run.record import RunDirectory

__all__ = ["Opening", "commitment", "new_salt", "read_opening", "write_opening"]

LABEL = b"fedssca calibration rows\0"
SALT = 32
COLUMN = "column "
"""What comes before the names of columns in a file."""
_DAMAGED = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)


class Opening(NamedTuple):
    """What a holder shows to open its commitment."""

    site: str
    """The name of the holder, as the certificate gives it."""
    salt: bytes
    columns: Mapping[str, np.ndarray]
    """Its calibration rows, as they were counted; of a holder of columns only its own columns."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def committed(self) -> dict[str, str | int]:
        """What the certificate says of these rows."""
        sha256 = commitment(self.columns, self.salt)
        return {"site": self.site, "rows": self.rows, "sha256": sha256}


def new_salt() -> bytes:
    """32 random bytes."""
    return secrets.token_bytes(SALT)


def commitment(columns: Mapping[str, np.ndarray], salt: bytes) -> str:
    """The commitment to rows, in hexadecimal digits.

    >>> rows = {"x": np.zeros((2, 3)), "y": np.array([0, 1])}
    >>> commitment(rows, bytes(32)) == commitment(rows, b"1" * 32)
    False
    """
    hasher = hashlib.sha256(LABEL + salt)
    for name in sorted(columns):
        column = np.ascontiguousarray(columns[name])
        column = column.astype(column.dtype.newbyteorder("<"), copy=False)
        head = repr((name, column.dtype.str, column.shape)).encode()
        hasher.update(len(head).to_bytes(8, "big") + head + column.tobytes())
    return hasher.hexdigest()


def write_opening(folder: RunDirectory, name: str, opening: Opening) -> None:
    """Write what opens a commitment to a file of a folder that only its holder can read."""
    held: dict[str, Any] = {COLUMN + key: values for key, values in opening.columns.items()}
    salt, site = np.frombuffer(opening.salt, np.uint8), np.array(opening.site)
    folder.write(name, lambda file: np.savez_compressed(file, salt=salt, site=site, **held))


def read_opening(file: Path) -> Opening:
    """Read what `write_opening` wrote."""
    try:
        with np.load(BytesIO(file.read_bytes()), allow_pickle=False) as held:
            columns = {
                name.removeprefix(COLUMN): held[name]
                for name in held.files
                if name.startswith(COLUMN)
            }
            return Opening(str(held["site"]), held["salt"].tobytes(), columns)
    except _DAMAGED as error:
        raise UserError(
            f"{file} holds no calibration rows with their salt ({error}): name the .npz file that "
            "the run left with the holder of the rows"
        ) from None
