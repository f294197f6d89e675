"""What a site tells of its calibration rows: sums that limits on new rows are tested with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.deploy.evidence import bets_of, keeps_own, own_tester
from fedssca.deploy.site.calibration import CalibrationUse, model_digest
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
from fedssca.run.build import Job

__all__ = ["ColumnEvidence", "RowEvidence", "chunk_evidence"]


class RowEvidence:
    """Answers about the calibration rows of a site that holds rows."""

    def __init__(
        self, job: Job, number: int, rows: Mapping[str, np.ndarray], used: CalibrationUse
    ) -> None:
        self._job, self._number, self._used = job, number, used
        owners = {"client": np.full(len(rows["x"]), number)} if rows else {}
        self._rows = held_out({**rows, **owners}) if rows else None
        self._tester = own_tester(job)
        self._clips, self._sums = self._tester.clips, evidence_sums(job.problem, 0)

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """The sums of the site's own rows, or the outcome of its own tests."""
        del phase
        theta = {name: np.asarray(each) for name, each in asked["theta"].items()}
        model = model_digest(self._job.problem.model(asked["w"]))
        told = self._used.check(model, theta)
        sums = self._of(jnp.asarray(asked["w"]), theta)
        bets = bets_of(self._tester, theta)
        seen = joined_evidence(sums, self._tester.signs, bets, asked["w"].dtype)
        results = [result for result in self._tester.claims([seen]) if self._is_own(result)]
        if told:
            self._used.keep(model, results)
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
        failed = np.arange(self._job.clients.count) == self._number
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
            "failed": (failed * self._used.named * (not passed)).astype(dtype),
            "rows": {name: own[:, 1] for name, own in sums.items()},
        }


class ColumnEvidence:
    """Answers about the calibration rows of a party with columns, chunk by chunk.

    The party that adds up keeps what all chunks say of a model.
    """

    def __init__(
        self, job: Job, handle: Callable[[str, Any], Outgoing], used: CalibrationUse
    ) -> None:
        """`handle` adds up over a chunk."""
        self._handle, self._used, self._tester = handle, used, own_tester(job)
        self._chunks: dict[str, dict[int, dict[str, Any]]] = {}

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """Share the h_i of a chunk, or add up."""
        theta = {name: np.asarray(each) for name, each in asked["theta"].items()}
        begin = int(asked["indices"][0]) if len(asked["indices"]) else 0
        model = model_digest(asked["w"], asked["w0"])
        told = self._used.check(model, theta, begin)
        out = self._handle(phase, asked)
        if told and phase == "reply" and out.get(SERVER):
            sums = jax.device_get(out[SERVER]["sums"])
            chunks = self._chunks.setdefault(model, {})
            chunks[begin] = {name: np.asarray(own, float) for name, own in sums.items()}
            whole = {name: sum(chunk[name] for chunk in chunks.values()) for name in sums}
            bets, dtype = bets_of(self._tester, theta), asked["w0"].dtype
            seen = joined_evidence(whole, self._tester.signs, bets, dtype)
            self._used.keep(model, self._tester.claims([seen]))
        return out


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
