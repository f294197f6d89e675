"""The census of sites that hide their sums: the server learns totals, and not who told what.

buckets   about how many different words (values of text, labels, groups) the sites have
words     the words, and how many sites have each (`deploy.words`)
numbers   for all sites together: counts of the words, sums for means and deviations

Each is a secure sum over all sites; no site helps to open one in which another site is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from fedssca.deploy.census import Facts, Question
from fedssca.deploy.server.census import Told, counted_values, joined_labels
from fedssca.deploy.server.sites import Sites, SitesMissing
from fedssca.deploy.sums import census_rules, for_sum
from fedssca.deploy.totals import CensusLayout
from fedssca.deploy.words import BUCKETS, Word, cells_needed, from_numbers, listed, table_size
from fedssca.errors import UserError
from fedssca.rounds.codec import note
from fedssca.run.config import Config

__all__ = ["hidden_totals"]

ATTEMPTS = 4
"""How often a table that is too small for all words is made twice as large."""
MOST_CELLS = 10_000
"""The largest number of combinations of labels and groups that are counted under masks."""


def hidden_totals(
    sites: Sites, config: Config, run: bytes, facts: Sequence[Facts], asked: Question
) -> Told:
    """What all sites tell together."""
    if asked["rules"]["impute"] != "mean":
        raise UserError(
            f'data.impute = "{asked["rules"]["impute"]}" needs counts of single numbers, which '
            'sites that hide their sums do not tell: use data.impute = "mean"'
        )
    if asked["per_site"]:
        raise UserError(
            "limits on rates of single clients need counts of single sites, which sites that hide "
            "their sums do not send: state limits over all rows, or privacy.secure_sum = false"
        )
    sums = _Sums(sites, config, run)
    words = _words(sums, run)
    columns: list[str] = facts[0]["encodes"]
    groups: dict[str, list[Any]] = {}
    texts: dict[str, list[str]] = {name: [] for name in columns}
    labels = []
    for place, value in words:
        if place < len(columns):
            texts[columns[place]].append(value)
        elif place < len(columns) + len(asked["extra"]):
            groups.setdefault(asked["extra"][place - len(columns)], []).append(value)
        else:
            labels.append(value)
    labels = joined_labels([(sites.names[0], {"labels": labels})], asked)
    groups = {name: sorted(groups.get(name, []), key=_as_key) for name in asked["extra"]}
    for name, kinds in groups.items():
        if not kinds or len({isinstance(kind, str) for kind in kinds}) > 1:
            why = "is text at one site only"
            if not kinds:
                why = "has no value in enough rows of any site (limits.least_rows in site.toml)"
            raise UserError(f"a constraint's column {name!r} {why}; change the constraint")
    sizes = [len(labels), *(len(kinds) for kinds in groups.values())] if asked["counted"] else []
    if np.prod(sizes) > MOST_CELLS:
        raise UserError(
            f"{np.prod(sizes)} groups to count, at most {MOST_CELLS}: give the constraint's column "
            "of numbers bins = [...]"
        )
    layout = CensusLayout(texts, sizes, bool(facts[0]["bytes"]))
    told = {"step": "numbers", "words": texts, "labels": labels, "groups": groups}
    rows = sum(each["rows"] for each in facts)
    total = layout.unpack(sums.of(told, layout.size), rows, len(facts))
    return Told(
        labels,
        groups,
        {name: [summary] for name, summary in total.summaries.items()},
        counted_values(total.counts, labels, groups, asked),
        total.most if layout.bytes else None,
    )


def _words(sums: _Sums, run: bytes) -> list[Word]:
    """The words of all sites, in order."""
    cells = cells_needed(sums.of({"step": "buckets"}, BUCKETS))
    for _ in range(ATTEMPTS):
        total = sums.of({"step": "words", "cells": cells}, table_size(cells))
        if (found := listed(total, cells, run)) is not None:
            return sorted(found, key=lambda word: (word[0], _as_key(word[1])))
        cells *= 2
    raise UserError("the words of all sites could not be read from their sum: submit the run again")


def _as_key(value: Any) -> tuple[bool, Any]:
    """Sorts texts, and numbers before them."""
    return isinstance(value, str), value


class _Sums:
    """Hidden sums of integers over all sites."""

    def __init__(self, sites: Sites, config: Config, run: bytes) -> None:
        from fedssca.privacy.sums.masked_server import MaskedSumServer

        self._sites = sites
        self._half = MaskedSumServer(census_rules(config, run, len(sites.names)))

    def of(self, told: dict[str, Any], size: int) -> np.ndarray:
        """The sum of what the sites answer; all of them must."""
        sites, everyone = self._sites, range(len(self._sites.names))
        published = dict.fromkeys(everyone, note(told))
        ask = partial(sites.exchange_for_sum, "census", 0, published, _read)
        like = {"numbers": jax.ShapeDtypeStruct((size,), np.float64)}
        try:
            found = self._half.gather(ask, list(everyone), like)
        except SitesMissing:
            raise
        except UserError as error:
            gone = [sites.names[number] for number in everyone if number not in sites.live]
            said = f"before round 1: {error}; {sites.with_reasons(everyone)}"
            if gone:
                raise SitesMissing(gone, said) from error
            raise UserError(said) from error
        sites.check_all(everyone, dict.fromkeys(found.who), 0)
        return from_numbers(found.total["numbers"])


def _read(number: int, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    del number
    return for_sum(arrays)
