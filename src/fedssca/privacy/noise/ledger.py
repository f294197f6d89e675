"""The account of one run: which releases it plans, and what it has spent after so many rounds.

Several runs about the same rows have one account together (`joint_epsilon`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedssca.privacy.noise.accountant import COARSE, FINE, Release, epsilon_of, epsilon_replaced

__all__ = ["Ledger", "Spending", "joint_epsilon"]

REMOVED, REPLACED = "one {unit} more or less", "one {unit} replaced by another one"


class Spending(NamedTuple):
    """Releases about units of one kind, and the delta at which their epsilon is stated."""

    unit: str
    delta: float
    releases: tuple[Release, ...]


def joint_epsilon(spendings: Collection[Spending]) -> float:
    """epsilon of all of these together, at the smallest delta that any of them states.

    Releases about units of one kind are one account: their loss distributions are convolved. If
    some of them have batches of a fixed size, one row is replaced by another one in all of them.
    The accounts of different kinds of units add up, and each gets an equal part of delta.
    """
    units = sorted({each.unit for each in spendings})
    delta = min((each.delta for each in spendings), default=1.0) / max(len(units), 1)
    total = 0.0
    for unit in units:
        found = _merged([r for each in spendings if each.unit == unit for r in each.releases])
        account = epsilon_replaced if any(each.batch for each in found) else epsilon_of
        total += account(found, delta)
    return total


def _merged(releases: list[Release]) -> tuple[Release, ...]:
    """The same releases, with all messages of one mechanism in one of them."""
    found: dict[Release, Release] = {}
    for each in releases:
        kind = each._replace(messages=0, lost=0.0)
        old = found.get(kind, kind)
        messages, lost = old.messages + each.messages, old.lost + each.lost
        found[kind] = kind._replace(messages=messages, lost=lost)
    return tuple(found.values())


@dataclass(frozen=True)
class Ledger:
    """What a run spends. Its releases compose with those of other runs, see `spending`."""

    sigma: float
    delta: float
    unit: str
    rate: float
    """q: how likely a unit is in a message, unseen by the server; 1: it is, or the server knows."""
    rounds: int
    """Updates that the run is to do."""
    uses: tuple[int, ...] | None = None
    """The rounds that the busiest unit took part in after 0, 1, 2, ... rounds; None: all."""
    batch: tuple[int, int] | None = None
    """B and N_i where batches have a fixed size and are drawn without replacement."""
    probes: int = 0
    """Messages before round 1, each about a batch of its own."""
    again: int = 0
    """Messages that resumed deployments may have sent once more, with fresh noise."""
    evaluations: int = 0
    """Evaluations with noise; each is about all rows."""
    evaluation_sigma: float = 0.0
    calibrations: int = 0
    """Releases of noised counts of calibration rows, which are in nothing else."""
    calibration_sigma: float = 0.0
    calibration_lost: float = 0.0
    """The same as `lost`, of the counts of calibration rows."""
    lost: float = 0.0
    """The total variation distance of all messages from what is accounted for, when all are sent:
    batches that are cut off, and noise on a grid."""

    def also(self, messages: int, evaluations: int, resumes: int = 0) -> Ledger:
        """The same with more messages and evaluations, which `resumes` may have sent twice."""
        return replace(
            self,
            again=self.again + messages,
            evaluations=self.evaluations + evaluations,
            calibrations=self.calibrations * (1 + resumes),
        )

    def count(self, rounds: int) -> int:
        """Messages that any unit is in."""
        used = rounds if self.uses is None else self.uses[min(rounds, len(self.uses) - 1)]
        return self.probes + self.again + used

    @property
    def covers_evaluations(self) -> bool:
        """Evaluations carry noise and are accounted for; otherwise they are exact."""
        return self.evaluations > 0

    def releases(self, rounds: int | None = None) -> tuple[Release, ...]:
        """What is released in so many rounds, or in the whole run.

        All evaluations are counted from the start.
        """
        messages = self.count(self.rounds if rounds is None else rounds)
        rate = 1.0 if self.batch else self.rate
        found = [Release(self.sigma, messages, rate, self.batch, self.lost if messages else 0.0)]
        if self.evaluations:
            found.append(Release(self.evaluation_sigma, self.evaluations))
        return tuple(found)

    def calibration_releases(self) -> tuple[Release, ...]:
        """What is released about calibration rows."""
        if not self.calibrations:
            return ()
        return (Release(self.calibration_sigma, self.calibrations, lost=self.calibration_lost),)

    def spending(self) -> Spending:
        """What the whole run releases, for the `joint_epsilon` of several runs.

        In another run a calibration row may be a training row, so both kinds of releases count.
        """
        return Spending(self.unit, self.delta, self.releases() + self.calibration_releases())

    def exact(self, rounds: int | None = None, fine: float = FINE) -> float:
        """epsilon after so many rounds, or of the whole run; nothing is interpolated.

        No row is a training row and a calibration row: the larger epsilon of both counts. That of
        calibration rows counts in the whole run, and once its last round is done.
        """
        found = self._epsilon(self.releases(rounds), fine)
        over = rounds is None or rounds >= self.rounds
        return max(found, self.of_calibration()) if over else found

    def of_calibration(self) -> float:
        """epsilon of the calibration rows."""
        return self._epsilon(self.calibration_releases(), FINE)

    def _epsilon(self, releases: tuple[Release, ...], fine: float) -> float:
        if self.batch:
            return epsilon_replaced(releases, self.delta)
        return epsilon_of(releases, self.delta, fine)

    def spent(self, rounds: int) -> float:
        """epsilon after so many rounds; on the way there from a line through powers of two.

        In log k and log epsilon, that is: exact sums for every evaluated round would take longer
        than the rounds.
        """
        k = self.count(rounds)
        if k == 0 or rounds >= self.rounds:
            return self.exact(rounds)
        low = int(2 ** (k.bit_length() - 1))
        bare = replace(self, uses=None, probes=0, again=0, calibrations=0)
        ends = [bare.exact(end, COARSE) for end in (low, 2 * low)]
        if min(ends) <= 0:
            return ends[1] if k > low else ends[0]
        return float(np.exp(np.interp(np.log2(k / low), [0, 1], np.log(ends))))

    def report(self, rounds: int) -> dict[str, Any]:
        """What result.json says."""
        return {
            "epsilon": self.exact(rounds),
            "delta": self.delta,
            "noise_multiplier": self.sigma,
            "privacy_unit": self.unit,
            "neighbours": (REPLACED if self.batch else REMOVED).format(unit=self.unit),
            "private_messages": self.count(rounds),
            "private_evaluations": self.evaluations,
            "evaluation_noise_multiplier": self.evaluation_sigma or None,
            **self._about_calibration(),
            "sampling": self._sampling(),
            "sampling_rate": self.batch[0] / self.batch[1] if self.batch else self.rate,
            "accountant": self._accountant(),
            "epsilon_covers": self._covers(),
        }

    def _about_calibration(self) -> dict[str, Any]:
        if not self.calibrations:
            return {}
        return {
            "calibration_noise_multiplier": self.calibration_sigma,
            "calibration_epsilon": self.of_calibration(),
        }

    def _covers(self) -> str:
        counts = " and the counts of calibration rows" if self.calibrations else ""
        if self.covers_evaluations:
            return f"all messages and evaluations that leave the clients{counts}"
        return (
            f"the released model and the messages{counts}; the evaluations are exact and outside "
            "of it"
        )

    def _sampling(self) -> str:
        if self.batch:
            return "batches of a fixed size, without replacement"
        if self.rate < 1:
            return "Poisson: every sample independently"
        return "none: the server knows who takes part in a round"

    def _accountant(self) -> str:
        if self.batch:
            return "RDP of sampling without replacement, or Gaussian, whichever is smaller"
        return "PLD" if self.rate < 1 else "Gaussian, closed form"
