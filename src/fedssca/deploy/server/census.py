"""Before round 1: the server joins what the sites tell of their data to a census.

Every site tells the number of its rows and the names of its columns. What is needed to encode the
columns alike at all sites (counts of text, sums for means and deviations, `data.encode.summary`)
comes from the sites one by one, or from sums over all of them (`server.hidden_census`). Labels and
groups are counted only if a constraint needs the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from fedssca.data.encode import ColumnSummary, Encoder, EncodingRules, fit_encoder
from fedssca.data.encode.labels import as_label
from fedssca.data.encode.summary import joined
from fedssca.data.encode.targets import NAMED, target_scale
from fedssca.data.lines import Reading
from fedssca.deploy.census import (
    TARGET,
    Census,
    Facts,
    Question,
    counted_labels,
    named_labels,
)
from fedssca.errors import UserError

__all__ = [
    "Told",
    "check_facts",
    "counted_values",
    "joined_labels",
    "merge",
    "plainly_told",
]


class Told(NamedTuple):
    """What the sites tell of their columns, labels and groups, all of them together."""

    labels: list[Any]
    """The labels by which rows are counted, see `deploy.census.counted_labels`."""
    groups: dict[str, list[Any]]
    """The values of the columns that constraints ask for."""
    summaries: dict[str, list[ColumnSummary]]
    """For each column that is encoded: what the sites count and add up."""
    counts: list[list[float]]
    """As in `Census.counts`."""
    most: int | None
    """Of arrays of bytes: the largest number."""


def check_facts(names: Sequence[str], facts: Sequence[Facts], asked: Question) -> None:
    """Do all sites fit together? A UserError names the first site that does not."""
    first = facts[0]
    for name, each in zip(names, facts, strict=True):
        _same(name, "runs fedssca", each["package"], version("fedssca"), "the server runs")
        if asked["columns"]:
            _same(name, "holds rows:", each["all_rows"], first["all_rows"], f"{names[0]} holds")
            if each["ids"] != first["ids"]:
                raise UserError(
                    f"{name}: its ids are not those of {names[0]} in the same order; with "
                    "deploy.align = true the common rows are found, or use fedssca psi"
                )
        else:
            _fit_rows(name, each, names[0], first)
    labelled = _labelled(names, facts)
    if asked["columns"]:
        _check_holder(names, facts, asked["holder"])
        for name, each in labelled:
            _same(name, "has labels", each["y"][:12], labelled[0][1]["y"][:12], "another has")
            _same(name, "counts", each.get("test_rows"), labelled[0][1].get("test_rows"), "not as")


def merge(names: Sequence[str], facts: Sequence[Facts], asked: Question, told: Told) -> Census:
    """The census of sites that fit together."""
    first, columns = facts[0], asked["columns"]
    target = _target(facts, asked, told)
    told = told._replace(summaries={n: s for n, s in told.summaries.items() if n != TARGET})
    _, counting = _labelled(names, facts)[0]
    encoder = None if columns else _encoder(names, asked, told)
    blocks: list[list[str]] = [each.get("encoded") or each["features"] for each in facts]
    if not columns:
        blocks = blocks[:1] if encoder is None else [list(encoder.features)]
    return Census(
        names=list(names),
        columns=columns,
        sizes=[counting["rows"]] if columns else [each["rows"] for each in facts],
        widths=[len(block) for block in blocks],
        features=[name for block in blocks for name in block],
        labels=named_labels(asked, told.labels),
        encoder=None if encoder is None else encoder.state(),
        scale=_one_scale(names, facts) if columns else _scale(first, told.most),
        extra={name: kinds if _is_text(kinds) else None for name, kinds in told.groups.items()},
        counts=told.counts,
        dtype=first["dtype"],
        test_rows=counting.get("test_rows", []),
        held=counting["held"],
        calibration=_calibration(facts, counting, asked),
        cells=[each["cells"] for each in facts] if columns else [],
        target=target,
        categories=_categories(facts, blocks) if columns else [],
    )


def _categories(facts: Sequence[Facts], blocks: Sequence[Sequence[str]]) -> list[list[int]]:
    """The places, among all features, of the features of each column of categories."""
    found, begin = [], 0
    for each, block in zip(facts, blocks, strict=True):
        for own in each.get("categories", []):
            if not all(0 <= place < len(block) for place in own):
                raise UserError("a site tells categories of features that it does not have")
            found.append([begin + place for place in own])
        begin += len(block)
    return found


def _target(facts: Sequence[Facts], asked: Question, told: Told) -> list[float]:
    """Shift and scale of a target of numbers over all sites; empty if the label is a name."""
    if asked["target"] in NAMED:
        return []
    parts = told.summaries.get(TARGET, [])
    if asked["columns"]:  # the same rows at all parties
        parts = [ColumnSummary.from_state(each["target"]) for each in facts if "target" in each][:1]
    whole = joined("the target", parts)
    return list(target_scale("all sites together", whole.moments, asked["target"]))


def _calibration(facts: Sequence[Facts], counting: Facts, asked: Question) -> list[int]:
    """The numbers of calibration rows."""
    if not asked["calibration_fraction"]:
        return []
    found = [each["calibration"] for each in ([counting] if asked["columns"] else facts)]
    if not sum(found):
        raise UserError(
            "no site has calibration rows: set a larger data.calibration_fraction, or give more "
            "rows"
        )
    return found


def plainly_told(
    names: Sequence[str],
    facts: Sequence[Facts],
    asked: Question,
    count: Callable[[dict[str, Any]], Sequence[Facts]],
) -> Told:
    """What sites tell one by one; `count` asks them all for their counts of labels and groups."""
    labelled = _labelled(names, facts)
    counting = labelled[:1] if asked["columns"] else labelled
    labels = joined_labels(labelled, asked)
    groups = {
        column: _joined_kinds(counting[0][0], [each["groups"][column] for _, each in counting])
        for column in counting[0][1]["groups"]
    }
    for name, each in zip(names, facts, strict=True):
        _fit_kinds(name, each, names[0], facts[0])
    summaries = {
        column: [ColumnSummary.from_state(each["summaries"][column]) for each in facts]
        for column in facts[0].get("summaries", {})
    }
    counts: list[list[float]] = []
    if asked["counted"]:
        answers = dict(zip(names, count({"labels": labels, "groups": groups}), strict=True))
        told = [answers[name]["counts"] for name, _ in counting]
        counts = _counted(told, labels, groups, asked)
    most = max((each["most"] for each in facts if "most" in each), default=None)
    return Told(labels, groups, summaries, counts, most)


def _labelled(names: Sequence[str], facts: Sequence[Facts]) -> list[tuple[str, Facts]]:
    found = [(name, each) for name, each in zip(names, facts, strict=True) if each["labelled"]]
    if not found:
        raise UserError("no site has labels: set label in one site.toml")
    return found


def _is_text(kinds: Sequence[Any]) -> bool:
    return all(isinstance(kind, str) for kind in kinds)


def _fit_rows(name: str, each: Facts, other: str, first: Facts) -> None:
    """Check that a site that holds rows has the same columns in the same order as the first."""
    mine, theirs = each["features"], first["features"]
    if len(mine) != len(theirs):
        raise UserError(
            f"{name}: it has {len(mine)} feature columns, {other} has {len(theirs)}; "
            "all sites need the same ones (ignore = [...] in site.toml leaves some out)"
        )
    for place, (own, there) in enumerate(zip(mine, theirs, strict=True)):
        if own != there:
            raise UserError(
                f"{name}: feature column {place + 1} is {own!r}, at {other} it is {there!r}; "
                "all sites need the same names in the same order"
            )
    for what in ("array", "dtype", "scale"):
        _same(name, f"has {what}", each[what], first[what], f"{other} has")


def _fit_kinds(name: str, each: Facts, other: str, first: Facts) -> None:
    """Check that columns are text at all sites, or numbers at all of them."""
    for column, own in each.get("summaries", {}).items():
        kinds = (own["kind"], first["summaries"][column]["kind"])
        if set(kinds) == {"text", "number"}:
            raise UserError(
                f"{name}: column {column!r} is {kinds[0]} here and {kinds[1]} at {other}; write it "
                "alike at all sites"
            )


def _same(name: str, what: str, mine: Any, theirs: Any, how: str) -> None:
    """Raise a UserError such as "site-2: it has dtype uint8, site-1 has float32"."""
    if mine != theirs:
        raise UserError(f"{name}: it {what} {mine}, {how} {theirs}; they must be the same")


def _check_holder(names: Sequence[str], facts: Sequence[Facts], holder: int) -> None:
    """Check that the parties that compute the loss have labels: the holder, or all of them."""
    has = [each["labelled"] for each in facts]
    if holder < 0 and not all(has):
        raise UserError(
            f"{names[has.index(False)]}: it has no labels; set data.label_holder = "
            f"{has.index(True)}, the place of {names[has.index(True)]}"
        )
    if holder >= 0 and not has[min(holder, len(has) - 1)]:
        raise UserError(
            f"{names[holder]}: data.label_holder = {holder} says that it has the labels; set "
            f"{has.index(True)}, the place of {names[has.index(True)]}"
        )


def joined_labels(labelled: Sequence[tuple[str, Facts]], asked: Question) -> list[Any]:
    """The labels by which rows are counted, after a check of what the sites tell of theirs."""
    told: list[Any] = []
    if asked["target"] == "labels":
        _check_label_sets(labelled, asked["label"])
    elif asked["target"] == "class":
        told = _joined_classes(labelled)
    return counted_labels(asked, told)


def _check_label_sets(labelled: Sequence[tuple[str, Facts]], names: Sequence[str]) -> None:
    """Raise a UserError if all sites together have rows with a label only, or without it only."""
    told = {word for _, each in labelled for word in each["labels"]}
    for place, name in enumerate(names):
        for value, which in ((1, "with"), (0, "without")):
            if 2 * place + value not in told:
                raise UserError(
                    f"no site has enough rows {which} the label {name!r} (limits.least_rows in "
                    "site.toml): there must be rows with it and rows without it; leave it out of "
                    "data.label"
                )


def _joined_classes(labelled: Sequence[tuple[str, Facts]]) -> list[Any]:
    """The values of the label at all sites, sorted."""
    kinds = {isinstance(label, str) for _, f in labelled for label in f["labels"]}
    if not kinds:
        raise UserError(
            "no label has enough rows at any site to be told (limits.least_rows in site.toml)"
        )
    if len(kinds) > 1:
        odd = next(n for n, f in labelled if any(isinstance(x, str) for x in f["labels"]))
        raise UserError(
            f"{odd}: its labels are text, those of others are numbers; write them alike"
        )
    labels = sorted({label for _, f in labelled for label in f["labels"]})
    for name, each in labelled:
        for label in each["labels"]:
            if not isinstance(label, str) and label != round(label):
                raise UserError(f"{name}: label {label} is out of range: whole numbers or text")
    if len(labels) < 2:
        raise UserError(f"all sites have the one label {labels[0]}: two classes are needed")
    return labels


def _joined_kinds(name: str, found: Sequence[list[Any]]) -> list[Any]:
    """The values of a constraint's column at all sites."""
    told = [kinds for kinds in found if kinds]
    if any(_is_text(kinds) != _is_text(told[0]) for kinds in told):
        raise UserError(
            f"{name}: a constraint's column is text here, numbers elsewhere; write it alike"
        )
    return sorted({kind for kinds in told for kind in kinds})


def _encoder(names: Sequence[str], asked: Question, told: Told) -> Encoder | None:
    """How all sites with rows encode x; None if it is an array that is only scaled."""
    if not told.summaries:
        return None
    try:
        return fit_encoder(
            told.summaries,
            EncodingRules(**asked["rules"]),
            as_label(asked["label"]) or "y",
            named_labels(asked, told.labels),
            use=asked["extra"],
            reading=Reading.from_state(asked["reading"]),
        )
    except UserError as error:
        raise UserError(f"{', '.join(names)}: {error}") from None


def _scale(first: Facts, most: int | None) -> float:
    """The factor by which the model multiplies x, where sites hold rows."""
    if most is not None:
        return 1 / max(1, most)
    return first["scale"] if first["array"] and first["scale"] else 1.0


def _one_scale(names: Sequence[str], facts: Sequence[Facts]) -> float:
    """The scale of x, which parties with columns must have in common."""
    scales = [f["scale"] or (1 / max(1, f["most"]) if "most" in f else 1.0) for f in facts]
    for name, scale in zip(names, scales, strict=True):
        _same(name, "scales x by", scale, scales[0], f"{names[0]} by")
    return scales[0]


def _counted(
    answers: Sequence[Sequence[tuple[Sequence[int], int]]],
    labels: Sequence[Any],
    groups: Mapping[str, Sequence[Any]],
    asked: Question,
) -> list[list[float]]:
    """The counts of all sites, added up, or site by site if limits hold at every single site."""
    found: list[list[float]] = []
    for some in [[each] for each in answers] if asked["per_site"] else [answers]:
        total: dict[tuple[int, ...], int] = {}
        for place, count in (row for each in some for row in each):
            total[tuple(place)] = total.get(tuple(place), 0) + count
        found += counted_values(total, labels, groups, asked)
    return found


def counted_values(
    total: Mapping[tuple[int, ...], int],
    labels: Sequence[Any],
    groups: Mapping[str, Sequence[Any]],
    asked: Question,
) -> list[list[float]]:
    """Counts as in `Census.counts`: the places of classes and texts, label sets and numbers."""
    sets = asked["target"] == "labels"
    return [
        [
            float(labels[label] if sets else label),
            *(
                float(place) if _is_text(kinds) else float(kinds[place])
                for place, kinds in zip(places, groups.values(), strict=True)
            ),
            total[label, *places],
        ]
        for label, *places in sorted(total)
    ]
