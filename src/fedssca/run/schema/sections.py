"""The sections of a run: type, range, choices, default and help of every key, written once.

Error lines, the form of the web page, `docs/config.md` and the JSON Schema come from here. A
`Config` that exists is valid: what can be said before any data is read is checked when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from fedssca.run.schema.data import DataSettings
from fedssca.run.schema.model import ModelSettings
from fedssca.run.schema.privacy import PrivacySettings
from fedssca.run.schema.problem import ProblemSettings
from fedssca.run.schema.types import (
    AUTO,
    MODEL,
    Flag,
    OneOrMore,
    Positive,
    Real,
    StepSettings,
    Whole,
    WholeOrAuto,
    invalid,
    key,
    step,
)

__all__ = [
    "AlgorithmSettings",
    "Config",
    "DeploySettings",
    "RunSettings",
]

CALIBRATED = "calibrated"
CALIBRATION = 0.2
"""The share of calibration rows, if a confidence is asked for."""
RATE, DUAL_RATE = StepSettings(0.3), StepSettings(1.0)

RuleName: TypeAlias = Literal["corrected", "steered", "exact"]
MethodName: TypeAlias = Literal[
    "ssca",
    "fedavg",
    "fedprox",
    "fedsgd",
    "sgd",
    "momentum",
    "penalty",
    "primal-dual",
    "augmented",
    "switching",
]
FIXED_RATE = ("fedavg", "fedprox", "fedsgd", "sgd", "momentum")
"""The methods that follow the gradients of the loss with the learning rate `rate`."""
SEVERAL_STEPS = {"fedavg": 5, "fedprox": 5}
"""The methods that are known for their local steps, and how many they take if not told."""
COMMON_BATCH = 50
"""The rows of the batch that parties with columns draw together, unless it is set."""


@dataclass(frozen=True, config=MODEL)
class AlgorithmSettings:
    """The training method and its step sizes."""

    name: MethodName = key(
        "The method. ssca handles problems with and without constraints. fedsgd, fedavg, fedprox, "
        "sgd and momentum know no constraints; penalty, primal-dual, augmented and switching are "
        "for comparison and need some. fedavg is sgd with local_steps = 5 unless set otherwise, "
        "fedprox the same with the proximal term mu, fedsgd is sgd with one step per round.",
        default="ssca",
        basic=True,
    )
    batch: Whole = key(
        "The number of rows B that a client draws per round. Parties with columns draw one common "
        f"batch, of {COMMON_BATCH} rows unless it is set.",
        default=10,
        ge=1,
        basic=True,
    )
    local_steps: Whole = key(
        "The number of steps E of batch B that a client takes per round. More than one step is "
        "possible with ssca (with constraints: steered multipliers), fedavg, fedprox, sgd and "
        "momentum. Unless it is set, fedavg and fedprox take 5.",
        default=1,
        ge=1,
    )
    cohort: Whole = key(
        "The number of clients asked per round, drawn anew each time; 0 asks all of them.",
        default=0,
        ge=0,
    )
    dropout: Real = key(
        "The probability that a client that is asked does not answer.", default=0.0, ge=0, lt=1
    )
    rounds: WholeOrAuto = key(
        "The number of rounds T, or auto. A run does T - 1 updates. With auto it trains until it "
        "has converged, for at most max_rounds rounds.",
        default=1000,
        basic=True,
    )
    max_rounds: Whole = key(
        'The largest number of rounds of a run with rounds = "auto".', default=10_000, ge=1
    )
    rho: Annotated[StepSettings, step(most=1)] | None = key(
        "The step size of the running averages, as a number or as a table such as "
        "{a = 0.9, alpha = 0.1}.",
        default=None,
        unset=CALIBRATED,
    )
    gamma: Annotated[StepSettings, step(most=1)] | None = key(
        "The step size of the iterates, written like rho.", default=None, unset=CALIBRATED
    )
    tau: OneOrMore | None = key(
        "The curvature of the surrogates: one number, or one for the objective and one for each "
        "constraint.",
        default=None,
        unset=CALIBRATED,
    )
    opening: list[Positive] | None = key(
        "The first multipliers, one for each constraint.", default=None, unset=CALIBRATED
    )
    balance: list[Positive] | None = key(
        "The ratios |grad F_0| / |grad F_m| at the start, one for each constraint.",
        default=None,
        unset=CALIBRATED,
    )
    probes: Whole = key(
        "The number of messages per client that the calibration used. A run fills it in.",
        default=0,
        ge=0,
    )
    multipliers: RuleName | None = key(
        "How the multipliers are found. corrected solves the surrogate problem of each round, "
        "corrected by what earlier steps achieved, and is the default. steered moves them by the "
        "measured constraint values; it is used with local_steps > 1 and with the surrogate "
        "diagonal. exact is the rule of the paper; it is used without constraints if rho, gamma "
        "and tau are given.",
        default=None,
        unset="chosen by the run",
    )
    surrogate: Literal["first-order", "exact", "diagonal"] = key(
        "The convex model of the objective and constraints. first-order linearises all terms, "
        "exact keeps l2 |w|^2 as it is, diagonal adds estimated curvature.",
        default="first-order",
    )
    rate: Annotated[StepSettings, step(RATE)] = key(
        "The learning rate of all methods but ssca, written like rho.",
        default=RATE,
    )
    momentum: Real = key(
        "The momentum of the method momentum and of the methods for comparison.",
        default=0.1,
        ge=0,
        lt=1,
    )
    mu: Real = key(
        "The weight mu of the proximal term mu/2 |w - w(t)|^2, which keeps the local steps of "
        "fedprox near the server's model w(t).",
        default=0.01,
        ge=0,
    )
    dual_rate: Annotated[StepSettings, step(DUAL_RATE)] = key(
        "The step size of the multipliers of primal-dual and augmented, written like rho.",
        default=DUAL_RATE,
    )
    initial: Real = key(
        "The first value of the multipliers of primal-dual and augmented.", default=0.0, ge=0
    )
    tolerance: Real = key(
        "The violation up to which switching still lowers the objective.", default=0.0
    )

    @model_validator(mode="before")
    @classmethod
    def _several_steps(cls, given: Any) -> Any:
        """Methods that are known for their local steps take several unless told otherwise."""
        called = isinstance(given, ArgsKwargs)
        keys = (given.kwargs or {}) if called else given
        name = keys.get("name") if isinstance(keys, Mapping) else None
        if not isinstance(name, str) or name not in SEVERAL_STEPS or "local_steps" in keys:
            return given
        more = {**keys, "local_steps": SEVERAL_STEPS[name]}
        return ArgsKwargs(given.args, more) if called else more

    @model_validator(mode="after")
    def _one_step_of_fedsgd(self) -> AlgorithmSettings:
        """FedSGD is the method with one step per round."""
        if self.name == "fedsgd" and self.local_steps > 1:
            raise invalid(
                "fedsgd takes one step per round: use fedavg, or leave local_steps out",
                "local_steps",
                self.local_steps,
            )
        return self

    @property
    def most_rounds(self) -> int:
        """The number of rounds; with "auto" the largest that it can be."""
        return self.rounds if isinstance(self.rounds, int) else self.max_rounds


@dataclass(frozen=True, config=MODEL)
class RunSettings:
    """Seed, precision, and how often the run is evaluated and saved."""

    purpose: str = key(
        "What the model is for, in a sentence or two. The model card (fedssca report --card) "
        "quotes it.",
        default="",
    )
    seed: Whole = key(
        "The seed. The same seed gives the same result bit for bit.", default=0, ge=0, basic=True
    )
    evaluate_every: Whole = key(
        "The number of rounds between evaluations on all data. Each writes one row of "
        "metrics.jsonl, and feasibility is decided there.",
        default=10,
        ge=1,
    )
    checkpoint_every: Whole = key(
        "The number of rounds between checkpoints, from which a stopped run continues; 0 means no "
        "checkpoints.",
        default=100,
        ge=0,
    )
    precision: Literal["float32", "float64"] = key("The number format.", default="float32")
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
        default=0,
        ge=0,
    )
    timeout: Positive = key(
        "The time in seconds within which a site must answer. A site that does not is dropped.",
        default=60.0,
    )
    deadline: Real = key(
        "The time in seconds after which a training round goes on without the sites that have not "
        "answered, once enough have: min_sites or, of a hidden sum, its threshold. A late site "
        "stays a member until it has not answered for `timeout` seconds; 0 waits for all.",
        default=0.0,
        ge=0,
    )
    robust: Literal["none", "trimmed-mean", "median", "norm-bound"] = key(
        "How plain sums bound what a site that lies with well-formed numbers can do: leave out "
        "the extremes of every entry, take medians, or shorten long messages.",
        default="none",
    )
    align: Flag = key(
        "Parties with columns whose row ids differ find the rows that all of them have. If false, "
        "such a run is refused.",
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
        if misfit := self._misfit_of_sites():
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
        named = [self.model.name, *(entry.kind for entry in self.problem.constraint)]
        return [name for name in named if ":" in name]

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
        if chosen.name in FIXED_RATE and chosen.rate.cool:
            return "a rate that falls to 0 over the last rounds depends on their number"
        return ""
