"""The sections of a run: type, range, choices, default and help of every key, written once.

Error lines, the form of the web page, `docs/config.md` and the JSON Schema come from here. A
`Config` that exists is valid: what can be said before any data is read is checked when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from fedssca.problem.constraint_kinds import kind_of
from fedssca.run.schema.algorithm import COMMON_BATCH, FIXED_RATE, AlgorithmSettings
from fedssca.run.schema.data import DataSettings
from fedssca.run.schema.model import ModelSettings
from fedssca.run.schema.privacy import PrivacySettings
from fedssca.run.schema.problem import ProblemSettings
from fedssca.run.schema.types import AUTO, MODEL, Flag, Positive, Real, Whole, invalid, key

__all__ = ["Config", "DeploySettings", "RunSettings"]

CALIBRATION = 0.2
"""The share of calibration rows, if a confidence is asked for."""


@dataclass(frozen=True, config=MODEL)
class RunSettings:
    """Seed, precision, and how often the run is evaluated and saved."""

    purpose: str = key(
        "What the model is for, in a sentence or two. The model card (fedssca report --card) "
        "quotes it.",
        title="Purpose of the model",
        default="",
    )
    seed: Whole = key(
        "The seed. The same seed gives the same result bit for bit.",
        default=0,
        ge=0,
        basic=True,
    )
    evaluate_every: Whole = key(
        "The number of rounds between evaluations on all data. Each writes one row of "
        "metrics.jsonl, and feasibility is decided there.",
        title="Rounds between evaluations",
        default=10,
        ge=1,
    )
    checkpoint_every: Whole = key(
        "The number of rounds between checkpoints, from which a stopped run continues; 0 means no "
        "checkpoints.",
        title="Rounds between checkpoints",
        default=100,
        ge=0,
    )
    precision: Literal["float32", "float64"] = key(
        "The number format.", title="Number format", default="float32"
    )
    runtime: Literal["fused", "local"] = key(
        "How rounds are computed: all clients in one program (fused), or message by message as in "
        "a deployment, which is slower (local).",
        default="fused",
    )


@dataclass(frozen=True, config=MODEL)
class DeploySettings:
    """How the server treats sites on other machines."""

    min_sites: Whole = key(
        "The number of sites with rows that must stay connected for the run to go on; 0 means "
        "more than half.",
        title="Fewest connected sites",
        default=0,
        ge=0,
    )
    timeout: Positive = key(
        "The time in seconds within which a site must answer. A site that does not is dropped.",
        title="Seconds until a site is dropped",
        default=60.0,
    )
    deadline: Real = key(
        "The time in seconds after which a training round goes on without the sites that have not "
        "answered, once enough have: min_sites or, of a hidden sum, its threshold. A late site "
        "stays a member until it has not answered for `timeout` seconds; 0 waits for all.",
        title="Seconds until a round goes on",
        default=0.0,
        ge=0,
    )
    robust: Literal["none", "trimmed-mean", "median", "norm-bound"] = key(
        "How plain sums bound what a site that lies with well-formed numbers can do: leave out "
        "the extremes of every entry, take medians, or shorten long messages.",
        title="Protection against lying sites",
        default="none",
    )
    align: Flag = key(
        "Parties with columns whose row ids differ find the rows that all of them have. If false, "
        "such a run is refused.",
        title="Find common rows",
        default=True,
    )


@dataclass(frozen=True, config=MODEL)
class Config:
    """One run, complete."""

    data: DataSettings = Field(default_factory=DataSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    problem: ProblemSettings = Field(default_factory=ProblemSettings)
    algorithm: AlgorithmSettings = Field(default_factory=AlgorithmSettings)
    privacy: PrivacySettings = Field(default_factory=PrivacySettings)
    run: RunSettings = Field(default_factory=RunSettings)
    deploy: DeploySettings = Field(default_factory=DeploySettings)

    @model_validator(mode="before")
    @classmethod
    def _common_batch(cls, given: Any) -> Any:
        """Parties with columns have one batch where clients with rows have one each."""
        tree = given if isinstance(given, Mapping) else {}
        data, algorithm = tree.get("data"), tree.get("algorithm", {})
        if not isinstance(data, Mapping) or not isinstance(algorithm, Mapping):
            return given
        if data.get("split") != "feature" or "batch" in algorithm:
            return given
        return {**tree, "algorithm": {**algorithm, "batch": COMMON_BATCH}}

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Config:
        """All checks that concern more than one key, and need no data."""
        privacy = self.privacy
        if privacy.secure_sum and privacy.homomorphic:
            raise invalid(
                "privacy.secure_sum and privacy.homomorphic hide the same sums in two ways: choose "
                "one (secure_sum, unless one client should hold the key)",
                "privacy.homomorphic",
            )
        if privacy.homomorphic and self.data.split == "feature":
            raise invalid(
                "privacy.homomorphic adds up messages of clients that hold rows: with data.split = "
                '"feature" use privacy.secure_sum',
                "privacy.homomorphic",
            )
        if self.model.parties is not None and self.data.split == "feature":
            raise invalid(
                "model.parties names columns for clients that hold rows; clients that hold columns "
                "are the parties themselves: leave it out",
                "model.parties",
            )
        misfits = (
            self._misfit_of_labels,
            self._misfit_of_personal,
            self._misfit_of_sites,
            self._misfit_of_staleness,
        )
        if misfit := next((found for look in misfits if (found := look())), None):
            raise invalid(*misfit)
        if self.algorithm.dropout and not self.algorithm.cohort:
            raise invalid(
                f"algorithm.dropout = {self.algorithm.dropout:g} needs algorithm.cohort: set the "
                "number of clients that are asked per round",
                "algorithm.dropout",
            )
        noisy = privacy.noise_multiplier or privacy.epsilon
        if self.problem.certified and noisy and privacy.unit == "client":
            raise invalid(
                'privacy.unit = "client": noise that hides all calibration rows of a client hides '
                'their counts as well; use "sample", or leave problem.confidence out',
                "privacy.unit",
            )
        if self.problem.certified and self.calibration_fraction == 0:
            raise invalid(
                "a confidence needs calibration rows: set data.calibration_fraction above 0",
                "data.calibration_fraction",
            )
        if self.algorithm.rounds == AUTO and (words := self._needs_a_number()):
            raise invalid(f"{words}: set a number of rounds", "algorithm.rounds", AUTO)
        return self

    @property
    def calibration_fraction(self) -> float:
        """The share of the training rows that is set aside."""
        given = self.data.calibration_fraction
        if not self.problem.certified:
            return 0.0
        return CALIBRATION if given is None else given

    @property
    def functions(self) -> list[str]:
        """The functions of the user that the run names, "package.module:function"."""
        named = [
            self.model.name,
            self.algorithm.name,
            self.problem.loss or "",
            *(entry.kind for entry in self.problem.constraint),
        ]
        return [name for name in named if ":" in name]

    @property
    def limited_labels(self) -> int:
        """The set of those of several labels that limits name, bit k for label k."""
        named = {str(entry.positive) for entry in self.problem.constraint}
        return sum(1 << k for k, name in enumerate(self.data.labels) if name in named)

    def _misfit_of_labels(self) -> tuple[str, str] | None:
        """What does not go with several labels at once, and its key."""
        names, several = self.data.labels, self.problem.target == "labels"
        if bool(names) != several:
            words = (
                f"problem.task = {self.problem.task!r} has one label: set problem.task = "
                '"multilabel", or data.label = <one column>'
            )
            if several:
                words = 'problem.task = "multilabel" needs several labels: data.label = ["a", "b"]'
            return words, "data.label"
        if len(set(names)) < len(names) or len(names) == 1:
            return f"data.label = {list(names)}: name two or more labels, each once", "data.label"
        for entry in self.problem.constraint if several else ():
            kind, label = kind_of(entry.kind), entry.positive
            if "positive" not in kind.options or (label is None and kind.of_all):
                continue
            if label not in names:
                what = f"positive = {label!r} is no label" if label is not None else "it needs one"
                return (
                    f"a limit of kind {entry.kind!r} is about one label, and {what}: set positive "
                    f"to one of {', '.join(map(repr, names))}",
                    "problem.constraint",
                )
        return None

    def _misfit_of_personal(self) -> tuple[str, str] | None:
        """What does not go with parts of the network that stay at the clients, and its key."""
        if not self.model.own_parts:
            return None
        chosen, privacy = self.algorithm, self.privacy
        local = chosen.name == "ssca" and chosen.local_steps > 1
        weighed = chosen.name == "ssca" and chosen.multipliers != "exact"
        found = {
            'clients that hold columns (data.split = "feature") share one model': (
                self.data.split == "feature"
            ),
            "model.train names what is trained in common: leave one of the two out": (
                bool(self.model.train)
            ),
            "privacy.clip and noise are accounted for models that are released whole": bool(
                privacy.clip or privacy.noise_multiplier or privacy.epsilon
            ),
            "problem.confidence certifies one model for all": self.problem.certified,
            "algorithm.cohort and deploy.robust need clients with one model": (
                chosen.cohort > 0 or self.deploy.robust != "none"
            ),
            f'problem.objective = "{self.problem.objective}" compares groups under one model': (
                self.problem.objective.startswith("worst")
            ),
            "the method must be one of fedssca": chosen.own,
            "ssca takes one local step there": local,
            'surrogate = "diagonal" has no personal parts': chosen.surrogate == "diagonal",
            'limits need algorithm.name = "ssca" with multipliers = "corrected"': (
                self.problem.limited and not weighed
            ),
        }
        why = next((words for words, wrong in found.items() if wrong), None)
        return (f"model.personal: {why}", "model.personal") if why else None

    def _misfit_of_sites(self) -> tuple[str, str] | None:
        """What in [deploy] does not fit the rest of the run, and its key."""
        deploy, privacy = self.deploy, self.privacy
        if deploy.robust != "none" and (privacy.secure_sum or privacy.homomorphic):
            return (
                f'deploy.robust = "{deploy.robust}" compares the messages of single sites, which '
                "hidden sums do not show, and sites cannot prove a bound on what they mask: use "
                "one of the two",
                "deploy.robust",
            )
        columns = self.data.split == "feature"
        for name, given in (("robust", deploy.robust != "none"), ("deadline", deploy.deadline)):
            if given and columns:
                return (
                    f"deploy.{name} is for sites that hold rows: of parties with columns all are "
                    "needed in every round",
                    f"deploy.{name}",
                )
        if deploy.deadline >= deploy.timeout:
            return (
                f"deploy.deadline = {deploy.deadline:g} must be below deploy.timeout = "
                f"{deploy.timeout:g}, after which a silent site is dropped",
                "deploy.deadline",
            )
        return None

    def _misfit_of_staleness(self) -> tuple[str, str] | None:
        """What does not go with rounds that do not wait for slow clients, and its key."""
        chosen, privacy = self.algorithm, self.privacy
        if not chosen.staleness:
            if chosen.delays is None:
                return None
            words = "algorithm.delays needs algorithm.staleness: set how old messages may become"
            return words, "algorithm.delays"
        found = {
            "of parties with columns all are needed in every round": self.data.split == "feature",
            "the server adds up single messages of several rounds, which hidden sums do not show": (
                bool(privacy.secure_sum or privacy.homomorphic)
            ),
            "noise is accounted for messages that count in one round": bool(
                privacy.clip or privacy.noise_multiplier or privacy.epsilon
            ),
            "algorithm.cohort asks other clients in every round": chosen.cohort > 0,
            'run.runtime = "local" simulates no delays: use "fused"': (
                chosen.delays is not None and self.run.runtime == "local"
            ),
            "deploy.robust compares messages of one round": self.deploy.robust != "none",
            "model.personal trains a part in the round of its message": bool(self.model.own_parts),
            "what local steps changed counts in its own round: use local_steps = 1": (
                chosen.local_steps > 1
            ),
        }
        why = next((words for words, wrong in found.items() if wrong), None)
        return (f"algorithm.staleness: {why}", "algorithm.staleness") if why else None

    def _needs_a_number(self) -> str:
        """Why the number of rounds must be known before the first one; empty if it need not be."""
        chosen, privacy = self.algorithm, self.privacy
        if privacy.clip or privacy.noise_multiplier or privacy.epsilon:
            return "clipping and noise are planned for a known number of messages"
        if chosen.local_steps > 1:
            return (
                f"the {chosen.local_steps} local steps of a round are as long as the number of "
                "rounds says"
            )
        if (chosen.own or chosen.name in FIXED_RATE) and chosen.rate.cool:
            return "a rate that falls to 0 over the last rounds depends on their number"
        return ""
