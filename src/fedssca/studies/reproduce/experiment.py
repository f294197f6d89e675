"""A panel as one TOML file: what is drawn, the runs behind it, the statements that are checked.

title, figure     the title, and the figure of the paper that shows it
kind              "trajectory": `quantity` over the rounds
                  "tradeoff":   rounds to the test accuracy `target` against samples per round
                  "sweep":      |w|^2 against training cost, one point per value of a swept key
                  "equivalence": a sweep over lambda and one over U, and lambda against 1 / nu
                  "identity":   Algorithm 1 against the momentum recursion that it equals
curves, compare   other panels whose curves are drawn, or only compared with
runs              at most that many runs of each curve, for curves that take long
[base]            a run, as in docs/config.md
[[curve]]         label, group (its colour), `set` (what differs from the base); optional: extra
                  (not of the paper), model ("last" or "returned"), sweep = {key, values, symbol},
                  runs (in place of the panel's)
[[statement]]     text, where the paper says it, check and its options: see verdict.py
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedssca.errors import UserError
from fedssca.run.config import Config, nearest, parse
from fedssca.run.config import read as read_text
from fedssca.studies.reproduce.verdict import CHECKS

__all__ = ["Curve", "Experiment", "Statement", "known", "read"]

KINDS = ("trajectory", "tradeoff", "sweep", "equivalence", "identity")
MODELS = ("last", "returned")
QUANTITIES = ("train_cost", "test_accuracy", "norm_sq", "objective")
Number = (int, float)
PANEL: dict[str, Any] = {
    "title": str,
    "figure": str,
    "kind": str,
    "quantity": str,
    "target": Number,
    "curves": list,
    "compare": list,
    "runs": int,
    "base": dict,
    "curve": list,
    "statement": list,
}
CURVE: dict[str, Any] = {
    "label": str,
    "group": str,
    "set": dict,
    "model": str,
    "extra": bool,
    "sweep": dict,
    "runs": int,
}
SWEEP: dict[str, Any] = {"key": str, "values": [Number], "symbol": str}
STATEMENT: dict[str, Any] = {"text": str, "where": str, "check": str}
WORDS = {
    str: "a string",
    list: "a list",
    dict: "a table",
    bool: "true or false",
    int: "a whole number",
}
"""How messages name the type of a key; all others are numbers."""


@dataclass(frozen=True)
class Curve:
    """One run of the panel with all its seeds."""

    label: str
    group: str
    config: Config
    series: str
    """The line of the figure to which it belongs; every value of a sweep is a curve."""
    model: str = "last"
    """Which model counts at the end: "last" is w(T), "returned" the one that the run returns."""
    extra: bool = False
    """Whether the curve is not in the paper."""
    drawn: bool = True
    task: str = "train"
    most_runs: int | None = None
    """The largest number of its runs; None sets no bound."""

    @property
    def work(self) -> int:
        """The number of samples that a client processes in a round: B x E."""
        return self.config.algorithm.batch * self.config.algorithm.local_steps

    def seeds(self, runs: int) -> list[int]:
        """Return the seeds of its runs when each curve is to have that many runs."""
        return list(range(min(runs, self.most_runs or runs)))

    @property
    def limit(self) -> float:
        """The first limit U."""
        return self.config.problem.constraint[0].limit

    @property
    def weight(self) -> float:
        """The weight lambda of |w|^2 beside the objective."""
        return self.config.problem.l2 or 0.0


@dataclass(frozen=True)
class Statement:
    """What the paper says, and how it is checked."""

    text: str
    where: str
    check: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One panel."""

    name: str
    source: str
    """Its name on the command line, or the path of the user's own file."""
    title: str
    figure: str
    kind: str
    quantity: str
    target: float
    curves: tuple[Curve, ...]
    statements: tuple[Statement, ...]

    @property
    def drawn(self) -> list[Curve]:
        """The curves that the figure shows."""
        return [curve for curve in self.curves if curve.drawn]


def folder() -> Path:
    """Return the folder of the panels: in the installed package, or in the repository."""
    package = Path(__file__).parents[2]
    inside = package / "experiments"
    return inside if inside.is_dir() else package.parents[1] / "experiments"


def known() -> list[str]:
    """Return the names of all panels."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def read(name: str) -> Experiment:
    """Return the panel of that name, or of the file at that path."""
    if name.endswith(".toml"):
        return _read(Path(name), ())
    if name not in known():
        names = sorted(known(), key=lambda k: (-difflib.SequenceMatcher(None, name, k).ratio(), k))
        raise UserError(f"no figure is named {name!r}: known are {', '.join(names)}, all")
    return _read(folder() / f"{name}.toml", ())


def _read(path: Path, above: tuple[Path, ...]) -> Experiment:
    where = path.name
    try:
        content = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where} is not valid TOML: {error}") from error
    _check(content, PANEL, where, needed=("title", "kind"))
    if content["kind"] not in KINDS:
        raise UserError(f"{where}: kind = {content['kind']!r}: {nearest(content['kind'], KINDS)}")
    _check_quantity(content.get("quantity", "train_cost"), f"{where}: quantity")
    own = [c for entry in content.get("curve", ()) for c in _curves(entry, content, where)]
    others = [_borrowed(n, path, (*above, path), True) for n in content.get("curves", ())]
    unseen = [_borrowed(n, path, (*above, path), False) for n in content.get("compare", ())]
    curves = {c.label: c for group in (*unseen, *others, own) for c in group}
    if not curves:
        raise UserError(f"{where} has no curves: add [[curve]] entries, or curves = [a panel]")
    return Experiment(
        name=path.stem,
        source=path.stem if path.parent == folder() else str(path),
        title=content["title"],
        figure=content.get("figure", ""),
        kind=content["kind"],
        quantity=content.get("quantity", "train_cost"),
        target=float(content.get("target", 0.9)),
        curves=tuple(curves.values()),
        statements=tuple(
            _statement(entry, list(curves.values()), where)
            for entry in content.get("statement", ())
        ),
    )


def _borrowed(name: Any, path: Path, above: tuple[Path, ...], drawn: bool) -> list[Curve]:
    """Return the curves of another panel in the same folder, or of a panel of the paper."""
    beside = path.with_name(f"{name}.toml")
    target = beside if beside.is_file() else folder() / f"{name}.toml"
    if not target.is_file():
        raise UserError(f"{path.name}: there is no panel {name!r}: {nearest(str(name), known())}")
    if target in above:
        raise UserError(f"{path.name}: its curves come, by way of {name!r}, from itself")
    return [replace(c, drawn=drawn) for c in _read(target, above).curves if c.drawn]


def _curves(entry: Any, content: dict[str, Any], where: str) -> list[Curve]:
    """Return the curve of one [[curve]], or with `sweep` one curve per value."""
    _check(entry, CURVE, f"{where}: a [[curve]]", needed=("label", "group"))
    label, sweep = entry["label"], entry.get("sweep")
    place = f"{where}, curve {label!r}"
    if (model := entry.get("model", "last")) not in MODELS:
        raise UserError(f"{place}: model = {model!r}: {nearest(model, MODELS)}")
    if (most := entry.get("runs", content.get("runs"))) is not None and most < 1:
        raise UserError(f"{place}: runs = {most}: it must be at least 1")
    text = tomli_w.dumps(_merged(content.get("base", {}), entry.get("set", {})))

    def curve(name: str, settings: list[str]) -> Curve:
        try:
            config = parse(text, settings)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        task = "identity" if content["kind"] == "identity" else "train"
        extra = entry.get("extra", False)
        return Curve(name, entry["group"], config, label, model, extra, task=task, most_runs=most)

    if sweep is None:
        return [curve(label, [])]
    _check(sweep, SWEEP, f"{place}: sweep", needed=("key", "values"))
    symbol = sweep.get("symbol", sweep["key"])
    return [
        curve(f"{label}, {symbol}={value:g}", [f"{sweep['key']}={value}"])
        for value in sweep["values"]
    ]


def _statement(entry: Any, curves: list[Curve], where: str) -> Statement:
    """Return one [[statement]], after comparing its options with its check and the curves."""
    place = f"{where}: a [[statement]]"
    kind = entry.get("check") if isinstance(entry, dict) else None
    if kind not in CHECKS:
        raise UserError(f"{place}: check = {kind!r}: {nearest(str(kind), CHECKS)}")
    allowed = CHECKS[kind].options
    _check(entry, STATEMENT | allowed, place, needed=("text", *CHECKS[kind].needed))
    options = {key: value for key, value in entry.items() if key not in STATEMENT}
    names = {
        "curve": [c.label for c in curves],
        "series": [c.series for c in curves],
        "free": [c.series for c in curves if not c.config.problem.constraint],
        "limited": [c.series for c in curves if c.config.problem.constraint],
        "group": [c.group for c in curves],
        "order": [c.label for c in curves],
    }
    for key in names.keys() & options.keys():
        for name in _flat(options[key]):
            if name not in names[key]:
                hint = nearest(name, set(names[key]))
                raise UserError(f"{place}: {key} = {name!r} is no {key} of this panel: {hint}")
    _check_quantity(options.get("by", "train_cost"), f"{place}: by")
    for name in (options[key] for key in ("curve", "series") if key in options):
        named = [c for c in curves if name in (c.label, c.series)]
        if kind in ("keeps", "steers") and not all(c.config.problem.constraint for c in named):
            raise UserError(f"{place}: {kind} needs a constraint, {name!r} has none")
    for work in options["at"] if kind == "fewest" else ():
        if len({c.group == options["group"] for c in curves if c.work == work}) < 2:
            raise UserError(f"{place}: at = {work}: no two groups have curves with that B x E")
    return Statement(entry["text"], entry.get("where", ""), kind, options)


def _check_quantity(name: str, where: str) -> None:
    if name not in QUANTITIES:
        raise UserError(f"{where} = {name!r}: {nearest(name, QUANTITIES)}")


def _check(table: Any, kinds: Mapping[str, Any], where: str, needed: Iterable[str] = ()) -> None:
    """Raise a UserError unless every key is known and has its type, and none is missing."""
    if not isinstance(table, dict):
        raise UserError(f"{where} must be a table with keys {', '.join(kinds)}")
    for key, value in table.items():
        if key not in kinds:
            raise UserError(f"{where}: unknown key {key!r}: {nearest(key, kinds)}")
        if not _fits(value, kinds[key]):
            many = isinstance(kinds[key], list)
            kind = "a list of numbers" if many else WORDS.get(kinds[key], "a number")
            raise UserError(f"{where}: {key} = {value!r}: it must be {kind}")
    if missing := [key for key in needed if key not in table]:
        raise UserError(f"{where} lacks {', '.join(missing)}")


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(each, kind[0]) for each in value)
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the keys of `more`, table by table."""
    out = dict(base)
    for key, value in more.items():
        old = out.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[key] = _merged(old, value) if both and old is not None else value
    return out


def _flat(names: Any) -> list[str]:
    return [n for part in names for n in _flat(part)] if isinstance(names, list) else [str(names)]
