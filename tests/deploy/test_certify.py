"""Limits on new rows in a deployment: the counts of the simulator, and who learns what."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.tables import write_csv
from fedssca.deploy.check import check_site
from fedssca.deploy.evidence import MOST_MODELS
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.deploy.site.calibration import CalibrationUse, model_digest
from fedssca.evaluate.confidence.claims import ClaimResult
from fedssca.evaluate.confidence.plain import plain_claim, retested
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode, note, read_note
from fedssca.run.build import build
from fedssca.run.config import Config, parse
from fedssca.run.execute import execute
from fedssca.run.promise import canonical, read_certificate, read_opening
from tests.attacks import clinic
from tests.attacks.clinic import clinics
from tests.deploy.loopback import RUN, Loopback, deployed, parties

pytestmark = [
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
    pytest.mark.filterwarnings("ignore:the sum of two parties"),
]
SITES = 4
BASE = """
[data]
label = "y"
id = "id"
clients = 4
calibration_fraction = 0.4
[model]
name = "linear"
[problem]
confidence = 0.9
[[problem.constraint]]
kind = "fnr"
positive = 1
limit = 0.3
[[problem.constraint]]
kind = "opportunity"
column = "group"
limit = 0.3
[[problem.constraint]]
kind = "loss"
limit = 0.7
[algorithm]
batch = 20
rounds = 6
[run]
evaluate_every = 5
precision = "float64"
"""


def table(folder: Path, rows: int = 1200) -> Path:
    """People with an id, two groups, and a label that three columns predict."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((rows, 3))
    y = (x @ [1.0, -0.7, 0.4] + 0.7 * rng.standard_normal(rows) > 0).astype(int)
    columns: dict[str, Any] = {f"x{j}": x[:, j] for j in range(3)}
    columns["group"] = np.where(rng.random(rows) < 0.5, "north", "south")
    columns |= {"id": np.array([f"p{i:05d}" for i in range(rows)]), "y": y}
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "people.csv", columns)
    return folder / "people.csv"


def asked(folder: Path, *settings: str) -> Config:
    return parse(BASE, [f"data.path={table(folder)}", *settings])


EACH_SITE = [
    "problem.certify=each_site",
    "problem.constraint=[{kind='fnr', positive=1, limit=0.5},{kind='loss', limit=1.0}]",
]
CASES = {
    "rows, secure sum": ["privacy.secure_sum=true"],
    "columns, secure sum": [
        "data.split=feature",
        "data.label_holder=1",
        "privacy.secure_sum=true",
    ],
}


@pytest.fixture(autouse=True)
def short_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few models with few steps between them."""
    monkeypatch.setattr("fedssca.evaluate.confidence.path.STEPS", 2)
    monkeypatch.setattr("fedssca.evaluate.confidence.path.SHARES", (2.0, 1.0, 0.0))


@pytest.mark.parametrize("case", CASES)
def test_the_bounds_are_those_of_the_simulator(case: str, tmp_path: Path) -> None:
    config = asked(tmp_path, *CASES[case])
    theirs = execute(config, tmp_path / "simulated")["certificate"]
    ours = deployed(config, SITES, tmp_path)[0]["certificate"]
    assert ours["certified"] is theirs["certified"] is True
    for name in ("confidence", "certify", "models_tested"):
        assert ours[name] == theirs[name]
    for mine, other in zip(ours["constraints"], theirs["constraints"], strict=True):
        for name in ("bound", "calibration_rows", "certified", "confidence"):
            assert mine[name] == other[name], name
        counts = [np.array(entry["calibration_counts"]) for entry in (mine, other)]
        np.testing.assert_allclose(*counts, rtol=1e-6)
    for mine, other in zip(ours["claims"], theirs["claims"], strict=True):
        if "hits" in other["evidence"]:
            assert mine == other


def simulated_claims(config: Config, w: np.ndarray) -> list[ClaimResult]:
    """What the simulator says of a model on the calibration rows of all sites."""
    with jax.enable_x64(True):
        job = build(config)
        assert job.calibration is not None
        point = job.problem.extended(jnp.asarray(w))
        tally = evaluator_over(job.problem, job.clients, None).tally(point)
        return job.calibration.tester(job.problem).test(point, tally).claims


def test_every_site_tests_its_own_rows(tmp_path: Path) -> None:
    """The server learns that all sites passed; a site's own numbers are those of the simulator."""
    config = asked(tmp_path, *EACH_SITE, "privacy.secure_sum=true")
    certificate = deployed(config, SITES, tmp_path)[0]["certificate"]
    assert certificate["certified"] is True
    assert {claim["site"] for claim in certificate["claims"]} == set(range(SITES))
    assert all(claim["evidence"] is None for claim in certificate["claims"])
    assert all(entry["calibration_counts"] is None for entry in certificate["constraints"])
    w = np.load(tmp_path / "run" / "model.npz")["w"]
    theirs = simulated_claims(config, w)
    for number in range(SITES):
        kept = tmp_path / "data" / f"site-{number + 1}.calibration" / f"{RUN.hex()}.json"
        own = json.loads(kept.read_text())["models"][model_digest(w)]
        expected = [plain_claim(claim) for claim in theirs if claim.site == number]
        for mine, other in zip(own, expected, strict=True):
            if "hits" in other["evidence"]:
                assert {name: mine[name] for name in other} == other | {"site": None}
            assert mine["passed"] is other["passed"] is True
            assert mine["bound"] is not None


SMALL = [
    "data.calibration_fraction=0.5",
    "problem.constraint=[{kind='fnr', positive=1, limit=0.6}]",
    "algorithm.rounds=3",
]


def test_a_site_signs_only_what_it_knows(tmp_path: Path) -> None:
    """All sites sign what they counted; a server that changes anything gets no signature."""
    config = parse(BASE, [f"data.path={table(tmp_path, 400)}", *SMALL, "deploy.robust=median"])

    def tamper(site: str, asked: bytes, answer: bytes) -> bytes | None:
        return None if site == "site-3" and decode(asked).kind == "sign" else answer

    with pytest.raises(SitesMissing, match="site-3"):
        deployed(config, SITES, tmp_path, tamper=tamper)
    assert not (tmp_path / "run" / "certificate.json").exists()
    _, _, link = deployed(config, SITES, tmp_path, resume=True)
    certificate = read_certificate(tmp_path / "run" / "certificate.json")
    certificate.check_signers()
    kept: list[dict[str, Any]] = []
    for name, told in zip(link.parties, certificate.statement["commitments"], strict=True):
        folder = tmp_path / "data" / f"{name}.calibration"
        assert read_opening(folder / f"{RUN.hex()}.npz").committed == told
        kept.append(json.loads((folder / f"{RUN.hex()}.json").read_text())["models"])
    w = np.load(tmp_path / "run" / "model.npz")["w"]
    own = [models[model_digest(w)][0]["evidence"] for models in kept]
    for name in ("rows", "hits"):  # counts are added up whatever joins the messages of a round
        total = certificate.statement["claims"][0]["evidence"][name]
        assert total == np.sum([each[name] for each in own], axis=0).tolist()

    def says(change: Callable[[dict[str, Any]], object], model: np.ndarray = w) -> str:
        statement = json.loads(canonical(certificate.statement))
        change(statement)
        told = note({"statement": canonical(statement).decode()}) | {"w": model}
        answer = decode(
            link.parties["site-2"].handle(encode(Envelope("sign", RUN, 0, told)), lambda *_: None)
        )
        return read_note(answer)["message"] if answer.kind == "error" else ""

    def fewer_rows(statement: dict[str, Any]) -> None:
        claim = statement["claims"][0]
        claim["evidence"] |= {"rows": [9], "hits": [0]}
        statement["claims"] = [retested(claim)]
        statement["certified"] = statement["claims"][0]["passed"]

    assert not says(lambda s: s)
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "signers": lambda s: s.update(signers=["site-1"]),
        "commitment": lambda s: s["commitments"][1].update(sha256="00"),
        "another configuration": lambda s: s.update(config_sha256="00"),
        "other training rows": lambda s: s.update(training_rows=[1, 2, 3, 4]),
        "do not follow from its counts": lambda s: s["claims"][0]["evidence"].update(hits=[0]),
        "does not follow from its claims": lambda s: s.update(certified=not s["certified"]),
        "the claims of the run's limits": lambda s: s.update(claims=[], certified=True),
        "do not contain those of this site": fewer_rows,
        "no statement": lambda s: s.pop("claims"),
    }
    for words, change in changes.items():
        assert words in says(change), words
    assert "not the one that it is about" in says(lambda s: s, w + 1)


def test_sites_are_named_if_they_ask_for_it(tmp_path: Path) -> None:
    """The server learns how many sites pass, and of others nothing."""
    both = "problem.constraint=[{kind='fnr', positive=1, limit=0.1},{kind='fpr', limit=0.1}]"
    given = ["data.calibration_fraction=0.5", both, "algorithm.rounds=3"]
    settings = [*given, "problem.certify=each_site", "privacy.secure_sum=true"]
    config = parse(BASE, [f"data.path={table(tmp_path, 400)}", *settings])
    files = write_site_files(config, SITES, tmp_path / "data")
    files[1].write_text("named = true\n" + files[1].read_text())
    order = RunOrder(config, site_names(SITES), RUN)
    result = RunServer(order, Loopback(parties(files)), tmp_path / "run").run()
    assert result["certificate"]["certified"] is False
    assert [entry["bound"] for entry in result["certificate"]["constraints"]] == [None, None]
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert "of 4 sites have too few calibration rows to certify it for any model" in events
    (note,) = [note for note in result["notes"] if note.startswith("not certified")]
    assert "of 4 sites could make the statement" in note
    assert note.endswith("not passed: site-2")


def test_questions_about_calibration_rows_are_counted() -> None:
    used, bets = CalibrationUse(), {"fnr": np.full((1, 2, 3), 0.5)}
    for model in range(MOST_MODELS):
        assert used.check(str(model), bets)
    with pytest.raises(InvalidMessage, match="and not more"):
        used.check("one more", bets)
    with pytest.raises(InvalidMessage, match="once, with the same bets"):
        used.check("0", {"fnr": bets["fnr"] / 2})
    with pytest.raises(InvalidMessage, match="less than 1"):
        used.check("0", {"fnr": 2 * bets["fnr"]})
    assert not used.check("0", {"fnr": 0 * bets["fnr"]})


def test_limits_of_sites_hold_for_calibration_rows(tmp_path: Path) -> None:
    """Too few calibration rows in a group are not counted, unless their sums are hidden."""
    rates = "problem.constraint=[{kind='parity', column='ward', limit=0.1, positive='ill'}]"
    files = clinics(tmp_path, rows=1500)
    given = [rates, "algorithm.name=ssca", "problem.confidence=0.9"]
    shown = check_site(files[0], parse(clinic.BASE, given))
    assert not shown["refused"]
    assert [each["stage"] for each in shown["rounds"]][-1] == "evidence"
    few = [*given, "data.calibration_fraction=0.03"]
    (refused,) = check_site(files[0], parse(clinic.BASE, few))["refused"]
    assert refused["limit"] == "limits.least_rows"
    assert "group of rows" in refused["why"]
    assert not check_site(files[0], parse(clinic.BASE, [*few, clinic.HIDDEN]))["refused"]
    none = check_site(files[0], parse(clinic.BASE, [*given, "data.calibration_fraction=0.003"]))
    assert "fewer calibration rows" in none["refused"][0]["why"]
