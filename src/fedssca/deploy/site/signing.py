"""The end of a run with a confidence: a site checks the certificate, and signs it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedssca.data import Rows
from fedssca.deploy.evidence import own_tester, without_rows
from fedssca.deploy.site.calibration import CalibrationUse, model_digest
from fedssca.deploy.site.preparation import Prepared
from fedssca.errors import UserError
from fedssca.evaluate.confidence.noised import CERTAIN
from fedssca.evaluate.confidence.plain import retested
from fedssca.rounds.codec import InvalidMessage
from fedssca.run.config import render
from fedssca.run.model import digest_of, model_from
from fedssca.run.promise import Certificate, canonical

__all__ = ["certificate_to_sign"]

Row = dict[str, Any]
SAME = ("constraint", "sign", "limit", "delta", "whole")
"""What the claims of a statement and those that a site has tested have in common."""


def certificate_to_sign(
    text: str, blocks: Mapping[str, np.ndarray], ready: Prepared, used: CalibrationUse
) -> Certificate:
    """The certificate that the server sends; a UserError says what a site does not agree to.

    `blocks` are the parameters of the certified model that this site knows.
    """
    try:
        statement = json.loads(text)
        whole = canonical(statement).decode() == text
        whys = list(_differences(statement, blocks, ready, used)) if whole else []
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise InvalidMessage("this is no statement of a certificate")
    for why in whys:
        raise UserError(f"this site does not sign the certificate: {why}")
    return Certificate(statement)


def _differences(
    statement: Row, blocks: Mapping[str, np.ndarray], ready: Prepared, used: CalibrationUse
) -> Iterator[str]:
    """What a statement says that is not so, as far as this site knows."""
    census, job, number = ready.census, ready.job, ready.number
    sizes = census.calibration[:1] * len(census.names) if census.columns else census.calibration
    own = {"site": census.names[number], "rows": sizes[number], "sha256": used.commitment}
    if statement["signers"] != census.names or len(statement["commitments"]) != len(census.names):
        yield "its signers are not the sites of the run"
    elif statement["commitments"][number] != own:
        yield "it does not have this site's commitment to its calibration rows"
    if statement["config_sha256"] != hashlib.sha256(render(job.config).encode()).hexdigest():
        yield "it is about another configuration"
    if statement["training_rows"] != census.sizes:
        yield "it counts other training rows"
    if isinstance(job.clients, Rows):
        made = model_from(job, blocks["w"], statement["versions"])
        if digest_of(made) != statement["model_sha256"]:
            yield "the model that came with it is not the one that it is about"
    claims, certified = statement["claims"], statement["certified"]
    if not all(_follows(claim) for claim in claims):
        yield "its p-values do not follow from its counts"
    if certified is not all(claim["passed"] for claim in claims):
        yield "what it certifies does not follow from its claims"
    tested = used.claims.get(model_digest(*(blocks[name] for name in sorted(blocks))))
    if tested is None:
        if isinstance(job.clients, Rows):
            yield "its model was not tested on this site's calibration rows"
        return
    due = {m for limit in own_tester(job).limits for m in limit.constraints}
    if {claim["constraint"] for claim in claims} != due:
        yield "it does not make the claims of the run's limits"
        return
    given = without_rows(job, census.calibration).noise
    noise = 0.0 if given is None else given.pooled
    own_claims = {claim["constraint"]: claim for claim in tested}
    for claim in claims:
        mine = own_claims.get(claim["constraint"])  # none, if it is about another site
        if mine is None or (claim["evidence"] is None and claim["site"] != number):
            continue
        if any(claim[name] != mine[name] for name in SAME):
            yield "it does not make the claims of the run's limits"
        elif claim["evidence"] is None:
            if certified and not mine["passed"]:
                yield "it says that this site has passed, which is not so"
        elif claim["evidence"].get("noise", 0.0) != noise:
            yield "it does not state the noise that its counts carry"
        elif not _contains(claim["evidence"], mine["evidence"], exactly=census.columns):
            yield "its counts do not contain those of this site"


def _follows(claim: Row) -> bool:
    """Whether the outcome of a claim follows from its counts, up to rounding."""
    again = retested(claim)
    pairs = [(claim[name], again[name]) for name in ("p_value", "value")]
    return again["passed"] is claim["passed"] and all(
        told == found
        or (None not in (told, found) and math.isclose(told, found, rel_tol=1e-6, abs_tol=1e-12))
        for told, found in pairs
    )


def _contains(total: Row, own: Row, *, exactly: bool) -> bool:
    """Whether counts of all sites can be sums of this site's counts and others."""
    rows, mine = np.array(total["rows"]), np.array(own["rows"])
    counted = "hits" in total and "hits" in own
    hits, my_hits = (np.array(each["hits"] if counted else each["rows"]) for each in (total, own))
    if exactly:
        return bool(np.allclose(rows, mine) and np.allclose(hits, my_hits))
    away = 2 * len(rows) * CERTAIN * total.get("noise", 0.0)  # the noise of others may be negative
    return bool((mine <= rows + away).all() and (my_hits <= hits + away).all()) and (
        not counted or bool((mine - my_hits <= rows - hits + away).all())
    )
