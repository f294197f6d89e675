"""What a run's config asks of a site that the site's [limits] do not allow.

This is checked before any data is read, so that a run that cannot be is refused at once. It does
not replace the guard, which looks at the messages themselves (`site.guard`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedssca.deploy.site.refusal import LimitRefused
from fedssca.run.config import Config
from fedssca.run.privacy import hides_sums, noisy
from fedssca.run.schema import SiteFile

__all__ = [
    "OPEN_BLOCKS",
    "asks_for_hiding",
    "asks_for_noise",
    "must_be_hidden",
    "must_be_noisy",
    "refusals",
]


def asks_for_hiding(source: SiteFile) -> bool:
    """Whether what this site sends must be hidden in sums."""
    return source.hidden or source.limits.secure_sum


def asks_for_noise(source: SiteFile) -> bool:
    """Whether what this site computes from batches must carry noise."""
    return source.limits.noise or source.limits.most_epsilon > 0


def refusals(config: Config, names: Sequence[str], source: SiteFile) -> Iterator[LimitRefused]:
    """All limits of this site that a run of these sites exceeds."""
    limits = source.limits

    def refused(key: str, why: str) -> LimitRefused:
        return LimitRefused(f"limits.{key}", getattr(limits, key), why)

    asked = min(config.algorithm.cohort or len(names), len(names))
    if asked < limits.least_sites:
        yield refused("least_sites", f"{asked} sites take part in a round")
    if config.algorithm.batch < limits.least_batch:
        yield refused("least_batch", f"algorithm.batch = {config.algorithm.batch}")
    if config.algorithm.most_rounds > limits.most_rounds:
        yield refused("most_rounds", f"the run may take {config.algorithm.most_rounds} rounds")
    for entry in config.problem.constraint:
        if limits.constraints and entry.kind not in limits.constraints:
            yield refused("constraints", f"the run states a constraint of kind {entry.kind!r}")
    for name in config.functions:
        home = name.partition(":")[0]
        if not any(home == own or home.startswith(f"{own}.") for own in limits.packages):
            yield refused("packages", f"the run names the function {name!r}")
    for column in config.problem.columns:
        if limits.counted and column not in limits.counted:
            yield refused("counted", f"the run counts the groups of column {column!r}")
    yield from _hiding(config, asked, source)
    yield from _noise(config, source)


def _hiding(config: Config, asked: int, source: SiteFile) -> Iterator[LimitRefused]:
    limits, privacy = source.limits, config.privacy
    if asks_for_hiding(source):
        if not (privacy.secure_sum or privacy.homomorphic):
            yield must_be_hidden(source)
        elif not hides_sums(config) and not limits.open_blocks:
            yield LimitRefused("limits.open_blocks", False, OPEN_BLOCKS)
    if hides_sums(config) and privacy.secure_sum and asked > 1:
        from fedssca.privacy.sums.graph import Rules

        rules = Rules(b"", asked, privacy.neighbours, privacy.threshold)
        if rules.least < limits.least_sites:
            why = f"a sum of {rules.least} sites could be opened (privacy.threshold)"
            yield LimitRefused("limits.least_sites", limits.least_sites, why)
        if rules.degree(asked) < min(limits.least_neighbours, asked - 1):
            why = f"privacy.neighbours = {privacy.neighbours}"
            yield LimitRefused("limits.least_neighbours", limits.least_neighbours, why)


OPEN_BLOCKS = (
    "parties with columns send blocks of the gradient, which no sum can hide; the site's operator "
    "may allow it"
)


def must_be_hidden(source: SiteFile) -> LimitRefused:
    """The refusal of a message that is not hidden."""
    why = "this site takes part in hidden sums only: set privacy.secure_sum = true in the run"
    return LimitRefused("limits.secure_sum" if source.limits.secure_sum else "hidden", True, why)


def _noise(config: Config, source: SiteFile) -> Iterator[LimitRefused]:
    limits = source.limits
    if asks_for_noise(source) and not noisy(config.privacy):
        yield must_be_noisy(source)
    elif limits.most_epsilon and config.privacy.epsilon > limits.most_epsilon:
        why = f"privacy.epsilon = {config.privacy.epsilon:g}"
        yield LimitRefused("limits.most_epsilon", limits.most_epsilon, why)


def must_be_noisy(source: SiteFile) -> LimitRefused:
    """The refusal of a message without noise."""
    key = "noise" if source.limits.noise else "most_epsilon"
    return LimitRefused(
        f"limits.{key}", getattr(source.limits, key), "what the run asks for carries no noise"
    )
