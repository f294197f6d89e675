"""What a site tells of its calibration rows in a run with noise: noised counts, about one model.

Noise comes from the site's own randomness, on a grid, as that of its messages does. The same model
gets the same answer again, which tells nothing new; another one is refused, because the account has
none. If the site tests its own claims, it does so on its noised counts and tells the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.deploy.evidence import calibration_noise, keeps_own, own_tester
from fedssca.deploy.site.calibration import CalibrationUse, model_digest
from fedssca.deploy.sums import finest_of
from fedssca.evaluate.confidence.counts import count_sums
from fedssca.evaluate.passes import held_out
from fedssca.privacy.noise.secret import SecretNoise
from fedssca.rounds.client import SERVER, Outgoing
from fedssca.run.build import Job

__all__ = ["NoisedColumnCounts", "NoisedRowCounts"]

Sums = dict[str, np.ndarray]


class _NoisedCounts:
    """Adds noise to counts of calibration rows, once for every part of them."""

    def __init__(self, job: Job, used: CalibrationUse, own_noise: SecretNoise) -> None:
        noise = calibration_noise(job)
        assert noise is not None
        self.job, self._used, self._own_noise, self._noise = job, used, own_noise, noise
        self.tester, self._alone = own_tester(job), keeps_own(job)
        self._told: dict[tuple[str, int], Sums] = {}

    def noised(self, model: str, part: int, count: Callable[[], Mapping[str, Any]]) -> Sums:
        """The counts of a part of the rows with noise; the same again for the same model."""
        if (model, part) not in self._told:
            self._own_noise.count_evaluation(("calibration", part), 1)
            job = self.job
            hidden = not self._alone
            finest = finest_of("evidence", job.clients.total, job.config) if hidden else 0.0
            spread = self._noise.spread(alone=self._alone)
            exact = {name: np.asarray(own, np.float64) for name, own in count().items()}
            spreads = {name: np.full(own.shape, spread) for name, own in exact.items()}
            self._told[model, part] = self._own_noise.evaluated(
                exact, spreads, self._noise.ratio, finest
            )
        return self._told[model, part]

    def keep(self, model: str, parts: int, number: int | None = None) -> bool:
        """Test the claims on all parts that were told of a model; returns whether all passed.

        With the `number` of a site, only claims that are about its rows.
        """
        told = [own for (known, _), own in self._told.items() if known == model]
        whole = {name: sum(own[name] for own in told) for name in told[0]}
        seen = self.tester.counted(whole)
        spread = self._noise.deviation(parts, alone=self._alone)
        seen = {name: own._replace(noise=spread) for name, own in seen.items()}
        bounds = self.job.problem.bounds
        results = [
            result
            for result in self.tester.claims([seen])
            if number is None or bounds[result.constraint].client in (None, number)
        ]
        self._used.keep(model, results)
        return all(result.passed for result in results)


class NoisedRowCounts(_NoisedCounts):
    """Answers about the calibration rows of a site that holds rows."""

    def __init__(
        self,
        job: Job,
        number: int,
        rows: Mapping[str, np.ndarray],
        used: CalibrationUse,
        own_noise: SecretNoise,
    ) -> None:
        super().__init__(job, used, own_noise)
        self._number = number
        owners = {"client": np.full(len(rows["x"]), number)} if rows else {}
        self._rows = held_out({**rows, **owners}) if rows else None
        self._sums = count_sums(job.problem, self.tester.clips, 0)

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """The noised counts of the site's own rows, or the outcome of its own tests."""
        del phase
        model = model_digest(self.job.problem.model(asked["w"]))
        told = self.noised(model, 0, lambda: self._count(jnp.asarray(asked["w"])))
        passed = self.keep(model, 1, self._number)
        if not keeps_own(self.job):
            return {SERVER: {"sums": told}}
        here = np.arange(self.job.clients.count) == self._number
        named = self._used.named and not passed
        return {
            SERVER: {
                "passed": np.asarray(passed, np.float64),
                "able": np.ones(len(self.tester.limits)),
                "failed": (here & named).astype(np.float64),
                "rows": {name: own.sum(axis=1) for name, own in told.items()},
            }
        }

    def _count(self, w: Any) -> Sums:
        signs = self.tester.signs
        if self._rows is None:
            return {name: np.zeros((len(signs[name]), 2)) for name in self.tester.clips}
        found = jax.device_get(self._sums(w, self._rows))
        return {name: own[0] for name, own in found.items()}


class NoisedColumnCounts(_NoisedCounts):
    """Answers about the calibration rows of a party with columns, chunk by chunk."""

    def __init__(
        self,
        job: Job,
        handle: Callable[[str, Any], Outgoing],
        used: CalibrationUse,
        own_noise: SecretNoise,
    ) -> None:
        """`handle` adds up over a chunk."""
        super().__init__(job, used, own_noise)
        self._handle = handle

    def handle(self, phase: str, asked: Any) -> Outgoing:
        """Share the h_i of a chunk, or add up."""
        out = self._handle(phase, asked)
        if phase != "reply" or not out.get(SERVER):
            return out
        begin = int(asked["indices"][0])
        model = model_digest(asked["w"], asked["w0"])
        exact = jax.device_get(out[SERVER]["sums"])
        told = self.noised(model, begin, lambda: exact)
        self.keep(model, sum(known == model for known, _ in self._told))
        return {SERVER: {"sums": told}}
