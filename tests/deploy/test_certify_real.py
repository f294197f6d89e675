"""Real processes, real certificates: a promise about new rows that all sites sign."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")
pytest.importorskip("cryptography")

from fedssca.deploy.engines import nvflare
from fedssca.deploy.local import local_deployment
from fedssca.deploy.signatures import check_signatures
from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow
from fedssca.run.config import parse, render
from fedssca.run.execute import execute
from fedssca.run.promise import read_certificate
from tests.deploy.test_certify import BASE, table

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_all_sites_sign_the_bounds_of_the_simulator(tmp_path: Path) -> None:
    limit = "problem.constraint=[{kind='fnr', positive=1, limit=0.4}]"
    settings = [
        limit,
        "data.clients=3",
        "privacy.secure_sum=true",
        "algorithm.rounds=6",
        "deploy.timeout=120",
    ]
    config = parse(BASE, [f"data.path={table(tmp_path, 800)}", *settings])
    out = tmp_path / "run"
    with (
        local_deployment(nvflare, config, 3, tmp_path / "logs") as made,
        nvflare.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, 600)
        run = SubmittedRun.new(made.sites, render(config))
        run.write(out)
        result = follow(session, run, out, False, Follower(lambda *_: None, print), 600.0)
        certificate = read_certificate(out / "certificate.json")
        assert check_signatures(certificate, made.kits["site-2"].path) == made.sites
    theirs = execute(config, tmp_path / "simulated")["certificate"]
    assert result["certificate"]["certified"] is theirs["certified"] is True
    assert certificate.statement["claims"] == theirs["claims"]
