"""A run as one TOML: sections, keys, defaults, and errors that name the nearest known key."""

from __future__ import annotations

import dataclasses
import difflib
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import tomli_w

from fedssca.errors import UserError

__all__ = ["Config", "from_tree", "parse", "render"]


@dataclass(frozen=True)
class Data:
    """Which rows, and who holds them."""

    name: str = "digits"
    path: str = ""
    dir: str = ""
    label: str = ""
    keep: list[str] = field(default_factory=list)
    test_fraction: float = 0.2
    split: str = "sample"
    clients: int = 10
    partition: str = "iid"
    sizes: list[float] = field(default_factory=list)
    concentration: float = 0.5
    classes_per_client: int = 2
    label_holder: int = -1
    collection: str = "exchange"


@dataclass(frozen=True)
class Model:
    """The network."""

    name: str = "mlp"
    hidden: int = 128
    activation: str = "swish"


@dataclass(frozen=True)
class Constraint:
    """One limit; `column` and `positive`: the sensitive column and the class a rate is about."""

    kind: str
    limit: float
    positive: int | None = None
    column: str | None = None
    sharpness: float | None = None


@dataclass(frozen=True)
class Step:
    """A step size a / t^alpha; `warm`, `rise`, `cool`: see fedssca.methods.schedule.Schedule."""

    a: float
    alpha: float = 0.0
    warm: bool = False
    rise: int = 0
    cool: float = 0.0


@dataclass(frozen=True)
class Problem:
    """Objective and limits."""

    objective: str = "loss"
    l2: float = 1e-5
    penalty: float | list[float] = 1e5
    constraint: list[Constraint] = field(default_factory=list)


@dataclass(frozen=True)
class Algorithm:
    """The method and its step sizes."""

    name: str = "ssca"
    batch: int = 10
    local_steps: int = 1
    cohort: int = 0
    dropout: float = 0.0
    rounds: int = 1000
    rho: Step | None = None
    gamma: Step | None = None
    tau: float | list[float] | None = None
    opening: list[float] | None = None
    probes: int = 0
    multipliers: str = "steered"
    surrogate: str = "first-order"
    rate: Step = Step(0.3, 0.0)
    momentum: float = 0.1
    dual_rate: Step = Step(1.0)
    initial: float = 0.0
    tolerance: float = 0.0


@dataclass(frozen=True)
class Run:
    """Seed, pace of evaluation and checkpoints."""

    seed: int = 0
    evaluate_every: int = 10
    checkpoint_every: int = 100
    precision: str = "float32"
    runtime: str = "fused"


@dataclass(frozen=True)
class Deploy:
    """How sites on other machines are treated; `run` does not look at it."""

    min_sites: int = 0
    """The run goes on while so many sites with rows live; 0: more than half."""
    timeout: float = 60.0
    """Seconds that a site has for an answer."""
    align: bool = True
    """Parties with columns whose ids differ find the rows that all have; false: refused."""


@dataclass(frozen=True)
class Privacy:
    """What the parties hide from the server and from each other; nothing unless asked for."""

    secure_sum: bool = False
    """Masks on all that is added up: the server sees sums, parties with columns the sum of h_i."""
    neighbours: int = 0
    """With how many others a client shares masks; 0: all of few, some of many."""
    threshold: float = 0.0
    """The share of clients that must answer, and of neighbours that must live, for a sum to be
    opened, above 0.5; 0: two thirds (neighbours, where not all are: a majority)."""
    homomorphic: bool = False
    """CKKS in place of masks: the server adds ciphertexts,"""
    key_holder: int = 0
    """and this client, which alone has the key, opens the sum."""
    unit: str = "sample"
    """Whom the noise hides: a "sample" or a whole "client"."""
    clip: float = 0.0
    """The longest gradient (of a unit) that counts; 0: no noise."""
    value_clip: float = 0.0
    """The largest value of a constrained term that counts; 0: the same as clip."""
    noise_multiplier: float = 0.0
    """Standard deviation of the noise over what one unit can change; or, in its place,"""
    epsilon: float = 0.0
    """what the whole run may spend."""
    delta: float = 1e-5


@dataclass(frozen=True)
class Config:
    """One run, complete."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    problem: Problem = field(default_factory=Problem)
    algorithm: Algorithm = field(default_factory=Algorithm)
    privacy: Privacy = field(default_factory=Privacy)
    run: Run = field(default_factory=Run)
    deploy: Deploy = field(default_factory=Deploy)


def parse(text: str, settings: Sequence[str] = (), source: str = "config") -> Config:
    """A Config from a TOML text and `--set` settings such as "algorithm.batch=10"."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not valid TOML: {error}; mend that line") from error
    for setting in settings:
        _assign(tree, setting)
    return from_tree(tree)


def from_tree(tree: Mapping[str, Any]) -> Config:
    """A Config from sections of keys, every one checked."""
    config: Config = _build(Config, tree, "")
    return config


def render(config: Config) -> str:
    """The complete TOML of a Config; [deploy] and [privacy] only where they say something."""
    tree = _given(dataclasses.asdict(config))
    for name, silent in (("deploy", Deploy()), ("privacy", Privacy())):
        if getattr(config, name) == silent:
            del tree[name]
    return tomli_w.dumps(tree)


def _given(tree: Any) -> Any:
    """Without keys that have no value: TOML has no null."""
    if isinstance(tree, dict):
        return {key: _given(value) for key, value in tree.items() if value is not None}
    return [_given(item) for item in tree] if isinstance(tree, list) else tree


def section(kind: Any, text: str, source: str) -> Any:
    """Another file of ours, a TOML text, as the dataclass `kind`; its keys are checked too."""
    try:
        return _build(kind, tomllib.loads(text), Path(source).name)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not valid TOML: {error}; mend that line") from error


def read(path: Path) -> str:
    """The text of a configuration file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; check the path"
        ) from error


def embedded_default() -> str:
    """The TOML of the run that `fedssca run` does without a file."""
    return Path(__file__).with_name("default.toml").read_text()


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error line about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"


def absolute(config: Config) -> Config:
    """The same run with the places of its data spelled out, so that it resumes from anywhere."""
    path, folder = (
        str(Path(place).expanduser().absolute()) if place else ""
        for place in (config.data.path, config.data.dir)
    )
    return dataclasses.replace(config, data=dataclasses.replace(config.data, path=path, dir=folder))


def _assign(tree: dict[str, Any], setting: str) -> None:
    """Carry out one "section.key=value"; the value is TOML, or else taken as a string."""
    name, equals, text = setting.partition("=")
    *sections, key = name.strip().split(".")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if not equals or not (sections or isinstance(value, dict)):
        raise UserError(f"--set {setting}: write it as section.key=value, e.g. algorithm.batch=10")
    node: Any = tree
    for step in sections:
        if isinstance(node, list):
            node = node[_position(node, step, setting)]
        else:
            node = node.setdefault(step, {})
        if not isinstance(node, dict | list):
            raise UserError(f"--set {setting}: {step} is a value, not a section")
    if isinstance(node, list):
        node[_position(node, key, setting)] = value
    else:
        node[key] = value


def _position(node: Sequence[Any], step: str, setting: str) -> int:
    if not step.isdigit() or int(step) >= len(node):
        there = f"entries 0 to {len(node) - 1}" if node else "no entries yet"
        raise UserError(f"--set {setting}: there is no entry {step!r}, there are {there}")
    return int(step)


def _build(kind: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the dataclass `kind`, every key checked."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where} = {value!r}: it must be a table with keys {_keys(kind)}")
    hints = get_type_hints(kind)
    for key in value:
        if key not in hints:
            place = f"key {key!r} in [{where}]" if where else f"section [{key}]"
            raise UserError(f"unknown {place}: {nearest(key, hints)}")
    value = {key: _filled(kind, key, given) for key, given in value.items()}
    given = {k: _convert(hints[k], v, f"{where}.{k}" if where else k) for k, v in value.items()}
    missing = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is f.default_factory is dataclasses.MISSING and f.name not in given
    ]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}: add {missing[0]} = ...")
    return kind(**given)


def _convert(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        if kind is Step and isinstance(value, int | float) and not isinstance(value, bool):
            return Step(float(value))
        return _build(kind, value, where)
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise UserError(f"{where} = {value!r}: it must be a list")
        return [_convert(get_args(kind)[0], item, f"{where}.{i}") for i, item in enumerate(value)]
    if isinstance(kind, UnionType):
        many = [each for each in get_args(kind) if get_origin(each) is list]
        single = [each for each in get_args(kind) if each is not NoneType and each not in many]
        return _convert((many if isinstance(value, list) and many else single)[0], value, where)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= sys.float_info.max:
            raise UserError(f"{where} = {value}: it must be a finite number")
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
        raise UserError(f"{where} = {value!r}: it must be {names[kind]}")
    return value


def _filled(kind: Any, key: str, value: Any) -> Any:
    """A step size given in part keeps the rest of its default: rho.a = 0.5 leaves rho.alpha."""
    default = getattr(kind, key, None)
    if isinstance(default, Step) and isinstance(value, Mapping):
        return dataclasses.asdict(default) | dict(value)
    return value


def _keys(kind: Any) -> str:
    return ", ".join(f.name for f in dataclasses.fields(kind))
