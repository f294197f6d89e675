"""Certificates of deployments: verified, and counted again with the rows that sites keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.promise.verify import verify_certificate
from fedssca.run.promise.watch import watch
from tests.deploy.loopback import RUN, deployed
from tests.deploy.test_certify import BASE, SITES, SMALL, table

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
    pytest.mark.filterwarnings("ignore:the sum of two parties"),
]
CASES = {
    "rows": ["privacy.secure_sum=true"],
    "columns": ["data.split=feature", "data.label_holder=1"],
    "each site": ["problem.certify=each_site", "problem.constraint.0.limit=0.9"],
}


@pytest.mark.parametrize("case", CASES)
def test_a_deployed_certificate_is_verified_and_counted_again(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedssca.evaluate.confidence.path.STEPS", 1)
    people = table(tmp_path, 400)
    config = parse(BASE, [f"data.path={people}", *SMALL, *CASES[case]])
    deployed(config, SITES, tmp_path)
    run = tmp_path / "run"
    kept = [tmp_path / "data" / f"site-{i + 1}.calibration" for i in range(SITES)]
    found = verify_certificate(run, [folder / f"{RUN.hex()}.npz" for folder in kept])
    claims = SITES if case == "each site" else 1
    assert f"{claims} of {claims} claims, counted again from these rows" in found.checked
    assert found.certificate.signers == [f"site-{i + 1}" for i in range(SITES)]
    if case == "each site":
        assert any("only the site itself knows" in line for line in found.skipped)
    told = watch_or_line(run, people, tmp_path / "state.json")
    if case == "columns":
        assert "no party has all columns" in str(told)
    else:
        assert isinstance(told, dict)
        assert told["rows"] == 400
    whole = json.loads((run / "result.json").read_text())
    whole["certificate"]["certified"] = not whole["certificate"]["certified"]
    (run / "result.json").write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"certificate\.certified is not what"):
        verify_certificate(run)


def watch_or_line(run: Path, rows: Path, state: Path) -> dict[str, object] | str:
    try:
        return watch(run, rows, state=state)
    except UserError as error:
        return str(error)
