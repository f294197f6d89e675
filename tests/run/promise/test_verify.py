"""What `fedssca certificate verify` finds: forged, swapped and edited parts, each with its line."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.run.promise import Certificate, Opening, read_certificate, read_opening, write_opening
from fedssca.run.promise.verify import verify_certificate
from fedssca.run.record import RunDirectory
from tests.cli_helpers import Shell

pytestmark = pytest.mark.long
Row = dict[str, Any]


@pytest.fixture
def run(rows_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(rows_run, tmp_path / "run")
    return tmp_path / "run"


def forge(run: Path, change: Callable[[Row], None]) -> None:
    """Change the statement, and make the digest right again."""
    file = run / "certificate.json"
    statement = copy.deepcopy(read_certificate(file).statement)
    change(statement)
    file.write_text(Certificate(statement).text())


def test_a_genuine_certificate_is_counted_again(run: Path, columns_run: Path) -> None:
    found = verify_certificate(run, sorted((run / "calibration").glob("*.npz")))
    assert "4 of 4 claims, counted again from these rows" in found.checked
    assert found.skipped == []
    one = verify_certificate(run, [run / "calibration" / "1.npz"])
    assert "2 of 4 claims, counted again from these rows" in one.checked
    assert "the commitments of client 1" in one.checked
    joined = verify_certificate(columns_run, sorted((columns_run / "calibration").glob("*.npz")))
    assert "2 of 2 claims, counted again from these rows" in joined.checked
    part = verify_certificate(columns_run, [columns_run / "calibration" / "0.npz"])
    assert "2 claims: to count them again takes the rows of all holders" in part.skipped


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["claims"][0].update(p_value=0.0003), "the p-value is 0.0003, but its counts"),
        (lambda s: s["claims"][0].update(value=0.0123), "the value is 0.0123, but its counts give"),
        (lambda s: s["claims"][2]["evidence"].update(rows=[10**6]), "edited: loss, at client 0"),
        (lambda s: s["limits"][0]["promise"].update(high=0.1), "the bound is 0.1, but its counts"),
        (lambda s: s["limits"][0].update(high=0.1), "the limit is 0.1, but another one was tested"),
        (lambda s: s.update(confidence=0.99), "the confidence is 0.99, by the claims 0.9"),
        (lambda s: s["limits"].pop(), "a claim about constraint 1, but no limit"),
        (lambda s: s["claims"].pop(0), "not what certificate.json says"),
        (lambda s: s.pop("signers"), "the statement is not complete"),
        (lambda s: s.update(claims=3), "the statement is not complete"),
        (lambda s: s.update(model_sha256="0" * 64), "not the model that the certificate is about"),
        (lambda s: s.update(config_sha256="0"), "not the configuration that the certificate"),
        (lambda s: s["commitments"][0].update(rows=3), "committed themselves to 3"),
    ],
)
def test_edited_numbers_are_found(run: Path, change: Callable[[Row], None], said: str) -> None:
    forge(run, change)
    with pytest.raises(UserError) as error:
        verify_certificate(run)
    assert said in str(error.value)


def test_counts_and_all_that_follows_can_only_be_edited_at_both_places(run: Path) -> None:
    """Whoever edits counts, p-values and digest consistently still contradicts the holder."""
    from fedssca.evaluate.confidence.plain import retested

    def change(statement: Row) -> None:
        claim = statement["claims"][0]
        claim["evidence"]["hits"] = [claim["evidence"]["hits"][0] + 1]
        statement["claims"][0] = retested(claim)

    forge(run, change)
    with pytest.raises(UserError, match=r"result\.json: certificate\.claims is not"):
        verify_certificate(run)
    told = json.loads((run / "result.json").read_text())
    told["certificate"]["claims"] = read_certificate(run / "certificate.json").statement["claims"]
    (run / "result.json").write_text(json.dumps(told))
    verify_certificate(run)
    with pytest.raises(UserError, match=r"the certificate counts .*, these rows give"):
        verify_certificate(run, [run / "calibration" / "0.npz"])


def test_other_rows_and_another_salt_are_found(run: Path) -> None:
    shown = read_opening(run / "calibration" / "0.npz")
    other = dict(shown.columns) | {"y": 1 - shown.columns["y"]}
    for wrong, said in (
        (shown._replace(columns=other), "not those that it committed itself to"),
        (shown._replace(salt=bytes(32)), "not those that it committed itself to"),
        (Opening("site-9", shown.salt, other), "site-9: no holder of calibration rows"),
    ):
        write_opening(RunDirectory(run), "wrong.npz", wrong)
        with pytest.raises(UserError, match=said):
            verify_certificate(run, [run / "wrong.npz"])


def test_a_swapped_model_is_found(run: Path, columns_run: Path) -> None:
    w = np.load(run / "model.npz")["w"]
    np.savez(run / "model.npz", w=w + 1e-3, w_last=w)
    with pytest.raises(UserError, match=r"model\.npz is not the model .* swapped"):
        verify_certificate(run)
    shutil.rmtree(run / "model")
    shutil.copytree(columns_run / "model", run / "model")
    with pytest.raises(UserError, match="model is not the model that the certificate is about"):
        verify_certificate(run)


def test_another_configuration_is_found(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace("0.3", "0.4"))
    with pytest.raises(UserError, match=r"config\.toml is not the configuration"):
        verify_certificate(run)


def test_every_changed_byte_of_a_real_certificate_is_found(run: Path) -> None:
    file = run / "certificate.json"
    raw = file.read_bytes()
    for at in range(0, len(raw), 7):
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(UserError, match=r"changed|damaged"):
            read_certificate(file)


def test_the_command(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    seen = shell("certificate", "verify", run)
    assert seen.code == 0
    assert "no fault was found in the certificate: the limits hold on new rows" in seen.out
    alone = tmp_path / "alone.json"
    shutil.copy(run / "certificate.json", alone)
    told = json.loads(shell("certificate", "verify", alone, "--json").out)
    assert told["verified"] is True
    assert any("not in a run directory" in line for line in told["not_checked"])
    refused = {
        ("nothing.json",): "cannot be read",
        (tmp_path,): "has no certificate.json",
        (alone, "--data", run / "calibration" / "0.npz"): "--data needs the model",
        (run, "--data", run / "model.npz"): "holds no calibration rows",
    }
    for arguments, said in refused.items():
        assert said in shell.refused("certificate", "verify", *arguments)
