"""Tested claims as plain values: what files hold of them, and from which they are tested again.

A claim is a dictionary with the numbers of its `Claim`, its p-value, and the `evidence`: counts of
rates, and of means also the bets and their sums. Where only a site itself knows the evidence of its
rows, it is None, and the claim cannot be tested again elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedssca.evaluate.confidence.claims import (
    Claim,
    ClaimResult,
    claim_bound,
    claim_p_value,
    known_range,
)
from fedssca.evaluate.confidence.evidence import Evidence

__all__ = [
    "claim_of",
    "evidence_of",
    "plain_claim",
    "plain_evidence",
    "promised_sides",
    "retested",
    "untold_claim",
]

Row = dict[str, Any]


def plain_claim(result: ClaimResult) -> Row:
    """One tested claim as plain values."""
    claim = result.claim
    return {
        "constraint": result.constraint,
        "site": result.site,
        "sign": int(claim.sign),
        "limit": claim.limit,
        "delta": claim.delta,
        "whole": claim.whole,
        "positive": claim.positive,
        "value": result.seen.value if result.known else None,
        "p_value": result.p_value,
        "passed": result.passed,
        "evidence": plain_evidence(result.seen),
    }


def untold_claim(constraint: int, site: int, claim: Claim, passed: bool) -> Row:
    """A claim that a site has tested on rows of which it tells nothing.

    If not all sites passed, nobody knows which did: then none counts as passed.
    """
    return {
        "constraint": constraint,
        "site": site,
        "sign": int(claim.sign),
        "limit": claim.limit,
        "delta": claim.delta,
        "whole": claim.whole,
        "positive": claim.positive,
        "value": None,
        "p_value": None,
        "passed": passed,
        "evidence": None,
    }


def plain_evidence(seen: Evidence) -> Row:
    """The sums of a quantity as plain values: of counts only the counts, with their noise."""
    if seen.noise:
        return {
            "weights": [int(a) for a in seen.weights],
            "rows": seen.rows.tolist(),
            "clip": seen.clip,
            "hits" if seen.counted else "sums": seen.top.tolist(),
            "noise": seen.noise,
        }
    if seen.counted:
        sums: Row = {"hits": [round(float(k)) for k in seen.top]}
    else:
        sums = {"sums": seen.top.tolist(), "bets": seen.bets.tolist(), "logs": seen.sums.tolist()}
    return {
        "weights": [int(a) for a in seen.weights],
        "rows": [round(float(n)) for n in seen.rows],
        "clip": seen.clip,
        **sums,
    }


def evidence_of(row: Row) -> Evidence:
    """The evidence that gave these plain values."""
    weights, counted = np.array(row["weights"], float), "hits" in row
    nothing, bare = np.zeros((len(weights), 2, 3)), counted or "noise" in row
    return Evidence(
        weights=weights,
        top=np.array(row["hits"] if counted else row["sums"], float),
        rows=np.array(row["rows"], float),
        bets=nothing if bare else np.array(row["bets"], float),
        sums=nothing if bare else np.array(row["logs"], float),
        clip=float(row["clip"]),
        counted=counted,
        noise=float(row.get("noise", 0.0)),
    )


def claim_of(row: Row) -> Claim:
    """The claim of plain values, without its test."""
    return Claim(
        float(row["sign"]),
        float(row["limit"]),
        float(row["delta"]),
        bool(row["whole"]),
        bool(row["positive"]),
    )


def retested(row: Row) -> Row:
    """The same claim with value, p-value and outcome computed from its evidence alone."""
    if row["evidence"] is None:
        return row
    claim, seen = claim_of(row), evidence_of(row["evidence"])
    p = claim_p_value(claim, seen)
    value = seen.value if known_range(claim, seen) else None
    return row | {"value": value, "p_value": p, "passed": p <= claim.delta}


def promised_sides(claims: Sequence[Row], certified: bool) -> dict[str, float | None]:
    """low <= quantity <= high on new rows, from the claims about the sides of one limit.

    Of a certified limit the limit itself is promised. Otherwise the bounds are those that each
    claim alone would allow; a bound is None if it is not known.
    """
    found: dict[str, float | None] = {"low": None, "high": None}
    for name, sign in (("low", -1), ("high", 1)):
        own = [row for row in claims if row["sign"] == sign]
        if own and certified:
            found[name] = sign * max(row["limit"] for row in own)
        elif own and all(row["evidence"] is not None for row in own):
            bounds = [claim_bound(claim_of(row), evidence_of(row["evidence"])) for row in own]
            found[name] = sign * max(bounds) if np.isfinite(bounds).all() else None
    return found
