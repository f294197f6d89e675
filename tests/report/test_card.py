"""The model card: complete, from a file that others may have written, and only about one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.report.card import card_page
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.cli_helpers import SMALL, Shell

SETTINGS = ["run.purpose=Find <b>tumours</b> | early", "algorithm.rounds=3", "model.name=linear"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("card") / "run"
    execute(parse(SMALL, [*SETTINGS, "problem.confidence=0.9"]), out)
    return out


def test_a_card_tells_what_an_auditor_asks(run: Path) -> None:
    text = card_page(run)
    for part in (
        "Find &lt;b&gt;tumours&lt;/b&gt; | early",
        "Limits asked and promised",
        "calibration rows, which took no part in training",
        "client 3",
        "No noise was added",
        "What is not promised",
        "If the population changes, the promise ends",
        "certificate, sha256",
        "default-src &#x27;none&#x27;",
    ):
        assert part in text.replace("default-src 'none'", "default-src &#x27;none&#x27;")
    assert "<script" not in text
    told = json.loads((run / "result.json").read_text())["certificate"]
    assert ("✓ Certified: with 90 %" in text) == told["certified"]
    assert ("✗ Not certified" in text) != told["certified"]
    marked = card_page(run, markdown=True)
    assert "Find \\<b\\>tumours\\</b\\> \\| early" in marked
    assert "| limit | asked | training rows |" in marked


def test_a_card_of_a_changed_certificate_is_refused(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    file = copy / "certificate.json"
    file.write_text(file.read_text().replace('"confidence": 0.9', '"confidence": 0.99', 1))
    with pytest.raises(UserError, match=r"certificate\.json was changed"):
        card_page(copy)
    file.unlink()
    (copy / "result.json").unlink()
    with pytest.raises(UserError, match="holds no finished run"):
        card_page(copy)


def test_the_command(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    assert shell("report", "--card", run, "-o", tmp_path / "card.md").code == 0
    assert (tmp_path / "card.md").read_text().startswith("# Model card: run")
    shutil.copytree(run, tmp_path / "second")
    line = shell.refused("report", "--card", run, tmp_path / "second")
    assert "about one run" in line
