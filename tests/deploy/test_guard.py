"""The guard is the only way out of a site: in the source, and in runs whose bytes are all seen."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedssca.deploy
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.site.guard import Guard
from fedssca.errors import UserError
from fedssca.run.config import parse
from tests.deploy.loopback import RUN, Loopback, deployed, parties

DEPLOY = Path(fedssca.deploy.__file__).parent
WIRES = {
    *("socket", "ssl", "http", "urllib", "requests", "httpx", "ftplib", "smtplib", "telnetlib"),
    *(
        "asyncio",
        "multiprocessing",
        "subprocess",
        "ctypes",
        "nvflare",
        "grpc",
        "flwr",
        "webbrowser",
    ),
}
"""Modules by which a process could reach another one."""
CONFIG = """
[data]
name = "digits"
[model]
hidden = 4
[algorithm]
name = "sgd"
rate = 0.1
batch = 50
rounds = 3
"""
RUNS = {
    "rows": [],
    "rows under masks": ["privacy.secure_sum=true"],
    "columns": ["data.split=feature"],
    "columns with one label holder": ["data.split=feature", "data.label_holder=1"],
    "columns under masks": ["data.split=feature", "privacy.secure_sum=true"],
}


def tree(path: str) -> ast.Module:
    return ast.parse((DEPLOY / path).read_text())


def methods(module: ast.Module, owner: str) -> dict[str, ast.FunctionDef]:
    (found,) = [n for n in module.body if isinstance(n, ast.ClassDef) and n.name == owner]
    return {n.name: n for n in found.body if isinstance(n, ast.FunctionDef)}


def returned(function: ast.FunctionDef) -> Iterator[str]:
    """What the function itself returns, not those inside it."""
    inner = {
        id(n) for f in ast.walk(function) if f is not function and _makes(f) for n in ast.walk(f)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None and id(node) not in inner:
            yield ast.unparse(node.value).split("(")[0]


def _makes(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.Lambda)


def test_the_engine_sends_only_what_a_party_returns() -> None:
    job = tree("engines/nvflare/job.py")
    site = methods(job, "JobSite")
    published = {
        name
        for name, each in site.items()
        if any(ast.unparse(mark) == "collab.publish" for mark in each.decorator_list)
    }
    assert published == {"handle", "put"}
    # A site without data has no party; all it says is the error that the guard's module words.
    assert set(returned(site["handle"])) == {"self._party.handle", "error_answer"}
    assert set(returned(site["put"])) <= {"True", "False"}
    uses = [n for n in ast.walk(job) if isinstance(n, ast.Name) and n.id == "_post"]
    assert len(uses) == 1  # given to Party.handle, and used nowhere else


def test_a_party_returns_only_what_the_guard_released() -> None:
    handle = methods(tree("site/party.py"), "Party")["handle"]
    assert set(returned(handle)) == {"self._guard.answer", "self._guard.error"}
    uses = [n for n in ast.walk(handle) if isinstance(n, ast.Name) and n.id == "post"]
    (call,) = [
        n
        for n in ast.walk(handle)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "self._guard.to_peers"
    ]
    assert uses == [call.args[0]]  # the engine's function goes to the guard, and nowhere else


def test_no_module_of_a_site_knows_another_way_out() -> None:
    for file in sorted((DEPLOY / "site").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not WIRES & {name.split(".")[0] for name in names}, file.name
            assert not any(name.startswith("fedssca.deploy.engines") for name in names), file.name


@pytest.mark.parametrize("case", RUNS)
def test_every_byte_that_is_sent_was_released(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[bytes] = []
    answer, error, to_peers = Guard.answer, Guard.error, Guard.to_peers

    def spy(original: Any) -> Any:
        def call(self: Guard, *given: Any) -> bytes:
            out: bytes = original(self, *given)
            released.append(out)
            return out

        return call

    def spied_peers(self: Guard, post: Any, about: Any, seal: Any) -> Any:
        def seen(envelopes: Any, seconds: float) -> None:
            released.extend(envelopes.values())
            post(envelopes, seconds)

        return to_peers(self, seen, about, seal)

    monkeypatch.setattr(Guard, "answer", spy(answer))
    monkeypatch.setattr(Guard, "error", spy(error))
    monkeypatch.setattr(Guard, "to_peers", spied_peers)
    _, _, link = deployed(parse(CONFIG, RUNS[case]), 3, tmp_path)
    sent = Counter(link.answers) + Counter(link.peer_envelopes)
    assert sent == Counter(released)
    assert bool(link.peer_envelopes) == (case in ("columns", "columns with one label holder"))


@pytest.mark.filterwarnings("ignore:epsilon assumes")
def test_what_a_run_spends_is_in_the_ledger_of_every_site(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    noise = ["privacy.clip=1.0", "privacy.noise_multiplier=2.0", "privacy.secure_sum=true"]
    found, _, _ = deployed(parse(CONFIG, noise), 3, tmp_path)
    for number in (1, 2, 3):
        ledger = json.loads((tmp_path / f"data/site-{number}.ledger.json").read_text())
        (job,) = (job for data in ledger.values() for job in data["jobs"].values())
        assert job["epsilon"] == pytest.approx(found["epsilon"])
        assert job["rounds"] >= 2


NOISE = ["privacy.clip=1.0", "privacy.epsilon=3.0", "run.evaluate_every=2"]
"""Noise on messages that the server reads one by one."""


@pytest.mark.parametrize(
    ("limit", "settings", "said"),
    [
        ("noise = true", NOISE, ""),
        ("most_epsilon = 3.1", NOISE, ""),
        ("most_epsilon = 2.9", NOISE, "limits.most_epsilon = 2.9"),
        ("noise = true", [], "limits.noise = true"),
    ],
)
def test_noised_evaluations_pass_where_noise_is_required(
    limit: str, settings: list[str], said: str, tmp_path: Path
) -> None:
    """Without hidden sums too: what the server reads of an evaluation carries noise."""
    pytest.importorskip("dp_accounting")
    config = parse(CONFIG, settings)
    files = write_site_files(config, 3, tmp_path / "data")
    for file in files:
        file.write_text(file.read_text() + f"{limit}\n")
    order = RunOrder(config, site_names(3), RUN)
    server = RunServer(order, Loopback(parties(files)), tmp_path / "run")
    if said:
        with pytest.raises(UserError, match=f"refused by {said}"):
            server.run()
        return
    found = server.run()
    assert found["private_evaluations"] == 2
    (data,) = json.loads((tmp_path / "data/site-1.ledger.json").read_text()).values()
    assert data["epsilon"] == pytest.approx(found["epsilon"])
    assert found["epsilon"] <= 3.001
