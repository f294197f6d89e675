"""The file certificate.json: a statement about new rows, and the signatures of the sites.

    statement     limits, values, bounds, counts, rows, commitments, versions, digests
    signatures    by the name of a site: its certificate and its signature of the statement
    digest        the sha256 of the two others

There is one way to write a statement in bytes, the canonical one: keys in their order, no blanks,
whole numbers as digits and other numbers with the fewest digits from which they can be read again.
Sites sign these bytes. The file itself has line breaks, and it too can be written in one way only:
a file with any other byte is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedssca.errors import UserError

__all__ = ["CERTIFICATE", "FORMAT", "Certificate", "canonical", "read_certificate"]

CERTIFICATE = "certificate.json"
FORMAT = 1
LABEL = b"fedssca certificate\0"
"""What comes before the signed bytes, so that no other signature of a site can stand for it."""
KEYS = {"statement", "signatures", "digest"}


@dataclass(frozen=True)
class Certificate:
    """A statement about new rows, and who signed it."""

    statement: dict[str, Any]
    signatures: dict[str, str] = field(default_factory=dict)
    """By the name of a site: its certificate and signature in hexadecimal digits."""

    @property
    def signed_bytes(self) -> bytes:
        """What every site signs."""
        return LABEL + canonical(self.statement)

    @property
    def signers(self) -> list[str]:
        """The sites that must sign, as the statement names them."""
        return [str(name) for name in self.statement["signers"]]

    def check_signers(self) -> None:
        """Raise a UserError if a signature is missing, or is that of somebody else.

        Whether the signatures are genuine is for the kit of a deployment to tell.
        """
        for name in self.signers:
            if name not in self.signatures:
                raise UserError(f"the signature of {name} is missing: ask that site for it")
        for name in self.signatures:
            if name not in self.signers:
                raise UserError(
                    f"{name} has signed, but the statement does not name it among its signers: "
                    "do not trust this certificate"
                )

    @property
    def digest(self) -> str:
        """The sha256 of the statement and of the signatures."""
        return hashlib.sha256(canonical(self._content)).hexdigest()

    @property
    def _content(self) -> dict[str, Any]:
        return {"statement": self.statement, "signatures": self.signatures}

    def text(self) -> str:
        """The content of certificate.json."""
        return _lines(_plain(self._content | {"digest": self.digest}))


def canonical(value: Any) -> bytes:
    """The one way to write plain values as bytes; a ValueError for NaN and infinity.

    >>> canonical({"b": 2.0, "a": [0.1, None, "ü"]})
    b'{"a":[0.1,null,"\\\\u00fc"],"b":2}'
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def read_certificate(file: Path) -> Certificate:
    """Read certificate.json; a UserError if a byte of it is not as it was written."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UserError(
            f"{file} cannot be read ({error.strerror or error}): name a certificate.json, or the "
            "directory of a run with a confidence"
        ) from None
    try:
        held = json.loads(raw)
        if not isinstance(held, dict) or set(held) != KEYS:
            raise ValueError(f"it should hold {', '.join(sorted(KEYS))}")
        if not all(isinstance(held[key], dict) for key in ("statement", "signatures")):
            raise ValueError("statement and signatures should be objects")
        if not all(isinstance(each, str) for each in held["signatures"].values()):
            raise ValueError("signatures should be texts")
        found = Certificate(held["statement"], held["signatures"])
        digest, same = found.digest, _lines(_plain(held)).encode() == raw
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is no certificate, or was damaged ({error}): get it anew from the run"
        ) from None
    if held["digest"] != digest:
        raise UserError(
            f"{file} was changed: its content does not have the digest that stands in it; get it "
            "anew from the run"
        )
    if not same:
        raise UserError(
            f"{file} was changed: it is not written as fedssca writes certificates; get it anew "
            "from the run"
        )
    if found.statement.get("format") != FORMAT:
        raise UserError(
            f"{file} has format {found.statement.get('format')}, this version of fedssca reads "
            f"{FORMAT}: use the version that wrote it"
        )
    return found


def _plain(value: Any) -> Any:
    """The value with whole numbers as integers: 2.0 and 2 are the same number."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def _lines(value: Any) -> str:
    return json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n"
