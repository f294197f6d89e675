"""Strangers send anything at all. A small run of `benchmarks/fuzz.py`: no exception escapes."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

from benchmarks.fuzz import fuzz


@pytest.mark.long
def test_nothing_escapes() -> None:
    found = fuzz({"payloads": 5000, "requests": 600, "answers": 300}, seed=1, state=None)
    for part, own in found.items():
        assert own["counts"].get("escaped", 0) == 0, (part, own["examples"])
