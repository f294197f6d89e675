"""Real processes, real certificates, loopback: what holds in one process holds between many.

Slow, so few: one deployment of sites with rows and one of parties with columns serve all tests
here. A run between processes is compared bit for bit with the same run in one process (`deployed`);
tests/deploy/test_run.py compares the latter with the simulator. What one process has compiled, the
others read: so the run in one process comes first.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fedssca.data.sampling import batch_indices
from fedssca.errors import UserError
from fedssca.run.build import build
from fedssca.run.config import Config, parse, render
from fedssca.run.execute import execute
from fedssca.run.schema import ProjectFile

pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")
psutil = pytest.importorskip("psutil")


from fedssca.deploy.engine import Session  # noqa: E402
from fedssca.deploy.engines import nvflare  # noqa: E402
from fedssca.deploy.local import LocalDeployment, local_deployment  # noqa: E402
from fedssca.deploy.processes import ending  # noqa: E402
from fedssca.deploy.server.run import RunOrder, RunServer  # noqa: E402
from fedssca.deploy.submit import (  # noqa: E402
    Follower,
    SubmittedRun,
    ask_for,
    await_sites,
    follow,
)
from fedssca.run.model import joint_predictions, load_model, write_predictions  # noqa: E402
from tests.deploy.loopback import RUN, Loopback, deployed, parties  # noqa: E402

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BASE = """
[data]
name = "digits"
[model]
hidden = 8
[algorithm]
batch = 10
rounds = 50
rho = {a = 0.9, alpha = 0.1}
gamma = {a = 0.5, alpha = 0.1}
tau = 0.2
[run]
evaluate_every = 20
[deploy]
timeout = 60
"""
LIMIT = [
    "problem.constraint=[{kind='loss', limit=1.9}]",
    "problem.objective=norm",
    "algorithm.multipliers=exact",
]
LONGEST = 600.0
"""Seconds that nothing here takes, however busy the machine is."""
SPY = Path(__file__).parent / "spy"
Row = dict[str, Any]


class Bench:
    """A deployment on this machine, and a session to submit runs."""

    def __init__(self, made: LocalDeployment, session: Session, spy: Path = Path()) -> None:
        self.deployment, self.session, self.spy = made, session, spy
        self.said: list[str] = []

    def run(
        self,
        config: Config,
        out: Path,
        during: Callable[[Row], None] = lambda row: None,
        submitted: SubmittedRun | None = None,
        sites: list[str] | None = None,
    ) -> Row:
        """A run of all sites to its end; `during` sees its rows, and may do damage."""
        again = submitted is not None
        sites = sites or self.deployment.sites
        submitted = submitted or SubmittedRun.new(sites, render(config))
        submitted.write(out)
        self.said.clear()
        tell = Follower(lambda row, live: during(row), self.said.append)
        return follow(self.session, submitted, out, again, tell, LONGEST)

    def jobs(self, party: str) -> list[Any]:
        """The job processes of a party."""
        return list(psutil.Process(self.deployment.processes[party].pid).children(recursive=True))

    def kill(self, party: str) -> None:
        """kill -9: the party's process; what it started ends with it."""
        self.deployment.processes[party].kill()
        self.deployment.processes[party].wait()


def columns(config: str) -> str:
    return config.replace('"digits"', '"digits"\nsplit = "feature"').replace("= 10", "= 50")


@pytest.fixture(scope="module")
def rows_bench() -> Iterator[Bench]:
    with (
        local_deployment(nvflare, parse(BASE), 3) as made,
        nvflare.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, LONGEST)
        yield Bench(made, session)
    assert not left_behind(str(made.kits["server"].path.parent))


@pytest.fixture(scope="module")
def columns_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    spy = tmp_path_factory.mktemp("spy")
    path = os.pathsep.join(filter(None, [str(SPY), os.environ.get("PYTHONPATH")]))
    environment = {"FEDSSCA_SPY": str(spy), "PYTHONPATH": path}
    with (
        local_deployment(nvflare, parse(columns(BASE)), 3, environment=environment) as made,
        nvflare.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, LONGEST)
        yield Bench(made, session, spy)


def left_behind(place: str) -> list[str]:
    """Processes of the kits at `place` that outlived them; jobs have a second to notice."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        found = [
            " ".join(process.info["cmdline"])
            for process in psutil.process_iter(["cmdline"])
            if place in " ".join(process.info["cmdline"] or [])
        ]
        if not found:
            return []
        time.sleep(0.2)
    return found


def alike(left: Path, right: Path) -> None:
    a, b = (np.load(folder / "model.npz")["w_last"] for folder in (left, right))
    assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(a)


def test_a_recipe_of_nvflare(rows_bench: Bench, tmp_path: Path) -> None:
    """NVFlare's own session submits, follows and downloads; results are in NVFlare's places."""
    pytest.importorskip("tensorboard")
    from nvflare.recipe import ProdEnv, add_experiment_tracking

    from fedssca.nvflare import ConstrainedRecipe, run_directory

    config = parse(BASE, [*LIMIT, f"data.clients={len(rows_bench.deployment.sites)}"])
    execute(config, tmp_path / "simulated")
    (tmp_path / "run.toml").write_text(render(config))
    recipe = ConstrainedRecipe(name="digits", config=tmp_path / "run.toml")
    add_experiment_tracking(recipe, "tensorboard")
    kit = rows_bench.deployment.kits["submit"]
    env = ProdEnv(startup_kit_location=str(kit.path), username=kit.name, login_timeout=LONGEST)
    result = Path(recipe.execute(env).get_result())
    folder = run_directory(result)
    alike(tmp_path / "simulated", folder)
    saved, ours = np.load(result / "workspace/models/server.npy"), np.load(folder / "model.npz")
    assert (saved == ours["w"]).all()
    assert json.loads((folder / "result.json").read_text())["feasible"]
    (events,) = (result / "workspace/tb_events").rglob("events.out.tfevents*")
    assert b"constraint/loss" in events.read_bytes()


def test_misfit_is_named_and_garbage_survived(rows_bench: Bench, tmp_path: Path) -> None:
    host, port = rows_bench.deployment.kits["submit"].address.split(":")
    for junk in (b"\0" * 4096, b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096)):
        with socket.create_connection((host, int(port)), timeout=LONGEST) as line:
            line.sendall(junk)
    file = rows_bench.deployment.files["site-3"]
    data = dict(np.load(file.with_suffix(".npz")))
    before = file.read_text()
    data |= {name: data[name][..., :63] for name in ("x", "x_test", "features")}
    np.savez(file.with_name("narrow.npz"), **data)
    file.write_text(before.replace("site-3.npz", "narrow.npz"))
    try:
        with pytest.raises(UserError, match="site-3: it has 63 feature columns, site-1 has 64"):
            rows_bench.run(parse(BASE), tmp_path / "misfit", sites=["site-1", "site-3"])
    finally:
        file.write_text(before)


def test_stranger_is_refused(
    rows_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)  # flwr sets it, which hides the reason
    port = int(rows_bench.deployment.kits["submit"].address.split(":")[1])
    made = nvflare.provision(
        ProjectFile("local", "localhost", port, ["site-1", "site-9"]), tmp_path / "kits"
    )
    stranger = nvflare.open_kit(made["site-9"])
    process = stranger.start(rows_bench.deployment.files["site-1"])
    with ending({"site-9": process}):
        until = time.monotonic() + LONGEST
        while time.monotonic() < until and "CERTIFICATE_VERIFY_FAILED" not in _text(stranger.log):
            time.sleep(0.2)
    assert "CERTIFICATE_VERIFY_FAILED" in _text(stranger.log)
    assert set(rows_bench.session.connected()) == set(rows_bench.deployment.sites)


def test_killed_job_resumes_bit_for_bit(rows_bench: Bench, tmp_path: Path) -> None:
    settings = ["algorithm.rounds=600", "run.checkpoint_every=50", "run.evaluate_every=20"]
    config = parse(BASE, [*LIMIT, *settings, "data.clients=3"])
    deployed(config, 3, tmp_path / "unbroken")
    memory: list[tuple[int, dict[int, int]]] = []

    def damage(row: Row) -> None:
        if row["round"] >= 60:
            for job in rows_bench.jobs("server"):
                job.kill()

    def watch(row: Row) -> None:
        jobs = [*rows_bench.jobs("server"), *rows_bench.jobs("site-1")]
        if row["round"] >= 380:  # all is compiled, and the engine keeps as much as it ever will
            memory.append((row["round"], {job.pid: job.memory_info().rss for job in jobs}))

    with pytest.raises(UserError, match="--resume"):
        rows_bench.run(config, tmp_path / "broken", damage)
    submitted = SubmittedRun.read(tmp_path / "broken")
    rows_bench.run(config, tmp_path / "broken", watch, submitted)
    ours, theirs = (np.load(tmp_path / name / "model.npz") for name in ("broken", "unbroken/run"))
    assert (ours["w_last"] == theirs["w_last"]).all()
    rounds = [row["round"] for row in lines(tmp_path / "broken/metrics.jsonl")]
    assert rounds == [*range(0, 600, 20), 599]
    costs = lines(tmp_path / "broken/sites.jsonl")
    assert [cost["round"] for cost in costs] == list(range(1, 600))
    assert set(costs[0]["sites"]) == set(rows_bench.deployment.sites)
    assert memory[0][0] <= 400, "200 rounds"
    first, last = memory[0][1], memory[-1][1]
    assert first.keys() == last.keys()
    assert all(last[job] < 1.15 * first[job] for job in first), (first, last)


def test_killed_site_is_dropped_and_the_run_goes_on(rows_bench: Bench, tmp_path: Path) -> None:
    config = parse(BASE, [*LIMIT, "algorithm.rounds=150", "run.evaluate_every=25"])

    def damage(row: Row) -> None:
        if row["round"] == 25:
            rows_bench.kill("site-3")

    result = rows_bench.run(config, tmp_path / "run", damage)
    assert result["round"] == 149
    assert result["sites"] == 2
    events = lines(tmp_path / "run/events.jsonl")
    assert [event["site"] for event in events] == ["site-3"]
    assert any("site-3 dropped" in line for line in rows_bench.said)
    last = lines(tmp_path / "run/sites.jsonl")[-1]
    assert set(last["sites"]) == {"site-1", "site-2"}
    assert 0.62 < last["share"] < 0.72


def test_scattered_columns_are_aligned_and_predicted(columns_bench: Bench, tmp_path: Path) -> None:
    """New rows have no labels; of their ids, only those that all parties have are predicted."""
    config = parse(columns(BASE), [*LIMIT, "algorithm.rounds=5", "data.clients=3"])
    files = columns_bench.deployment.files
    before = {name: file.read_text() for name, file in files.items()}
    blocks = []
    try:
        for number, (name, file) in enumerate(files.items()):
            own, rng = dict(np.load(file.with_suffix(".npz"))), np.random.default_rng(ord(name[-1]))
            order = {"": rng.permutation(len(own["x"])), "_test": np.arange(len(own["x_test"]))[9:]}
            if name == "site-2":
                order[""] = order[""][31:]
            for key in own.keys() - {"features"}:
                own[key] = own[key][order["_test" if key.endswith("_test") else ""]]
            np.savez(file.with_name(f"{name}-scattered.npz"), **own)
            blocks.append(np.load(file.with_suffix(".npz"))["x_test"][:9])
            fresh = rng.permutation(9)[: 9 - number]
            new = file.with_name(f"{name}-new.npz")
            np.savez(new, x=blocks[-1][fresh], ids=fresh + 500, features=own["features"])
            more = f'predict = "{new.name}"\nshare_ids = {str(number == 1).lower()}\n'
            file.write_text(more + before[name].replace(name, f"{name}-scattered"))
        link = Loopback(parties(list(files.values())))
        server = RunServer(RunOrder(config, list(files), RUN), link, tmp_path / "here")
        server.run()
        here = server.predict()
        columns_bench.run(config, tmp_path / "real")
        submitted = SubmittedRun.read(tmp_path / "real")
        asked = (submitted, tmp_path / "real", "predict", LONGEST)
        told = ask_for(columns_bench.session, *asked)
    finally:
        for name, file in files.items():
            file.write_text(before[name])
    aligned = next(line for line in columns_bench.said if "aligned" in line)
    assert aligned.endswith("rows; site-1 leaves out 31, site-3 leaves out 31")
    ours, theirs = (np.load(tmp_path / name / "model.npz") for name in ("real", "here"))
    assert (ours["w_last"] == theirs["w_last"]).all()
    model = load_model(tmp_path / "real")
    found = joint_predictions(model, told)
    rows = [int(name) - 500 for name in found.ids["id"]]
    assert rows == sorted(rows)
    assert 5 <= len(rows) <= 7
    scores = model.scores(np.concatenate(blocks, axis=1)[rows])
    assert np.array(told["scores"]) == pytest.approx(scores, abs=1e-5)
    assert here["scores"] == told["scores"]
    out = io.StringIO()
    write_predictions(found, out)
    assert out.getvalue().splitlines()[0].startswith("id,prediction,p[0],p[1],")


def test_columns_pause_and_go_on_and_nobody_else_sees_h(
    columns_bench: Bench, tmp_path: Path
) -> None:
    settings = ["algorithm.rounds=120", "run.checkpoint_every=20", "data.clients=3"]
    config = parse(columns(BASE), [*LIMIT, *settings])
    deployed(config, 3, tmp_path / "unbroken")

    def damage(row: Row) -> None:
        if row["round"] == 40 and not columns_bench.said:
            columns_bench.kill("site-2")
            columns_bench.said.append("killed")

    def back(line: str) -> None:
        columns_bench.said.append(line)
        if line.startswith("paused"):
            columns_bench.deployment.start("site-2")

    submitted = SubmittedRun.new(columns_bench.deployment.sites, render(config))
    submitted.write(tmp_path / "run")
    tell = Follower(lambda row, live: damage(row), back)
    columns_bench.said.clear()
    follow(columns_bench.session, submitted, tmp_path / "run", False, tell, LONGEST)
    assert any(line.startswith("paused") and "site-2" in line for line in columns_bench.said)
    ours, theirs = (np.load(tmp_path / name / "model.npz") for name in ("run", "unbroken/run"))
    assert (ours["w_last"] == theirs["w_last"]).all()
    seen = b"".join(file.read_bytes() for file in columns_bench.spy.iterdir())
    job = build(config)
    split, clients = job.problem.vertical, job.clients
    assert split is not None
    index = np.asarray(batch_indices(0, 1, np.zeros(1, int), np.array([clients.total]), 50)[0])
    w = np.asarray(job.problem.start)
    for party in range(3):
        own = w[split.blocks[party + 1]]
        h = jax.jit(split.locals[party])(own, clients.client(party)["x"][index])
        assert own.tobytes() in seen, "the spy sees what the server sends"
        assert np.asarray(h)[0].tobytes() not in seen


def test_a_killed_command_leaves_nothing(tmp_path: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "fedssca", "deploy", "local", "--sites", "1", "--quiet"],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        started = psutil.Process(command.pid).children(recursive=True)
        if len(started) >= 2:
            break
        time.sleep(0.1)
    command.kill()
    command.wait()
    assert len(started) >= 2
    _, alive = psutil.wait_procs(started, timeout=LONGEST)
    assert not alive


def lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
