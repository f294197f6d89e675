"""A lying server wants plain gradients of a site that insists on hidden sums (`hidden = true`).

It used to state `privacy.secure_sum = true`, which satisfied the site, together with
`data.split = "feature"`, for which the sums over rows are not masked, and a census about rows: the
site then sent plain gradients. Now the site reads off the message itself whether it is hidden.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.site.guard import About, Guard
from fedssca.deploy.site.ledger import DataLedger, ledger_of
from fedssca.deploy.site.party import Party
from fedssca.deploy.site.raw_table import read_source
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.rounds.codec import Envelope, decode, encode, note, read_note
from fedssca.run.config import parse, render
from tests.attacks.clinic import BASE, HIDDEN, ask_census, clinics
from tests.deploy.loopback import RUN, parties

FEATURE = ["data.split=feature", HIDDEN]


def say(party: Party, kind: str, told: Any) -> Any:
    """What a site answers to a note of the server."""
    asked = encode(Envelope(kind, RUN, 0, note(told)))
    return read_note(decode(party.handle(asked, lambda *_: None)))


def refused(party: Party, settings: list[str]) -> str:
    names = ["site-1", "site-2", "site-3"]
    told = {"config": render(parse(BASE, settings)), "names": names}
    return str(say(party, "terms", told)["message"])


def test_a_split_that_hides_nothing_is_refused(tmp_path: Path) -> None:
    party = parties(clinics(tmp_path, "hidden = true\n"))["site-1"]
    assert "refused by hidden = true" in refused(party, [])
    assert "refused by limits.open_blocks = false" in refused(party, FEATURE)


def test_a_census_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A party that allows blocks of the gradient is not made one with rows."""
    limits = "hidden = true\n[limits]\nopen_blocks = true\n"
    files = clinics(tmp_path, limits)
    census, link = ask_census(files, [HIDDEN], tmp_path / "run")
    party = link.parties["site-1"]
    config = parse(BASE, FEATURE)
    told = {"config": render(config), "census": asdict(census)}
    assert "not the run that the terms are about" in say(party, "prepare", told)["message"]
    terms = {"config": render(config), "names": census.names}
    assert "package" in say(party, "terms", terms)
    assert "asked for their ids first" in say(party, "facts", {})["message"]
    for other in (census, replace(census, columns=True)):
        assert "message" in say(party, "prepare", told | {"census": asdict(other)})


def test_a_plain_message_does_not_pass_whatever_was_agreed(tmp_path: Path) -> None:
    """The last line: the guard looks at the gradients, and not at a config."""
    file = clinics(tmp_path, "hidden = true\n")[0]
    source = read_source(file)
    guard = Guard(source, DataLedger(ledger_of(file), source))
    gradients = {".vectors['gradient']": np.ones(4, np.float32)}
    about = About(rows=100, columns=False)
    for stage in ("probe", "train", "measure", "tally", "slope"):
        with pytest.raises(LimitRefused, match="hidden = true"):
            guard.answer(Envelope(f"{stage}/reply", RUN, 1, gradients), about)
        beside = {"sum:masked": np.zeros(4, np.uint64)} | gradients
        with pytest.raises(ValueError, match="sends no such message"):
            guard.answer(Envelope(f"{stage}/reply", RUN, 1, beside), about)
    with pytest.raises(LimitRefused, match="hidden = true"):
        guard.answer(Envelope("facts", RUN, 0, note({"labels": ["a"]})), About())
