"""The section [limits] of site.toml: what a site takes part in, whatever a run asks for."""

from __future__ import annotations

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from fedssca.errors import nearest
from fedssca.problem.constraint_kinds import KINDS
from fedssca.run.schema.types import MODEL, Flag, Real, Whole, invalid, key

__all__ = ["SiteLimits"]


@dataclass(frozen=True, config=MODEL)
class SiteLimits:
    """What a site takes part in. It refuses everything else, and says by which of these keys."""

    features: list[str] = key(
        "The columns that may be features; an empty list means all that are not in ignore.",
        default=[],
    )
    counted: list[str] = key(
        "The columns whose groups may be counted for limits of a run; an empty list means all.",
        default=[],
    )
    least_rows: Whole = key(
        "The least number of rows behind every number that is sent, and behind every value of text "
        "whose name is sent. What fewer rows have is merged with the rest, or not sent.",
        default=10,
        ge=1,
    )
    most_kinds: Whole = key(
        "The largest number of different values of a column whose names are sent.",
        default=50,
        ge=1,
    )
    least_batch: Whole = key(
        "The least number of rows in a batch (algorithm.batch).", default=10, ge=1
    )
    least_sites: Whole = key(
        "The least number of sites that take part in a round.", default=2, ge=1
    )
    least_neighbours: Whole = key(
        "The least number of sites with which this one shares masks in a secure sum; with fewer "
        "sites, all others.",
        default=3,
        ge=1,
    )
    most_rounds: Whole = key(
        "The largest number of rounds of one job, those that are repeated included.",
        default=10_000,
        ge=1,
    )
    most_jobs: Whole = key("The largest number of jobs on the same data.", default=1000, ge=1)
    constraints: list[str] = key(
        "The kinds of constraints that a run may state; an empty list means all.", default=[]
    )
    packages: list[str] = key(
        "The installed packages whose functions a run may name (model.name, algorithm.name, "
        "kind of a constraint), such as my_package or my_package.nets; an empty list means none.",
        default=[],
    )
    secure_sum: Flag = key(
        "Nothing that is computed from rows is sent unless it is hidden in a sum over sites.",
        default=False,
    )
    open_blocks: Flag = key(
        "A party with columns sends its block of the gradient although it asks for hidden "
        "messages. Nobody else has the same block, so no sum can hide it.",
        default=False,
    )
    noise: Flag = key(
        "Nothing that is computed from batches is sent without noise (privacy.epsilon or "
        "privacy.noise_multiplier).",
        default=False,
    )
    most_epsilon: Real = key(
        "The largest epsilon that all jobs on the same data may spend together; 0 means any. A "
        "positive number asks for noise too.",
        default=0.0,
        ge=0,
    )
    censuses: Whole = key(
        "The number of different sets of rows that may be counted: another data.test_fraction "
        "or data.calibration_fraction, changed data and, where sums are hidden, "
        "other sites make another set.",
        default=1,
        ge=1,
    )

    @model_validator(mode="after")
    def _knows_its_kinds(self) -> SiteLimits:
        for kind in self.constraints:
            if kind not in KINDS:
                raise invalid(nearest(kind, KINDS), "constraints", kind)
        return self
