"""A run as one TOML: read it, check it, write it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from fedssca.errors import UserError, nearest
from fedssca.run.schema import Config, DeploySettings, PrivacySettings, validate

__all__ = [
    "Config",
    "absolute",
    "embedded_default",
    "from_tree",
    "nearest",
    "parse",
    "read",
    "render",
    "section",
    "tree_of_toml",
]

Settings = TypeVar("Settings")


def parse(text: str, settings: Sequence[str] = (), source: str = "config") -> Config:
    """A Config from a TOML text and `--set` settings such as "algorithm.batch=10"."""
    tree = tree_of_toml(text, source)
    for setting in settings:
        _assign(tree, setting)
    return from_tree(tree)


def from_tree(tree: Mapping[str, Any]) -> Config:
    """A Config from sections of keys, every one checked."""
    return validate(Config, tree)


def render(config: Config) -> str:
    """The complete TOML of a Config; [deploy] and [privacy] only if they are not the defaults."""
    tree = _given(dataclasses.asdict(config))
    for name, default in (("deploy", DeploySettings()), ("privacy", PrivacySettings())):
        if getattr(config, name) == default:
            del tree[name]
    return tomli_w.dumps(tree)


def _given(tree: Any) -> Any:
    """The tree without keys that have no value, because TOML has no null."""
    if isinstance(tree, dict):
        return {key: _given(value) for key, value in tree.items() if value is not None}
    return [_given(item) for item in tree] if isinstance(tree, list) else tree


def section(kind: type[Settings], text: str, source: str) -> Settings:
    """Another TOML file, such as site.toml, as settings of the class `kind`."""
    return validate(kind, tree_of_toml(text, source), source)


def tree_of_toml(text: str, source: str) -> dict[str, Any]:
    """The sections of a TOML text, which are not checked yet."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not valid TOML: {error}; correct that line") from error


def read(path: Path) -> str:
    """The text of a configuration file."""
    if (path / "config.toml").is_file():
        raise UserError(
            f"{path} is the directory of a run, no TOML file: name {path / 'config.toml'}, or "
            f"continue the run with fedssca run --resume {path}"
        )
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no UTF-8 text; name a TOML file") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from error


def embedded_default() -> str:
    """The TOML of the run that `fedssca run` does without a file."""
    return Path(__file__).with_name("default.toml").read_text()


def absolute(config: Config) -> Config:
    """The same run with absolute paths of its data, so that it can be resumed from any folder."""

    def full(place: str) -> str:
        return str(Path(place).expanduser().absolute()) if place else ""

    data = config.data
    path = full(data.path) if isinstance(data.path, str) else [full(one) for one in data.path]
    places: dict[str, Any] = {
        "path": path,
        "dir": full(data.dir),
        "test_path": full(data.test_path),
    }
    model = dataclasses.replace(config.model, start=full(config.model.start))
    return dataclasses.replace(config, data=dataclasses.replace(data, **places), model=model)


def _assign(tree: dict[str, Any], setting: str) -> None:
    """Apply one "section.key=value"; a value that is not TOML is taken as a string."""
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
