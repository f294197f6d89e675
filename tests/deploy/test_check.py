"""`fedssca deploy check`: an operator sees beforehand what would leave his site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca.deploy.check import check_site
from fedssca.deploy.site.ledger import ledger_of
from fedssca.errors import UserError
from fedssca.rounds.codec import decode, read_note
from fedssca.run.config import parse
from tests.attacks.clinic import BASE, HIDDEN, ask_census, clinics, table
from tests.cli_helpers import Shell

RATES = "problem.constraint=[{kind = 'parity', column = 'ward', limit = 0.1, positive = 'ill'}]"


def test_it_shows_the_very_answers_of_the_site(tmp_path: Path) -> None:
    """What is shown is what the server then gets, number by number."""
    files = clinics(tmp_path, rows=1500)
    shown = check_site(files[0], parse(BASE, [RATES, "algorithm.name=ssca"]))
    assert not shown["refused"]
    assert not ledger_of(files[0]).exists()  # looking counts as nothing
    _, link = ask_census(files, [RATES], tmp_path / "run")
    sent = {}
    for envelope in map(decode, link.answers[::3]):  # those of the first site
        if envelope.kind in ("facts", "count"):
            sent |= read_note(envelope)
    assert json.loads(json.dumps(shown["census"])) == sent
    assert [each["stage"] for each in shown["rounds"]] == [
        *("probe", "train", "measure", "tally", "slope")
    ]
    assert shown["rounds"][1]["rows"] == 10
    assert all(not name.startswith("name") for name in shown["features"])


def test_all_refusals_are_shown_at_once(tmp_path: Path) -> None:
    files = clinics(tmp_path, "hidden = true\n[limits]\nnoise = true\n")
    shown = check_site(files[0], parse(BASE, [RATES, "algorithm.batch=2"]))
    keys = {each["limit"] for each in shown["refused"]}
    assert keys == {"limits.least_batch", "hidden", "limits.noise", "limits.least_rows"}
    assert "before round 1" in shown["rounds_unknown"]


def test_it_is_printed_for_people_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    file = clinics(tmp_path)[0]
    (tmp_path / "run.toml").write_text(BASE)
    done = shell("deploy", "check", file, tmp_path / "run.toml", "--set", HIDDEN)
    assert done.code == 0, done.err
    assert "added to what the other sites send under masks" in done.out
    assert "column ward: text; rows by value: north" in done.out
    assert not any(name in done.out for name in table()["name"])
    done = shell("deploy", "check", file, tmp_path / "run.toml", "--json", "--sites", 3)
    assert json.loads(done.out)["sites"] == 3
    assert json.loads(done.out)["census"]["rows"] == 64


def test_a_table_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    file = clinics(tmp_path)[0]
    (tmp_path / "0.csv").unlink()
    with pytest.raises(UserError, match=r"0\.csv"):
        check_site(file, parse(BASE))
