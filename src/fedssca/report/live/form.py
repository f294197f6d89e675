"""The fields of a run for a form: types and defaults from the schema, errors at their field.

Values travel as what people type, "section.key" -> text; the same checks as for a TOML file say
what is wrong with them, each field by itself, so that all errors are seen at once.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import tomli_w

from fedssca.data import NAMES
from fedssca.errors import UserError
from fedssca.problem.constraints import from_config
from fedssca.problem.models import ACTIVATIONS
from fedssca.report.live.words import BASIC, HELP
from fedssca.run.build import RUNTIMES, check_names
from fedssca.run.config import Config, Constraint, Step, from_tree, nearest, parse

__all__ = ["Filled", "fields", "fill", "from_toml", "place_of", "values_of"]

Tree = dict[str, Any]
LIMITS = "problem.constraint"
KINDS = (
    "loss",
    "fnr",
    "fpr",
    "recall",
    "precision",
    "parity",
    "opportunity",
    "client_loss",
    "client_loss_gap",
)
RATE, GROUP = ("positive", "sharpness"), ("column", "positive", "sharpness")
TAKES = dict.fromkeys(("fnr", "fpr", "recall", "precision"), RATE) | dict.fromkeys(
    ("parity", "opportunity"), GROUP
)
"""Keys that a kind of limit has beside kind and limit."""
CHOICES: dict[str, tuple[str, ...]] = {
    "data.name": NAMES,
    "data.split": ("sample", "feature"),
    "data.partition": ("iid", "contiguous", "dirichlet", "classes"),
    "data.collection": ("exchange", "open"),
    "model.name": ("mlp", "linear"),
    "model.activation": tuple(sorted(ACTIVATIONS)),
    "problem.objective": ("loss", "norm"),
    "algorithm.name": (
        "ssca",
        "sgd",
        "momentum",
        "penalty",
        "primal-dual",
        "augmented",
        "switching",
    ),
    "algorithm.multipliers": ("steered", "exact"),
    "algorithm.surrogate": ("first-order", "exact", "diagonal"),
    "privacy.unit": ("sample", "client"),
    "run.precision": ("float32", "float64"),
    "run.runtime": tuple(RUNTIMES),
    "kind": KINDS,
}


class Filled(NamedTuple):
    """What a form says: a tree of the given keys, and what is wrong at which field."""

    tree: Tree
    errors: dict[str, str]


def fields() -> list[Tree]:
    """All sections with their fields for a page; `deploy` is for several machines."""
    hints = get_type_hints(Config)
    sections = [
        {
            "name": section,
            "about": (kind.__doc__ or "").split(";")[0].strip().rstrip("."),
            "fields": [
                _field(f"{section}.{f.name}", f.name, hint, _default(f))
                for f in dataclasses.fields(kind)
                if (hint := get_type_hints(kind)[f.name]) != list[Constraint]
            ],
        }
        for section, kind in hints.items()
        if section != "deploy"
    ]
    own = get_type_hints(Constraint)
    limit = [_field(f.name, f.name, own[f.name], None) for f in dataclasses.fields(Constraint)]
    return [*sections, {"name": LIMITS, "about": "One limit", "fields": limit}]


def fill(values: Mapping[str, Any]) -> Filled:
    """The tree of a form's values; empty ones are left out. Errors under the fields' names."""
    tree: Tree = {}
    errors: dict[str, str] = {}
    hints = get_type_hints(Config)
    for key, text in values.items():
        section, _, name = key.partition(".")
        known = get_type_hints(hints[section]) if section in hints else {}
        if name not in known or key == LIMITS:
            errors[key] = f"there is no setting {key!r}"
        elif text not in ("", None):
            value = read_value(text, known[name])
            tree.setdefault(section, {})[name] = value
            if (wrong := _wrong(key, {section: {name: value}})) is not None:
                errors[key] = wrong
    return Filled(tree, errors)


def fill_limits(entries: Any) -> Filled:
    """The constraints of a form: a list of {kind, limit, ...}."""
    out: list[Tree] = []
    errors: dict[str, str] = {}
    hints = get_type_hints(Constraint)
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        where = f"{LIMITS}.{number}"
        said = entry if isinstance(entry, dict) else {}
        given = {k: v for k, v in said.items() if v not in ("", None)}
        table = {k: read_value(v, hints[k]) for k, v in given.items() if k in hints}
        out.append(table)
        try:
            _try_limit(table)
        except UserError as error:
            place = place_of(str(error).replace(f"{LIMITS}.0", where)) or f"{where}.limit"
            errors[place] = _shortened(str(error), f"{LIMITS}.0.")
    return Filled({"problem": {"constraint": out}} if out else {}, errors)


def _try_limit(table: Tree) -> None:
    """A limit on made-up rows: all that can be said of it before the data are read."""
    if "kind" in table:
        _choose("kind", table["kind"])
    if "limit" not in table:
        raise UserError(f"{LIMITS}.0.limit = : give the limit, a number")
    (entry,) = from_tree({"problem": {"constraint": [table]}}).problem.constraint
    first = entry.positive if entry.positive is not None else 1
    labels, groups = np.array([first, first, first + 1, first + 1]), np.array([0, 1, 0, 1])
    made_up = {"y": labels, entry.column or "group": groups}
    options = {"positive": entry.positive, "column": entry.column, "sharpness": entry.sharpness}
    try:
        from_config(entry.kind, entry.limit, options, made_up, 2**31, (1, 1))
    except UserError as error:
        what = re.search(r"\b(limit|column|positive|sharpness)\b", str(error))
        raise UserError(f"{LIMITS}.0.{what[0] if what else 'kind'} = : {error}") from error


def from_toml(text: str) -> Filled:
    """The same from a TOML text; what is wrong with it as a whole is the error of "toml"."""
    try:
        tree = tomllib.loads(text)
        check_names(parse(text))
    except (tomllib.TOMLDecodeError, UserError) as error:
        return Filled({}, {place_of(str(error)) or "toml": str(error)})
    return Filled(tree, {})


def values_of(tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[Tree]]:
    """A tree as a form's values: "section.key" -> text or true/false, and its constraints."""
    values = {
        f"{section}.{name}": _typed(value)
        for section, keys in tree.items()
        if isinstance(keys, Mapping)
        for name, value in keys.items()
        if name != "constraint"
    }
    limits = tree.get("problem", {}).get("constraint", [])
    return values, [{k: _typed(v) for k, v in entry.items()} for entry in limits]


def as_toml(tree: Tree) -> str:
    """The TOML of what was given."""
    return tomli_w.dumps(tree)


def read_value(text: Any, hint: Any) -> Any:
    """What was typed as a value of TOML: strings need no quotes, lists no brackets."""
    if not isinstance(text, str) or hint is str or hint == str | None:
        return text
    text = text.strip()
    several = "," in text and any(get_origin(part) is list for part in get_args(hint))
    if (_kind(hint) == "list" or several) and text[:1] not in "[{":
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return parts if hint == list[str] else [_toml(part) for part in parts]
    return _toml(text)


def place_of(message: str) -> str | None:
    """The field that an error line is about: lines begin with "section.key = value"."""
    if found := re.match(r"([a-z]+(?:\.\w+)+) = ", message):
        return found[1]
    found = re.match(r"(\w+) = ", message)
    owners = [s for s, kind in get_type_hints(Config).items() if found and hasattr(kind, found[1])]
    return f"{owners[0]}.{found[1]}" if found and len(owners) == 1 else None


def _wrong(key: str, tree: Tree) -> str | None:
    section, name = key.split(".")
    try:
        _choose(key, tree[section][name])
        check_names(from_tree(tree))
    except UserError as error:
        return _shortened(str(error), f"{section}.")
    return None


def _choose(key: str, value: Any) -> None:
    if key in CHOICES and value not in CHOICES[key]:
        raise UserError(f"{value!r} is unknown: {nearest(str(value), CHOICES[key])}")


def _shortened(message: str, prefix: str) -> str:
    """Without the place: the message stands at it."""
    return re.sub(r"^\w+ = : ", "", message.removeprefix(prefix))


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _field(key: str, name: str, hint: Any, default: Any) -> Tree:
    return {
        "key": key,
        "label": name.replace("_", " "),
        "kind": "choice" if key in CHOICES else _kind(hint),
        "choices": list(CHOICES.get(key, ())),
        "default": _typed(default) if default is not None else "",
        "help": HELP.get(key, ""),
        "basic": key in BASIC,
    }


def _kind(hint: Any) -> str:
    """Which kind of field a type needs."""
    if isinstance(hint, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        return "text" if len(parts) > 1 else _kind(parts[0])
    if get_origin(hint) is list:
        return "list"
    return {bool: "bool", int: "int", float: "float", str: "text", Step: "step"}[hint]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


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
