"""The section `[algorithm]` of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Tag, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from fedssca.run.schema.types import (
    MODEL,
    FunctionName,
    OneOrMore,
    Positive,
    Real,
    StepSettings,
    Whole,
    WholeOrAuto,
    invalid,
    key,
    named_or_own,
    step,
)

__all__ = ["COMMON_BATCH", "FIXED_RATE", "AlgorithmSettings", "MethodName", "RuleName"]

CALIBRATED = "calibrated"
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
NamedOrOwn: TypeAlias = Annotated[
    Annotated[MethodName, Tag("<known>")] | Annotated[FunctionName, Tag("<own>")],
    Discriminator(named_or_own),
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

    name: NamedOrOwn = key(
        "The method. ssca handles problems with and without constraints. fedsgd, fedavg, fedprox, "
        "sgd and momentum know no constraints; penalty, primal-dual, augmented and switching are "
        "for comparison and need some. fedavg is sgd with local_steps = 5 unless set otherwise, "
        "fedprox the same with the proximal term mu, fedsgd is sgd with one step per round. A "
        "method of yours is a function in an installed package, package.module:function.",
        title="Method",
        default="ssca",
        basic=True,
    )
    batch: Whole = key(
        "The number of rows B that a client draws per round. Parties with columns draw one common "
        f"batch, of {COMMON_BATCH} rows unless it is set.",
        title="Batch size per client",
        default=10,
        ge=1,
        basic=True,
    )
    local_steps: Whole = key(
        "The number of steps E of batch B that a client takes per round. More than one step is "
        "possible with ssca (with constraints: steered multipliers), fedavg, fedprox, sgd and "
        "momentum. Unless it is set, fedavg and fedprox take 5.",
        title="Local steps per round",
        default=1,
        ge=1,
    )
    bits: Whole = key(
        "The number of bits of each number that a client sends after the first round: 32, 16 or "
        "8. With 16 or 8 bits numbers are rounded at random, and the server sends the change of "
        "the model in half as many bits. This is for clients that hold rows, and for runs without "
        "noise.",
        default=32,
        ge=8,
        le=32,
    )
    cohort: Whole = key(
        "The number of clients asked per round, drawn anew each time; 0 asks all of them.",
        title="Clients asked per round",
        default=0,
        ge=0,
    )
    dropout: Real = key(
        "The probability that a client that is asked does not answer.",
        title="Probability of no answer",
        default=0.0,
        ge=0,
        lt=1,
    )
    staleness: Whole = key(
        "With a number A above 0 a round does not wait for slow clients: it ends as soon as the "
        "part `enough` of the clients has answered. A message that comes later counts from then "
        "on, as long as it is the client's last and at most A rounds old. 0 waits for all.",
        title="Oldest messages that count, in rounds",
        default=0,
        ge=0,
    )
    enough: Real = key(
        "The part of the clients whose answers a round waits for, with staleness.",
        title="Part of the clients that ends a round",
        default=0.75,
        gt=0,
        le=1,
    )
    delays: list[Positive] | None = key(
        "In a simulation with staleness: the time that each client takes for a message, in any "
        "unit. Rows of metrics.jsonl have the time that has passed as `clock`.",
        title="Simulated time per message of each client",
        default=None,
        unset="all take the same time",
    )
    rounds: WholeOrAuto = key(
        "The number of rounds T, or auto. A run does T - 1 updates. With auto it trains until it "
        "has converged, for at most max_rounds rounds.",
        default=1000,
        basic=True,
    )
    max_rounds: Whole = key(
        'The largest number of rounds of a run with rounds = "auto".',
        title="Most rounds",
        default=10_000,
        ge=1,
    )
    rho: Annotated[StepSettings, step(most=1)] | None = key(
        "The step size of the running averages, as a number or as a table such as "
        "{a = 0.9, alpha = 0.1}.",
        title="Step size of averages (ρ)",
        default=None,
        unset=CALIBRATED,
    )
    gamma: Annotated[StepSettings, step(most=1)] | None = key(
        "The step size of the iterates, written like rho.",
        title="Step size of iterates (γ)",
        default=None,
        unset=CALIBRATED,
    )
    tau: OneOrMore | None = key(
        "The curvature of the surrogates: one number, or one for the objective and one for each "
        "constraint.",
        title="Curvature of surrogates (τ)",
        default=None,
        unset=CALIBRATED,
    )
    opening: list[Positive] | None = key(
        "The first multipliers, one for each constraint.",
        title="First multipliers",
        default=None,
        unset=CALIBRATED,
    )
    balance: list[Positive] | None = key(
        "The ratios |grad F_0| / |grad F_m| at the start, one for each constraint.",
        title="Gradient ratios at the start",
        default=None,
        unset=CALIBRATED,
    )
    probes: Whole = key(
        "The number of messages per client that the calibration used. A run fills it in.",
        title="Messages used for calibration",
        default=0,
        ge=0,
    )
    multipliers: RuleName | None = key(
        "How the multipliers are found. corrected solves the surrogate problem of each round, "
        "corrected by what earlier steps achieved, and is the default. steered moves them by the "
        "measured constraint values; it is used with local_steps > 1 and with the surrogate "
        "diagonal. exact is the rule of the paper; it is used without constraints if rho, gamma "
        "and tau are given.",
        title="Rule for multipliers",
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
        title="Learning rate",
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
        title="Proximal weight (μ)",
        default=0.01,
        ge=0,
    )
    dual_rate: Annotated[StepSettings, step(DUAL_RATE)] = key(
        "The step size of the multipliers of primal-dual and augmented, written like rho.",
        title="Step size of multipliers",
        default=DUAL_RATE,
    )
    initial: Real = key(
        "The first value of the multipliers of primal-dual and augmented.",
        title="First value of multipliers",
        default=0.0,
        ge=0,
    )
    tolerance: Real = key(
        "The violation up to which switching still lowers the objective.",
        title="Tolerated violation",
        default=0.0,
    )
    options: dict[str, Any] | None = key(
        "What your own function takes beside the problem, batch, steps and rate.",
        title="Options of your function",
        default=None,
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
    def _keys_of_the_method(self) -> AlgorithmSettings:
        """FedSGD is the method with one step per round; only methods of users have options."""
        if self.options is not None and not self.own:
            raise invalid("options are for a function of yours in algorithm.name", "options")
        if self.bits not in (8, 16, 32):
            raise invalid("it must be 32, 16 or 8", "bits", self.bits)
        if self.name == "fedsgd" and self.local_steps > 1:
            raise invalid(
                "fedsgd takes one step per round: use fedavg, or leave local_steps out",
                "local_steps",
                self.local_steps,
            )
        return self

    @property
    def own(self) -> bool:
        """Whether the name is that of a function of the user."""
        return ":" in self.name

    @property
    def most_rounds(self) -> int:
        """The number of rounds; with "auto" the largest that it can be."""
        return self.rounds if isinstance(self.rounds, int) else self.max_rounds
