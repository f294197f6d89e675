"""Before round 1: the server asks every site about its data and joins the answers to a census.

A site tells the number of its rows, the names of its columns, and what is needed to encode them
alike at all sites: counts of text, and sums for means and deviations (`data.encode.summary`).
Labels and groups are counted only if a constraint needs the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fedssca.data.encode import ColumnSummary, Encoder, EncodingRules, fit_encoder
from fedssca.data.lines import Reading
from fedssca.deploy.census import Census, Facts, Question
from fedssca.errors import UserError
from fedssca.run.build import encoding_rules, reading_of
from fedssca.run.config import Config

__all__ = ["merge", "question"]


def question(config: Config, run: str) -> Question:
    """What the server asks every site about its data."""
    return {
        "columns": config.data.split == "feature",
        "label": config.data.label,
        "test_fraction": config.data.test_fraction,
        "seed": config.run.seed,
        "extra": config.problem.columns,
        "counted": config.problem.counts,
        "bins": config.problem.bins,
        "per_site": config.problem.counts_per_client,
        "holder": config.data.label_holder,
        "reading": asdict(reading_of(config.data)),
        "categories": config.data.categories,
        "drop": config.data.drop,
        "rules": asdict(encoding_rules(config.data)),
        "run": run,
    }


def merge(names: Sequence[str], facts: Sequence[Facts], asked: Question) -> Census:
    """Join what all sites told; a UserError names the first site that does not fit."""
    first, columns = facts[0], asked["columns"]
    for name, each in zip(names, facts, strict=True):
        _same(name, "runs fedssca", each["package"], version("fedssca"), "the server runs")
        if columns:
            _same(name, "holds rows:", each["all_rows"], first["all_rows"], f"{names[0]} holds")
            if each["ids"] != first["ids"]:
                raise UserError(
                    f"{name}: its ids are not those of {names[0]} in the same order; with "
                    "deploy.align = true the common rows are found, or use fedssca psi"
                )
        else:
            _fit_rows(name, each, names[0], first)
    labelled = [(n, f) for n, f in zip(names, facts, strict=True) if f["labels"] is not None]
    if not labelled:
        raise UserError("no site has labels: set label in one site.toml")
    labels = _labels(labelled)
    if columns:
        _check_holder(names, facts, asked["holder"])
        for name, each in labelled:
            _same(name, "has labels", each["y"][:12], labelled[0][1]["y"][:12], "another has")
            _same(name, "counts", each.get("test_rows"), labelled[0][1].get("test_rows"), "not as")
    counting = labelled[:1] if columns else labelled
    first_name, first_facts = counting[0]
    extra = {
        column: _joined_kinds(first_name, [each["extra"][column] for _, each in counting])
        for column in first_facts["extra"]
    }
    encoder = None if columns else _encoder(names, facts, asked, labels)
    blocks: list[list[str]] = [each.get("encoded") or each["features"] for each in facts]
    if not columns:
        blocks = blocks[:1] if encoder is None else [list(encoder.features)]
    return Census(
        names=list(names),
        columns=columns,
        sizes=[labelled[0][1]["rows"]] if columns else [each["rows"] for each in facts],
        widths=[len(block) for block in blocks],
        features=[name for block in blocks for name in block],
        labels=labels,
        encoder=None if encoder is None else encoder.state(),
        scale=_one_scale(names, facts) if columns else _scale(facts),
        extra=extra,
        counts=_counted([each for _, each in counting], labels, extra, asked["per_site"]),
        dtype=first["dtype"],
        test_rows=labelled[0][1].get("test_rows", []),
        held=labelled[0][1]["held"],
        cells=[each["cells"] for each in facts] if columns else [],
    )


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
    has = [each["labels"] is not None for each in facts]
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


def _labels(labelled: Sequence[tuple[str, Facts]]) -> list[Any]:
    """The values of the label at all sites, sorted."""
    kinds = {isinstance(label, str) for _, f in labelled for label in f["labels"]}
    if len(kinds) > 1:
        odd = next(n for n, f in labelled if isinstance(f["labels"][0], str))
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


def _joined_kinds(name: str, found: Sequence[list[str] | None]) -> list[str] | None:
    """The kinds of a constraint's column at all sites; None if it holds numbers."""
    if any((kinds is None) != (found[0] is None) for kinds in found):
        raise UserError(
            f"{name}: a constraint's column is text here, numbers elsewhere; write it alike"
        )
    return None if found[0] is None else sorted({k for kinds in found if kinds for k in kinds})


def _encoder(
    names: Sequence[str], facts: Sequence[Facts], asked: Question, labels: Sequence[Any]
) -> Encoder | None:
    """How all sites with rows encode x; None if it is an array that is only scaled."""
    first = facts[0]
    if "summaries" not in first:
        return None
    summaries = {
        column: [ColumnSummary.from_state(each["summaries"][column]) for each in facts]
        for column in first["summaries"]
    }
    try:
        return fit_encoder(
            summaries,
            EncodingRules(**asked["rules"]),
            asked["label"] or "y",
            labels,
            use=asked["extra"],
            reading=Reading.from_state(asked["reading"]),
        )
    except UserError as error:
        raise UserError(f"{', '.join(names)}: {error}") from None


def _scale(facts: Sequence[Facts]) -> float:
    """The factor by which the model multiplies x, where sites hold rows."""
    first = facts[0]
    if "most" in first:
        return 1 / max(1, *(each["most"] for each in facts))
    return first["scale"] if first["array"] and first["scale"] else 1.0


def _one_scale(names: Sequence[str], facts: Sequence[Facts]) -> float:
    """The scale of x, which parties with columns must have in common."""
    scales = [f["scale"] or (1 / max(1, f["most"]) if "most" in f else 1.0) for f in facts]
    for name, scale in zip(names, scales, strict=True):
        _same(name, "scales x by", scale, scales[0], f"{names[0]} by")
    return scales[0]


def _counted(
    facts: Sequence[Facts],
    labels: Sequence[Any],
    extra: Mapping[str, Sequence[str] | None],
    per_site: bool,
) -> list[list[float]]:
    """The counts of all sites, with values replaced by their places among the kinds.

    They are added up, or listed site by site if limits hold at every single site.
    """
    tables = [labels, *extra.values()]
    found: list[list[float]] = []
    for some in [[each] for each in facts] if per_site else [facts]:
        total: dict[tuple[float, ...], int] = {}
        for *values, count in (row for each in some for row in each.get("counts", [])):
            key = tuple(
                float(value) if table is None else float(list(table).index(value))
                for value, table in zip(values, tables, strict=True)
            )
            total[key] = total.get(key, 0) + count
        found += [[*key, total[key]] for key in sorted(total)]
    return found
