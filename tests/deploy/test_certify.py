"""Limits on new rows in a deployment: the counts of the simulator, and who learns what."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
from fedssca.errors import UserError
from fedssca.evaluate.confidence.claims import ClaimResult
from fedssca.evaluate.confidence.plain import plain_claim, retested
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode, note, read_note
from fedssca.run.build import build
from fedssca.run.config import Config, parse
from fedssca.run.execute import execute
from fedssca.run.promise import canonical, read_certificate, read_opening
from fedssca.run.promise.verify import verify_certificate
from fedssca.run.promise.watch import watch
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
rounds = 5
rho = {a = 0.9, alpha = 0.6}
gamma = {a = 0.5, alpha = 0.9}
tau = 0.2
multipliers = "exact"
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


LIMIT = "problem.constraint=[{kind='fnr', positive=1, limit=0.5},{kind='loss', limit=1.0}]"
COLUMNS = ["data.split=feature", "data.label_holder=1"]
CASES = {
    "rows, secure sum": ["privacy.secure_sum=true"],
    "columns, secure sum": [*COLUMNS, "privacy.secure_sum=true"],
    "columns": COLUMNS,
    "each site": ["problem.certify=each_site", LIMIT, "privacy.secure_sum=true"],
}


@pytest.fixture(scope="module", autouse=True)
def short_path() -> Iterator[None]:
    """Few models with few steps between them, and few thresholds that are tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedssca.evaluate.confidence.path.STEPS", 1)
        patch.setattr("fedssca.evaluate.confidence.path.SHARES", (2.0, 0.0))
        patch.setattr("fedssca.evaluate.confidence.path.SHIFTS", (2.0,))
        patch.setattr("fedssca.evaluate.thresholds.TOTAL", 12)
        yield


class Finished(NamedTuple):
    """A deployed run with a certificate."""

    config: Config
    folder: Path
    certificate: dict[str, Any]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def kept(self, site: int, end: str) -> Path:
        """What a site keeps of its calibration rows."""
        return self.folder / "data" / f"site-{site + 1}.calibration" / f"{RUN.hex()}{end}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """Each of the cases, deployed once."""

    @cache
    def one(case: str) -> Finished:
        folder = tmp_path_factory.mktemp("deployed")
        config = asked(folder, *CASES[case])
        return Finished(config, folder, deployed(config, SITES, folder)[0]["certificate"])

    return one


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], dict[str, Any]]:
    """The certificate of the simulator, with columns or with rows; hiding sums changes nothing."""

    @cache
    def one(columns: bool) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("simulated")
        config = asked(folder, *(COLUMNS if columns else []))
        found: dict[str, Any] = execute(config, folder / "run")["certificate"]
        return found

    return one


@pytest.mark.parametrize("case", ["rows, secure sum", "columns, secure sum", "columns"])
def test_the_bounds_are_those_of_the_simulator(
    case: str, finished: Callable[[str], Finished], simulated: Callable[[bool], dict[str, Any]]
) -> None:
    ours, theirs = finished(case).certificate, simulated(case.startswith("columns"))
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


@pytest.mark.parametrize("case", ["rows, secure sum", "columns", "each site"])
def test_a_deployed_certificate_is_verified_and_counted_again(
    case: str, finished: Callable[[str], Finished], tmp_path: Path
) -> None:
    done = finished(case)
    found = verify_certificate(done.run, [done.kept(site, ".npz") for site in range(SITES)])
    claims = len(done.certificate["claims"])
    counted = SITES if case == "each site" else claims  # of losses a site alone knows its bets
    assert f"{counted} of {claims} claims, counted again from these rows" in found.checked
    assert found.certificate.signers == [f"site-{i + 1}" for i in range(SITES)]
    if case == "each site":
        assert any("only the site itself knows" in line for line in found.skipped)
    people = done.folder / "people.csv"
    if case == "columns":
        with pytest.raises(UserError, match="no party has all columns"):
            watch(done.run, people, state=tmp_path / "state.json")
    else:
        assert watch(done.run, people, state=tmp_path / "state.json")["rows"] == 1200
    shutil.copytree(done.run, tmp_path / "run")
    whole = json.loads((tmp_path / "run" / "result.json").read_text())
    whole["certificate"]["certified"] = not whole["certificate"]["certified"]
    (tmp_path / "run" / "result.json").write_text(json.dumps(whole))
    with pytest.raises(UserError, match=r"certificate\.certified is not what"):
        verify_certificate(tmp_path / "run")


def simulated_claims(config: Config, w: np.ndarray) -> list[ClaimResult]:
    """What the simulator says of a model on the calibration rows of all sites."""
    with jax.enable_x64(True):
        job = build(config)
        assert job.calibration is not None
        point = job.problem.extended(jnp.asarray(w))
        tally = evaluator_over(job.problem, job.clients, None).tally(point)
        return job.calibration.tester(job.problem).test(point, tally).claims


def test_every_site_tests_its_own_rows(finished: Callable[[str], Finished]) -> None:
    """The server learns that all sites passed; a site's own numbers are those of the simulator."""
    done = finished("each site")
    certificate = done.certificate
    assert certificate["certified"] is True
    assert {claim["site"] for claim in certificate["claims"]} == set(range(SITES))
    assert all(claim["evidence"] is None for claim in certificate["claims"])
    assert all(entry["calibration_counts"] is None for entry in certificate["constraints"])
    w = np.load(done.run / "model.npz")["w"]
    theirs = simulated_claims(done.config, w)
    for number in range(SITES):
        own = json.loads(done.kept(number, ".json").read_text())["models"][model_digest(w)]
        expected = [plain_claim(claim) for claim in theirs if claim.site == number]
        for mine, other in zip(own, expected, strict=True):
            if "hits" in other["evidence"]:
                assert {name: mine[name] for name in other} == other | {"site": None}
            assert mine["passed"] is other["passed"] is True
            assert mine["bound"] is not None


PAIR = 2
"""The number of sites of small runs."""
NOISE = [
    "data.clients=2",
    # Any model keeps these: the noise comes from the operating system and cannot be seeded.
    "problem.constraint=[{kind='error', limit=0.95},{kind='loss', limit=3}]",
    "privacy.clip=1.0",
    "privacy.value_clip=3.0",
    "privacy.noise_multiplier=0.5",
    "algorithm.rounds=3",
    "algorithm.batch=60",
]
NOISED = {
    "rows, secure sum": ["privacy.secure_sum=true"],
    "columns": COLUMNS,
    "each site": ["problem.certify=each_site"],
}


@pytest.mark.filterwarnings("ignore:privacy. noise hides samples from the server only")
@pytest.mark.parametrize("case", NOISED)
def test_counts_with_noise_certify_and_are_accounted_for(case: str, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    config = asked(tmp_path, *NOISE, *NOISED[case])
    result, _, link = deployed(config, PAIR, tmp_path)
    certificate = result["certificate"]
    assert certificate["certified"] is True
    assert certificate["models_tested"] == 1
    assert result["epsilon"] >= result["calibration_epsilon"] > 0
    assert "the counts of calibration rows" in result["epsilon_covers"]
    for entry in certificate["constraints"]:
        assert (entry["certified"], entry["confidence"]) == (True, pytest.approx(0.9))
        assert entry["bound"] is not None
        assert 100 < entry["calibration_rows"] < 700
    assert sum(decode(each).kind == "evidence/reply" for each in link.envelopes) == PAIR
    for site in range(PAIR):
        ledger = json.loads((tmp_path / "data" / f"site-{site + 1}.ledger.json").read_text())
        (entry,) = ledger.values()
        assert entry["epsilon"] > 1.2 * result["epsilon"]  # both kinds of releases add up there
    rows = [
        tmp_path / "data" / f"site-{site + 1}.calibration" / f"{RUN.hex()}.npz"
        for site in range(PAIR)
    ]
    found = verify_certificate(tmp_path / "run", rows)
    told = [claim["evidence"] for claim in certificate["claims"]]
    if case == "each site":
        assert told == [None] * len(told)
        return
    assert "2 of 2 claims, counted again from these rows" in found.checked
    assert all(each["noise"] > 0.1 for each in told)
    said = json.loads(canonical(found.certificate.statement))
    for claim in said["claims"]:
        claim["evidence"]["noise"] /= 2
    said["claims"] = [retested(claim) for claim in said["claims"]]
    if case != "columns":  # a party with columns knows a part of the model only
        shown = note({"statement": canonical(said).decode()})
        shown["w"] = np.load(tmp_path / "run" / "model.npz")["w"]
        asking = encode(Envelope("sign", RUN, 0, shown))
        answer = decode(link.parties["site-1"].handle(asking, lambda *_: None))
        assert "does not state the noise" in read_note(answer)["message"]
    assert not any(float(each["rows"][0]).is_integer() for each in told)


def test_encrypted_sums_of_counts_certify(tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    settings = [*SMALL, "privacy.homomorphic=true", f"data.clients={PAIR}"]
    config = parse(BASE, [f"data.path={table(tmp_path, 400)}", *settings])
    assert deployed(config, PAIR, tmp_path)[0]["certificate"]["certified"] is True
    rows = [tmp_path / "data" / f"site-{i}.calibration" / f"{RUN.hex()}.npz" for i in (1, 2)]
    assert (
        "1 of 1 claims, counted again from these rows"
        in verify_certificate(tmp_path / "run", rows).checked
    )


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
        "do not follow from its counts": lambda s: s["claims"][0]["evidence"].update(hits=[7]),
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
