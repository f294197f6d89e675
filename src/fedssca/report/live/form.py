"""The fields of a run for a web form, made from the schema, and the way back from what was typed.

Values travel as the text that people type, "section.key" -> text. They are checked by the schema,
as a TOML file is, and every error is shown at its field.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

import tomli_w
from pydantic.fields import FieldInfo

from fedssca.problem.constraint_kinds import KINDS
from fedssca.run.schema import Config, ConstraintSettings, StepSettings
from fedssca.run.schema.validate import (
    choices_of,
    keys_of,
    plain_types,
    problems,
    table_of,
    words_of,
)

__all__ = ["TAKES", "Filled", "as_toml", "field_of", "fields", "fill", "from_toml", "values_of"]

Tree = dict[str, Any]
LIMITS = "problem.constraint"
REFERENCE = re.compile(r", see \[[^\]]+\]\([^)]*\)")
"""A reference to another page of the documentation, which the form leaves out."""
TAKES = {name: list(kind.options) for name, kind in KINDS.items()}
"""The keys that a kind of limit has beside kind and limit."""


class Filled(NamedTuple):
    """The keys that a form sets, as a tree, and what is wrong at which field."""

    tree: Tree
    errors: dict[str, str]


def fields() -> list[Tree]:
    """All sections with their fields, without `deploy`: the page starts runs on this machine."""
    sections = [
        _section(name, table_of(field.annotation), f"{name}.")
        for name, field in keys_of(Config).items()
        if name != "deploy"
    ]
    return [*sections, _section(LIMITS, ConstraintSettings, "")]


def fill(values: Mapping[str, Any], limits: Any = ()) -> Filled:
    """The tree of a form's values and its list of limits; empty fields are left out."""
    tree: Tree = {}
    unknown: dict[str, str] = {}
    for key, text in values.items():
        section, _, name = key.partition(".")
        field = _keys_in(section).get(name)
        if field is None or key == LIMITS:
            unknown[key] = f"there is no setting {key!r}"
        elif text not in ("", None):
            tree.setdefault(section, {})[name] = read_value(text, field)
    if made := [_limit(entry) for entry in limits] if isinstance(limits, list) else []:
        tree.setdefault("problem", {})["constraint"] = made
    return Filled(tree, unknown | _errors(tree))


def from_toml(text: str) -> Filled:
    """The same from a TOML text; an error that belongs to no field has the name "toml"."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Filled({}, {"toml": f"this is not valid TOML: {error}; correct that line"})
    errors = _errors(tree)
    return Filled({} if errors else tree, errors)


def values_of(tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[Tree]]:
    """A tree as a form's values: "section.key" -> text or true/false, and its limits."""
    values = {
        f"{section}.{name}": _typed(value)
        for section, keys in tree.items()
        if isinstance(keys, Mapping)
        for name, value in keys.items()
        if f"{section}.{name}" != LIMITS
    }
    limits = tree.get("problem", {}).get("constraint", [])
    return values, [{k: _typed(v) for k, v in entry.items()} for entry in limits]


def as_toml(tree: Tree) -> str:
    """The TOML of the keys that were set."""
    return tomli_w.dumps(tree)


def field_of(key: str) -> str:
    """The form field at which an error about this key is shown; "toml" if there is none."""
    parts = key.split(".")
    if key.startswith(f"{LIMITS}."):
        return ".".join([*parts[:3], *(parts[3:4] or ["limit"])])
    field = ".".join(parts[:2])
    return field if parts[1:2] and parts[1] in _keys_in(parts[0]) else "toml"


def read_value(text: Any, field: FieldInfo) -> Any:
    """What was typed as a value of TOML: strings need no quotes, lists no brackets."""
    kind = _kind(field)
    if kind == "text" and isinstance(text, str) and "," in text:
        several = [part.strip() for part in text.split(",") if part.strip()]
        return several if list in plain_types(field.annotation) else text
    if not isinstance(text, str) or kind in ("text", "choice", "suggestions"):
        return text
    text = text.strip()
    listed = kind == "list" or (kind == "numbers" and "," in text)
    if listed and text[:1] not in "[{":
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return parts if field.annotation == list[str] else [_toml(part) for part in parts]
    value = _toml(text)
    return text if kind == "name" and not isinstance(value, bool | int | str) else value


def _errors(tree: Tree) -> dict[str, str]:
    return {field_of(key): line for key, line in problems(Config, tree).items()}


def _limit(entry: Any) -> Tree:
    known = keys_of(ConstraintSettings)
    given = entry if isinstance(entry, dict) else {}
    return {
        k: read_value(v, known[k]) for k, v in given.items() if k in known and v not in ("", None)
    }


def _keys_in(section: str) -> dict[str, FieldInfo]:
    found = keys_of(Config).get(section)
    return keys_of(table_of(found.annotation)) if found else {}


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _section(name: str, kind: Any, prefix: str) -> Tree:
    made = [
        _field(prefix + key, key, field)
        for key, field in keys_of(kind).items()
        if table_of(field.annotation) is not ConstraintSettings
    ]
    about = REFERENCE.sub("", kind.__doc__.strip().rstrip("."))
    return {"name": name, "about": about, "fields": made}


def _field(key: str, name: str, field: FieldInfo) -> Tree:
    extra: Any = field.json_schema_extra
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return {
        "key": key,
        "name": name,
        "label": field.title or name.replace("_", " ").capitalize(),
        "kind": _kind(field),
        "choices": list(choices_of(field)),
        "default": "" if default is None else _typed(default),
        "placeholder": extra["unset"],
        "help": _first_sentence(field.description or ""),
        "basic": extra["basic"],
        "unless": [f"{key.removesuffix(name)}{other}" for other in extra["unless"]],
    }


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".").replace("`", "")


def _kind(field: FieldInfo) -> str:
    """Which kind of input a key needs."""
    if choices_of(field):
        return "suggestions" if str in plain_types(field.annotation) else "choice"
    if table_of(field.annotation) is StepSettings:
        return "step"
    if words_of(field):
        return "number or word"
    plain = plain_types(field.annotation)
    if plain == {str, list}:
        return "text"
    if list in plain:
        return "list" if plain <= {list, dict} else "numbers"
    if len(plain) > 1:
        return "name"
    (only,) = plain
    return {bool: "bool", int: "int", float: "float", str: "text", dict: "list"}[only]


def _typed(value: Any) -> Any:
    """A value as people type it."""
    if isinstance(value, bool | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return ", ".join(v if isinstance(v, str) else _inline(v) for v in value)
    return _inline(value)


def _inline(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
