"""The server without a browser: who is refused, what is written, and that runs outlive it."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fedssca.system import ignoring_ctrl_c, pip_install
from tests.cli_helpers import SMALL, Shell
from tests.report.live.ui_helpers import LONG, Server, count_rows, wait_for
from tests.run_helpers import made_up, row

HOSTILE = "<img src=x onerror=alert(1)>"
READS = [
    "/api/runs",
    "/api/form",
    "/api/config?run=a",
    "/api/report?run=a",
    "/api/stream?run=a",
]
WRITES = ["/api/start", "/api/stop", "/api/resume", "/api/check"]


@pytest.fixture(scope="module", autouse=True)
def runs(folder: Path) -> None:
    made_up(folder / "a")
    made_up(folder / HOSTILE)
    made_up(folder.parent / "x")


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_nothing_is_read_or_written_without_the_token(
    server: Server, folder: Path, token: str
) -> None:
    before = sorted(folder.rglob("*"))
    for path in READS:
        assert server.ask(path, X_Fedssca_Token=token).code == 403, path
    for path in WRITES:
        said = {"name": "new", "toml": SMALL}
        assert server.ask(path, said, X_Fedssca_Token=token).code == 403, path
    assert folder.name not in server.ask("/", X_Fedssca_Token=token).body
    assert server.ask(f"/api/runs?token={server.token}", X_Fedssca_Token="").code == 403
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_names_of_this_machine_are_refused(server: Server, host: str) -> None:
    assert server.ask("/api/runs", Host=host).code in (400, 421)


def test_other_pages_are_refused(server: Server) -> None:
    said = {"name": "new", "toml": SMALL}
    assert server.ask("/api/start", said, Origin="http://evil.example").code == 403
    assert server.ask("/api/start", said, Content_Type="text/plain").code == 415
    assert server.ask("/api/runs", Origin=f"http://{server.host}").code == 200


def test_it_listens_on_this_machine_only(server: Server) -> None:
    port = int(server.host.rpartition(":")[2])
    assert server.host.startswith("127.0.0.1:")
    with socket.socket() as other:  # bound to all addresses, it would leave no room for this one
        other.bind(("127.0.0.2", port))


def test_the_page_comes_with_a_strict_policy(server: Server) -> None:
    answer = server.ask("/", X_Fedssca_Token="")
    assert answer.code == 200
    assert "unsafe" not in answer.body.partition("<style>")[0]


@pytest.mark.parametrize(
    "name", ["../x", "..%2Fx", "../../x", ".page", "/etc", "", "a%00", "a/../../x"]
)
def test_names_lead_nowhere_else(server: Server, folder: Path, name: str) -> None:
    for path in (f"/api/config?run={name}", f"/api/report?run={name}", f"/api/stream?run={name}"):
        answer = server.ask(path)
        assert answer.code == 400, path
        assert set(answer.body) == {"error", "field"}
    for path in ("/api/stop", "/api/resume"):
        assert server.ask(path, {"name": name}).code == 400
    answer = server.ask("/api/start", {"name": name, "toml": SMALL})
    assert answer.code == 422
    assert "letters" in answer.body["errors"]["name"]
    assert not (folder / ".page").exists()


@pytest.mark.parametrize("said", [[], 1, None, {"values": 1, "limits": [1]}, {"toml": 7}, {}])
def test_odd_questions_are_answered_kindly(server: Server, said: object) -> None:
    answer = server.ask("/api/start", said if said is not None else "x")
    assert 400 <= answer.code < 500
    assert set(answer.body) & {"error", "errors"}


def test_too_long_a_question_is_refused(server: Server) -> None:
    assert server.ask("/api/check", {"toml": "#" * 300_000}).code == 413


def test_there_is_no_more_than_there_is(server: Server) -> None:
    assert server.ask("/api/nothing").code == 404
    assert server.ask("/api/start").code == 405
    assert server.ask("/api/config?run=gone").code == 400
    assert "complete" in server.ask("/api/resume", {"name": "a"}).body["error"]
    assert "not started from this page" in server.ask("/api/stop", {"name": "a"}).body["error"]
    answer = server.ask("/api/start", {"name": "a", "toml": SMALL})
    assert "already" in answer.body["errors"]["name"]


def test_a_report_is_one_file(server: Server) -> None:
    answer = server.ask("/api/report?run=a&run=%3Cimg%20src=x%20onerror=alert(1)%3E")
    assert answer.code == 200
    assert answer.body.startswith("<!doctype html>")


def test_the_stream_tells_rows_and_the_end_of_a_run(server: Server, folder: Path) -> None:
    path = made_up(folder / "live", rows=1, done=False)
    events = server.events("live")
    kind, data = next(events)
    assert (kind, data["state"], data["series"]["round"]) == ("run", "running", [0])
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(5)) + "\n" + '{"round": 1')
    kind, data = next(events)
    assert (kind, data["series"]["round"]) == ("rows", [5])
    shutil.rmtree(path)
    assert next(events) == ("gone", {"name": "live"})
    events.close()


def test_runs_outlive_the_page_stop_and_resume(
    start: Callable[..., Server], server: Server, folder: Path
) -> None:
    assert server.ask("/api/start", {"name": "long", "toml": LONG}).code == 200
    assert server.state("long") in ("starting", "running")
    path = folder / "long"
    wait_for(lambda: count_rows(path) >= 3)
    assert server.end() == 0
    before = count_rows(path)
    wait_for(lambda: count_rows(path) > before)

    with ignoring_ctrl_c():  # as in a job that a script starts in the background
        again = start()
    assert again.state("long") == "running"
    assert "running already" in again.ask("/api/resume", {"name": "long"}).body["error"]
    assert again.ask("/api/stop", {"name": "long"}).code == 200
    wait_for(lambda: again.state("long") == "paused")
    stopped = count_rows(path)
    assert not (path / "result.json").exists()

    assert again.ask("/api/resume", {"name": "long"}).code == 200
    wait_for(lambda: count_rows(path) > stopped)
    assert again.ask("/api/stop", {"name": "long"}).code == 200
    wait_for(lambda: again.state("long") == "paused")
    assert again.ask("/api/resume", {"name": "long"}).code == 200
    assert again.ask("/api/stop", {"name": "long", "force": True}).code == 200
    wait_for(lambda: again.state("long") == "paused")
    assert again.end() == 0


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_a_port_in_use_is_one_line_with_another(shell: Shell, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = shell.refused("ui", "--dir", tmp_path / "runs", "--port", port, "--no-browser")
    assert line.startswith(
        f"cannot use port {port}: Address already in use; try: fedssca ui --port"
    )


def test_kind_words_for_bad_folders(shell: Shell, tmp_path: Path) -> None:
    made_up(tmp_path / "run")
    assert "folder above it" in shell.refused("ui", "--dir", tmp_path / "run")
    (tmp_path / "file").write_text("")
    assert "choose another with --dir" in shell.refused("ui", "--dir", tmp_path / "file" / "x")


def test_a_missing_extra_is_one_line(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [
        name for name in sys.modules if name.startswith(("starlette", "fedssca.report.live."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    line = shell.refused("ui", "--dir", tmp_path, "--no-browser")
    assert line.endswith(pip_install("ui"))
