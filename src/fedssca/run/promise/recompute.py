"""The numbers of a statement again, from the counts in it: does what it says follow from them?"""

from __future__ import annotations

import math
from typing import Any

from fedssca.errors import UserError
from fedssca.evaluate.confidence.noised import CERTAIN
from fedssca.evaluate.confidence.plain import promised_sides, retested

__all__ = ["check_numbers"]

Row = dict[str, Any]
NEAR = 1e-6
"""The relative difference between machines that is allowed."""
KEYS = ("model_sha256", "config_sha256", "certify", "versions")
"""What a statement has beside the numbers that are checked."""
SIDES = {1: "high", -1: "low"}


def check_numbers(statement: Row) -> None:
    """Raise a UserError at the first number that does not follow from the counts."""
    try:
        _check(statement)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"the statement is not complete ({type(error).__name__}: {error}): get it anew from "
            "the run"
        ) from None


def _check(statement: Row) -> None:
    if not isinstance(statement["signers"], list) or not all(map(statement.__contains__, KEYS)):
        raise ValueError(f"it should have signers, {', '.join(KEYS)}")
    names = [(str(each["site"]), str(each["sha256"])) for each in statement["commitments"]]
    if len({name for name, _ in names}) < len(names):
        raise ValueError("a holder of calibration rows is named twice")
    limits, claims, certified = statement["limits"], statement["claims"], statement["certified"]
    titles = {m: limit["title"] for limit in limits for m in limit["constraints"]}
    for claim in claims:
        if claim["constraint"] not in titles:
            raise _edited(f"there is a claim about constraint {claim['constraint']}, but no limit")
        where = _where(titles[claim["constraint"]], claim, statement)
        _check_claim(claim, where)
        _check_rows(statement, claim, where)
    if certified and not (claims and all(claim["passed"] for claim in claims)):
        raise _edited("it says certified, but a claim did not pass its test")
    for limit in limits:
        _check_limit(
            limit, [c for c in claims if c["constraint"] in limit["constraints"]], certified
        )
    confidence = 1 - max((claim["delta"] for claim in claims), default=0.0)
    if not _same(statement["confidence"], confidence):
        raise _edited(f"the confidence is {statement['confidence']}, by the claims {confidence:g}")


def _check_claim(claim: Row, where: str) -> None:
    again = retested(claim)
    for name, words in (("value", "value"), ("p_value", "p-value"), ("passed", "outcome")):
        if not _same(claim[name], again[name]):
            raise _edited(
                f"{where}: the {words} is {claim[name]}, but its counts give {again[name]}"
            )


def _check_rows(statement: Row, claim: Row, where: str) -> None:
    """A claim rests on no more rows than were committed to."""
    held = [each["rows"] for each in statement["commitments"]]
    if not held or claim["evidence"] is None:
        return
    site, columns = claim["site"], len(held) > len(statement["training_rows"])
    most = held[0] if columns else sum(held) if site is None else held[site]
    rows = claim["evidence"]["rows"]
    most += 2 * len(rows) * CERTAIN * claim["evidence"].get("noise", 0.0)
    if (max(rows) if claim["whole"] else sum(rows)) > most:
        raise _edited(
            f"{where}: {sum(rows):g} rows are counted, but holders committed themselves to {most:g}"
        )


def _check_limit(limit: Row, claims: list[Row], certified: bool) -> None:
    title, promise = limit["title"], limit["promise"]
    for claim in claims:
        asked = limit[SIDES[claim["sign"]]]
        if asked is None or not _same(claim["sign"] * claim["limit"], asked):
            raise _edited(f"{title}: the limit is {asked}, but another one was tested")
    if {claim["constraint"] for claim in claims} != set(limit["constraints"]):
        raise _edited(f"{title}: a side of the limit was not tested")
    again = promised_sides(claims, certified)
    for side, bound in again.items():
        if not _same(promise[side], bound):
            raise _edited(f"{title}: the bound is {promise[side]}, but its counts give {bound}")
    if promise["certified"] != certified:
        raise _edited(f"{title}: it is called certified, the whole statement is not, or conversely")
    confidence = 1 - max(claim["delta"] for claim in claims)
    if not _same(promise["confidence"], confidence):
        raise _edited(f"{title}: the confidence is {promise['confidence']}, by its claims another")


def _where(title: str, claim: Row, statement: Row) -> str:
    site, held = claim["site"], statement["commitments"]
    return title if site is None else f"{title}, at {held[site]['site']}"


def _same(told: Any, found: Any) -> bool:
    if isinstance(told, bool) or isinstance(found, bool) or told is None or found is None:
        return told is found
    return math.isclose(told, found, rel_tol=NEAR, abs_tol=1e-12)


def _edited(what: str) -> UserError:
    return UserError(f"the numbers of the certificate were edited: {what}")
