"""From a TOML tree to settings: every error becomes one line that names its key."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from fedssca.errors import ConfigError, nearest
from fedssca.run.schema.types import LARGEST

__all__ = [
    "Bounds",
    "bounds_of",
    "choices_of",
    "default_of",
    "keys_of",
    "plain_types",
    "problems",
    "table_of",
    "validate",
    "words_of",
]

Settings = TypeVar("Settings")
Path = tuple[str | int, ...]

EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "list_type": "a list",
    "too_short": "a list with at least one entry",
}


def validate(kind: type[Settings], tree: Mapping[str, Any], source: str = "") -> Settings:
    """`tree` as settings of the class `kind`, or the first ConfigError; `source` names the file."""
    try:
        return TypeAdapter(kind).validate_python(tree)
    except ValidationError as error:
        key, line = _lines(kind, error)[0]
    raise ConfigError(key, f"{source}: {line}" if source else line)


def problems(kind: type[Any], tree: Mapping[str, Any]) -> dict[str, str]:
    """All that is wrong with a tree: key -> line."""
    try:
        TypeAdapter(kind).validate_python(tree)
    except ValidationError as error:
        return dict(reversed(_lines(kind, error)))
    return {}


def keys_of(kind: Any) -> dict[str, FieldInfo]:
    """The keys of a class of settings, in order."""
    return dict(kind.__pydantic_fields__)


def default_of(kind: Any, key: str) -> Any:
    """The default of a key; None if it must be given."""
    return keys_of(kind)[key].get_default(call_default_factory=True)


def table_of(annotation: Any) -> Any:
    """The class of settings inside a type such as `list[Settings] | None`, or None."""
    if dataclasses.is_dataclass(annotation) and hasattr(annotation, "__pydantic_fields__"):
        return annotation
    return next((t for part in get_args(annotation) if (t := table_of(part)) is not None), None)


class Bounds(NamedTuple):
    """The numbers that a key may have."""

    low: float | None = None
    high: float | None = None
    includes_low: bool = True
    includes_high: bool = True

    def words(self) -> str:
        """The bounds as the end of the sentence "it must be ..."; empty if there are none."""
        if self.low is not None and self.high is not None:
            left, right = "[" if self.includes_low else "(", "]" if self.includes_high else ")"
            return f"in {left}{self.low:g}, {self.high:g}{right}"
        if self.low is not None:
            if self.includes_low:
                return f"at least {self.low:g}"
            return "positive" if self.low == 0 else f"greater than {self.low:g}"
        if self.high is not None:
            return f"{'at most' if self.includes_high else 'less than'} {self.high:g}"
        return ""

    def demand(self) -> str:
        """The bounds as a sentence."""
        return f"it must {'be' if None in (self.low, self.high) else 'lie'} {self.words()}"


def bounds_of(field: FieldInfo) -> Bounds:
    """The bounds of a key, or of its entries if it is a list; `LARGEST` is not reported."""
    found = Bounds()
    for mark in (*field.metadata, *_marks(field.annotation)):
        match mark:
            case Ge(ge=float() | int() as low):
                found = found._replace(low=low)
            case Gt(gt=float() | int() as low):
                found = found._replace(low=low, includes_low=False)
            case Le(le=float() | int() as high) if high != LARGEST:
                found = found._replace(high=high)
            case Lt(lt=float() | int() as high):
                found = found._replace(high=high, includes_high=False)
    return found


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """The values to choose from, or nothing; names of functions of the user are not listed."""
    kinds = plain_types(field.annotation)
    if str in kinds and len(kinds) > 1 and all(k is str or isinstance(k, str) for k in kinds):
        found = [_literal(part) for part in _alternatives(field.annotation)]
        return next(each for each in found if each)
    return _literal(field.annotation)


def _alternatives(annotation: Any) -> list[Any]:
    """The parts of a union without their marks, also those of unions inside it."""
    if hasattr(annotation, "__metadata__"):
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [each for part in get_args(annotation) for each in _alternatives(part)]
    return [annotation]


def plain_types(annotation: Any) -> set[Any]:
    """The types that a value may have, None left out; lists and tables are not looked into."""
    origin = get_origin(annotation)
    if origin in (list, dict):
        return {origin}
    if origin is None:
        return {annotation} - {type(None)}
    parts = get_args(annotation)
    parts = parts[:1] if hasattr(annotation, "__metadata__") else parts
    return set().union(*map(plain_types, parts))


def words_of(field: FieldInfo) -> tuple[str, ...]:
    """The words that a key takes in the place of a number, such as "auto"."""
    if choices_of(field):
        return ()
    return tuple(sorted(t for t in plain_types(field.annotation) if isinstance(t, str)))


def _literal(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for part in get_args(annotation) if (found := _literal(part))), ())
    return ()


def _marks(annotation: Any) -> list[Any]:
    """What `Annotated` says about a type or its parts, tables left out."""
    if dataclasses.is_dataclass(annotation):
        return []
    out: list[Any] = []
    for mark in getattr(annotation, "__metadata__", ()):
        out += mark.metadata if isinstance(mark, FieldInfo) else [mark]
    for part in get_args(annotation):
        out += _marks(part)
    return out


def _lines(kind: Any, error: ValidationError) -> list[tuple[str, str]]:
    """One (key, line) for each error; unknown keys first, since they often cause the others."""
    order = {"unexpected_keyword_argument": 0, "missing": 2}
    found = sorted(error.errors(include_url=False), key=lambda each: order.get(each["type"], 1))
    return [_line(kind, dict(each)) for each in found]


def _line(kind: Any, error: dict[str, Any]) -> tuple[str, str]:
    """The key of one error, and the line about it."""
    path: Path = tuple(p for p in error["loc"] if isinstance(p, int) or not p.startswith("<"))
    said, wrong, ctx = error["type"], error["input"], error.get("ctx", {})
    if said == "invalid" and ctx["key"]:
        path = (*path, *ctx["key"].split("."))
    key = ".".join(map(str, path))
    if said == "invalid":
        given = ctx["value"]
        return key, ctx["words"] if given is None else f"{key} = {given!r}: {ctx['words']}"
    owner, name = ".".join(map(str, path[:-1])), str(path[-1]) if path else ""
    table = _table_at(kind, path[:-1])
    if said == "unexpected_keyword_argument":
        place = f"key {name!r} in [{owner}]" if owner else f"section [{name}]"
        if not owner and table_of(next(iter(keys_of(kind).values())).annotation) is None:
            place = f"key {name!r}"
        return key, f"unknown {place}: {_elsewhere(kind, name) or nearest(name, keys_of(table))}"
    if said == "missing":
        return key, f"{owner} lacks {name}: add {name} = ..."
    if said == "dataclass_type":
        keys = ", ".join(keys_of(_table_at(kind, path)))
        return key, f"{key} = {wrong!r}: it must be a table with keys {keys}"
    field = _field_at(kind, path)
    words = "".join(f" or {json.dumps(word)}" for word in words_of(field))
    if said == "literal_error" and words:
        said = "int_type"
    if said == "literal_error":
        known = nearest(str(wrong), choices_of(field), also_all=True)
        return key, f"{key} = {wrong!r} is unknown: {known}"
    if said == "float_type" and isinstance(wrong, int) and not isinstance(wrong, bool):
        said = "finite_number"  # a whole number that no float can hold
    if said == "list_type" and table_of(field.annotation):
        return key, f"{key} = {wrong!r}: it must be a list, each entry under [[{key}]]"
    if said in EXPECTED:
        return key, f"{key} = {wrong!r}: it must be {EXPECTED[said]}{words}"
    if said == "less_than_equal" and ctx["le"] == LARGEST:
        return key, f"{key} = {wrong!r}: it must be less than 2^31"
    return key, f"{key} = {wrong!r}: {bounds_of(field).demand()}"


def _elsewhere(kind: Any, name: str) -> str:
    """Where a name that is no section is a list of tables inside a section; empty if nowhere."""
    for section, field in keys_of(kind).items():
        inner = keys_of(owner) if (owner := table_of(field.annotation)) else {}
        if (
            name in inner
            and table_of(inner[name].annotation)
            and list in plain_types(inner[name].annotation)
        ):
            return f"write it as [[{section}.{name}]]"
    return ""


def _table_at(kind: Any, path: Sequence[str | int]) -> Any:
    """The class of settings at a path; None inside a table whose keys are free."""
    for part in path:
        if isinstance(part, str) and kind is not None:
            kind = table_of(keys_of(kind)[part].annotation)
    return kind


def _field_at(kind: Any, path: Path) -> FieldInfo:
    """The key at a path; numbers are entries of a list, and names in a free table belong to it."""
    names = [part for part in path if isinstance(part, str)]
    while (owner := _table_at(kind, names[:-1])) is None:
        names.pop()
    return keys_of(owner)[names[-1]]
