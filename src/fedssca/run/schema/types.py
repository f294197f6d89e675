"""The types of configuration values, as they are written in TOML.

A whole number is accepted where a number is expected; true and false are never numbers; NaN and
infinities are refused. A step size may be one number or a table.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AllowInfNan,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

__all__ = [
    "AUTO",
    "LARGEST",
    "MODEL",
    "Bins",
    "ClassName",
    "ClassWeightTable",
    "Flag",
    "FunctionName",
    "NamesOrNumber",
    "OneOrMore",
    "Positive",
    "Real",
    "StepSettings",
    "TextOrTexts",
    "Whole",
    "WholeOrAuto",
    "WholeOrWholes",
    "Widths",
    "invalid",
    "is_number",
    "key",
    "named_or_own",
    "step",
]

MODEL = ConfigDict(extra="forbid")
LARGEST = 2**31 - 1
"""The largest whole number that a configuration may hold."""
AUTO: Literal["auto"] = "auto"
"""In the place of a number that the run finds itself."""

Real: TypeAlias = Annotated[float, Strict(), AllowInfNan(False)]
Positive: TypeAlias = Annotated[float, Strict(), AllowInfNan(False), Field(gt=0)]
Whole: TypeAlias = Annotated[int, Strict(), Field(le=LARGEST)]
Flag: TypeAlias = Annotated[bool, Strict()]


def _shape(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


OneOrMore: TypeAlias = Annotated[
    Annotated[Positive, Tag("<number>")]
    | Annotated[list[Positive], Tag("<list>"), Field(min_length=1)],
    Discriminator(_shape),
]
"""A positive number, or a list of them."""


def _kind(value: Any) -> str:
    return (
        "<flag>" if isinstance(value, bool) else "<number>" if isinstance(value, int) else "<text>"
    )


ClassName: TypeAlias = Annotated[
    Annotated[str, Strict(), Tag("<text>")]
    | Annotated[int, Strict(), Field(le=LARGEST), Tag("<number>")]
    | Annotated[bool, Strict(), Tag("<flag>")],
    Discriminator(_kind),
]
"""A value of the label: text, a whole number, true or false."""

Bins: TypeAlias = Annotated[
    Annotated[list[Real], Tag("<list>"), Field(min_length=1)]
    | Annotated[dict[str, Annotated[list[Real], Field(min_length=1)]], Tag("<table>")],
    Discriminator(lambda value: "<table>" if isinstance(value, Mapping) else "<list>"),
]
"""Numbers that increase, or a table with such a list for each column."""

ClassWeightTable: TypeAlias = Annotated[
    Annotated[Literal["balanced"], Tag("<word>")]
    | Annotated[dict[str, Annotated[Real, Field(ge=0)]], Tag("<table>"), Field(min_length=1)],
    Discriminator(lambda value: "<table>" if isinstance(value, Mapping) else "<word>"),
]
"""The word balanced, or a number of 0 or more for each class."""

TextOrTexts: TypeAlias = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[str], Tag("<list>"), Field(min_length=1)],
    Discriminator(lambda value: "<list>" if isinstance(value, list | tuple) else "<text>"),
]
"""Text, or a list of texts."""

Units: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=LARGEST)]
"""The width of a layer."""

WholeOrWholes: TypeAlias = Annotated[
    Annotated[Units, Tag("<number>")] | Annotated[list[Units], Tag("<list>")],
    Discriminator(_shape),
]
"""A whole number from 1 on, or a list of them."""

FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _function_name(name: str) -> str:
    if not FUNCTION.fullmatch(name):
        raise invalid('a function of yours is named "package.module:function"', "", name)
    return name


FunctionName: TypeAlias = Annotated[
    str,
    AfterValidator(_function_name),
    WithJsonSchema({"type": "string", "pattern": f"^{FUNCTION.pattern}$"}),
]
"""A function in an installed package, "package.module:function"."""


def named_or_own(value: Any) -> str:
    """The tag of a name: that of a function of the user has a colon."""
    return "<own>" if isinstance(value, str) and ":" in value else "<known>"


Widths: TypeAlias = Annotated[
    Annotated[list[Units], Tag("<list>")]
    | Annotated[list[Annotated[list[Units], Field(min_length=1)]], Tag("<lists>")],
    Discriminator(
        lambda value: "<lists>" if value and any(isinstance(v, list) for v in value) else "<list>"
    ),
]
"""A list of whole numbers from 1 on, or a list of such lists."""

NamesOrNumber: TypeAlias = Annotated[
    Annotated[Units, Tag("<number>")]
    | Annotated[list[Annotated[list[str], Field(min_length=1)]], Tag("<list>")],
    Discriminator(_shape),
]
"""A whole number from 1 on, or a list with lists of names."""

WholeOrAuto: TypeAlias = Annotated[
    Annotated[int, Strict(), Field(ge=1, le=LARGEST), Tag("<number>")]
    | Annotated[Literal["auto"], Tag("<word>")],
    Discriminator(lambda value: "<word>" if isinstance(value, str) else "<number>"),
]
"""A whole number from 1 on, or "auto"."""


def key(
    help: str,
    *,
    default: Any,
    title: str = "",
    basic: bool = False,
    unset: str = "",
    unless: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """A key with a default; `...` as the default means that the key must be given.

    `help` is shown in the documentation; the web form shows its first sentence. `title` is the
    label in the form. `basic` keys are visible at once in the form. `unset` says what happens while
    a key without a value (None) has none. The key is not read while one of the keys `unless` of the
    same table is given. `settings` are the bounds ge, gt, le and lt.
    """
    if isinstance(default, list):
        given: dict[str, Any] = {"default_factory": lambda: list(default)}
    else:
        given = {"default": default}
    extra: Any = {"basic": basic, "unset": unset, "unless": list(unless)}
    return Field(
        **given, title=title or None, description=help, json_schema_extra=extra, **settings
    )


def is_number(value: Any) -> bool:
    """Whether TOML would call this a number: true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def invalid(words: str, key: str = "", value: Any = None) -> PydanticCustomError:
    """An error found by a validator, at `key` inside the table that is being checked.

    With a `value` the line reads "<full key> = <value>: <words>", without one just `words`.
    """
    return PydanticCustomError("invalid", "{words}", {"words": words, "key": key, "value": value})


@dataclass(frozen=True, config=MODEL)
class StepSettings:
    """A step size a / t^alpha in round t, with an optional start and end of another shape."""

    a: Positive = Field(description="The step size in round 1.")
    alpha: Real = key("How fast the step size falls: 0 keeps it constant.", default=0.0, ge=0)
    warm: Flag = key("The step size in round t is at least 1/t.", default=False)
    rise: Whole = key(
        "The step size grows linearly over this many rounds at the start.", default=0, ge=0
    )
    cool: Real = key(
        "The step size falls to 0 over this share of the rounds, at the end.",
        default=0.0,
        ge=0,
        le=1,
    )


def step(default: StepSettings | None = None, most: float | None = None) -> WrapValidator:
    """Read a step size from a number a, or from a table that may leave out what `default` has."""

    def read(value: Any, handler: Callable[[Any], StepSettings]) -> StepSettings:
        if is_number(value):
            value = {"a": value}
        elif isinstance(value, Mapping) and default is not None:
            value = dataclasses.asdict(default) | dict(value)
        made = handler(value)
        if most is not None and made.a > most:
            raise invalid(f"it must lie in (0, {most:g}]", "a", made.a)
        return made

    number: Any = Positive if most is None else Annotated[Positive, Field(le=most)]
    return WrapValidator(read, json_schema_input_type=number | StepSettings)
