"""A lying server wants to read a site's data in the site's error messages.

It sends a census that lacks one of the site's labels, and the error of the look-up names the label.
It sends a peer's letter that cannot be read, and watches for the exception. What stops it: only
errors that were written for the server travel in their own words; of everything else the server
learns that there was an error, and the words stay in the site's log.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca.rounds.codec import InvalidMessage, decode, encode, note, read_note
from fedssca.run.config import parse
from tests.deploy.loopback import deployed
from tests.deploy.test_sites import BASE, by_rows, run, table


def test_a_census_without_a_label_does_not_bring_the_label_out(tmp_path: Path) -> None:
    columns = table()
    columns["y"] = ["secret-illness" if label == "ill" else label for label in columns["y"]]
    _, server = run(parse(BASE), by_rows(tmp_path, columns), tmp_path / "run")
    link = server.sites._link
    terms, facts, prepare = (
        next(data for data in link.envelopes if decode(data).kind == kind)
        for kind in ("terms", "facts", "prepare")
    )
    told = read_note(decode(prepare))
    told["census"]["labels"] = ["other", "well"]
    lie = encode(decode(prepare)._replace(arrays=note(told)))
    answers = [link.ask({"site-1": data}, 1.0)["site-1"].data for data in (terms, facts, lie)]
    answer = decode(answers[-1])
    assert answer.kind == "error"
    assert "secret-illness" not in json.dumps(read_note(answer))


def test_a_peer_that_is_no_site_gets_one_kind_of_refusal(tmp_path: Path) -> None:
    config = parse(BASE, ["data.name=digits", "data.split=feature"])
    _, _, link = deployed(config, 2, tmp_path)
    for sender in ("site-9", ""):
        with pytest.raises(InvalidMessage):
            link.parties["site-1"].receive(sender, link.peer_envelopes[-1])
