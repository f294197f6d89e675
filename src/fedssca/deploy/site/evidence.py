"""What a site tells of its calibration rows: sums that limits on new rows are tested with.

Whoever may ask about any number of models learns single rows. So a site answers questions about as
many models as a run tests, and with bets about each of them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.deploy.evidence import MOST_MODELS, bets_of, clips, keeps_own, own_tester
from fedssca.evaluate.confidence.claims import ClaimResult
from fedssca.evaluate.confidence.evidence import (
    COLUMNS,
    ROUNDING,
    Evidence,
    evidence_added,
    evidence_sums,
    joined_evidence,
)
from fedssca.evaluate.confidence.margins import best_possible
from fedssca.evaluate.passes import held_out
from fedssca.problem.problem import Array, Batch, Rate
from fedssca.rounds.client import SERVER, Outgoing
from fedssca.rounds.codec import InvalidMessage
from fedssca.run.build import Job

__all__ = ["CalibrationUse", "RowEvidence", "chunk_evidence", "model_digest"]


class CalibrationUse:
    """Which models the calibration rows of a site were asked about in a run, and what they said."""

    def __init__(self) -> None:
        self._counted: set[str] = set()
        self._tested: dict[tuple[str, Any], str] = {}
        self.claims: dict[str, list[ClaimResult]] = {}
        """The digest of a model -> the claims about it, tested on this site's own rows."""

    def check(self, w: Any, theta: dict[str, Any], part: Any = None) -> bool:
        """Refuse a question about one model too many; returns whether it is about sums.

        Without bets it is about numbers of rows only. `part` tells parts of the rows apart.
        """
        model = model_digest(w)
        if not all(((each >= 0) & (each < 1)).all() for each in theta.values()):
            raise InvalidMessage("bets must be at least 0 and less than 1")
        if not any(np.any(each) for each in theta.values()):
            self._counted.add(model)
            if len(self._counted) > MOST_MODELS + 1:  # also before training
                raise InvalidMessage(f"calibration rows are counted for {MOST_MODELS} models only")
            return False
        bets = model_digest(*(theta[name] for name in sorted(theta)))
        if self._tested.setdefault((model, part), bets) != bets:
            raise InvalidMessage("a model is tested on calibration rows once, with the same bets")
        if len({tested for tested, _ in self._tested}) > MOST_MODELS:
            raise InvalidMessage(f"calibration rows test {MOST_MODELS} models, and not more")
        return True

    def counted(self, handle: Callable[[str, Any], Outgoing]) -> Callable[[str, Any], Outgoing]:
        """`handle` of a party with columns, which answers as many questions as it may."""

        def checked(phase: str, asked: Any) -> Outgoing:
            theta = {name: np.asarray(each) for name, each in asked["theta"].items()}
            begin = int(asked["indices"][0]) if len(asked["indices"]) else 0
            self.check(np.concatenate([asked["w0"], asked["w"]]), theta, begin)
            return handle(phase, asked)

        return checked


def model_digest(*arrays: Any) -> str:
    """Identifies numbers, such as those of a model."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class RowEvidence:
    """Answers about the calibration rows of a site that holds rows."""

    def __init__(
        self, job: Job, number: int, rows: Mapping[str, np.ndarray], used: CalibrationUse
    ) -> None:
        self._job, self._number, self._used = job, number, used
        owners = {"client": np.full(len(rows["x"]), number)} if rows else {}
        self._rows = held_out({**rows, **owners}) if rows else None
        self._tester = own_tester(job)
        self._clips, self._sums = clips(self._tester), evidence_sums(job.problem, 0)

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """The sums of the site's own rows, or the outcome of its own tests."""
        del phase
        theta = {name: np.asarray(each) for name, each in asked["theta"].items()}
        told = self._used.check(asked["w"], theta)
        sums = self._of(jnp.asarray(asked["w"]), theta)
        bets = bets_of(self._tester, theta)
        seen = joined_evidence(sums, self._tester.signs, bets, asked["w"].dtype)
        results = [result for result in self._tester.claims([seen]) if self._is_own(result)]
        if told:
            self._used.claims[model_digest(self._job.problem.model(asked["w"]))] = results
        if keeps_own(self._job):
            return {SERVER: self._outcome(told and all(r.passed for r in results), sums, seen)}
        return {SERVER: {"sums": sums if told else {n: _counts(own) for n, own in sums.items()}}}

    def _of(self, w: Array, theta: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The sums of every quantity, (J, COLUMNS); whether all values are 0 or 1 is one bit."""
        if self._rows is None:
            return {name: np.zeros((len(each), COLUMNS), w.dtype) for name, each in theta.items()}
        found = jax.device_get(self._sums(w, self._rows, theta, self._clips))
        sums = {name: np.stack([each[0] for each in means]) for name, means in found.items()}
        for own in sums.values():
            own[:, 2] = own[:, 2] > ROUNDING
        return sums

    def _is_own(self, result: ClaimResult) -> bool:
        """Whether a claim is about the rows of this site, and not about those of another one."""
        return self._job.problem.bounds[result.constraint].client in (None, self._number)

    def _outcome(
        self, passed: bool, sums: dict[str, np.ndarray], seen: dict[str, Evidence]
    ) -> dict[str, Any]:
        tester, dtype = self._tester, self._job.problem.start.dtype
        able = [
            limit.client not in (None, self._number)
            or not best_possible(
                limit, seen[limit.quantity].rows, tester.delta(limit) or 0.0, tester.clip
            )
            for limit in tester.limits
        ]
        return {
            "passed": np.asarray(passed, dtype),
            "able": np.asarray(able, dtype),
            "rows": {name: own[:, 1] for name, own in sums.items()},
        }


def chunk_evidence(
    measures: Mapping[str, Sequence[Rate]],
    batch: Batch,
    theta: dict[str, Array],
    clip_of: dict[str, float],
) -> dict[str, Any]:
    """The sums over a chunk of rows whose columns parties hold, as the speaker adds them."""
    found = evidence_added(measures, batch, theta, clip_of)
    sums = {name: jnp.stack([each[0] for each in means]) for name, means in found.items()}
    told = jnp.stack([jnp.any(each != 0) for each in theta.values()]).any()
    return {"sums": {name: jnp.where(told, own, _counts(own)) for name, own in sums.items()}}


def _counts(sums: Any) -> Any:
    """Sums of which the numbers of rows are left, and zeros."""
    return sums * (np.arange(COLUMNS) == 1).astype(sums.dtype)
