"""What the two ends of a request to the desk must agree on."""

from __future__ import annotations

__all__ = ["PATH", "SIGNATURE", "signed_bytes"]

PATH = "/v1/fedssca"
SIGNATURE = "x-fedssca-signature"


def signed_bytes(body: bytes) -> bytes:
    """What the submitter signs of a request."""
    return b"fedssca request\0" + body
