"""Another user of the machine wants the token of the page, with which he could start runs.

He lists the processes and their arguments, reads files in shared folders, and looks at the
browser's history. What stops him: the browser is given the name of a file that its owner alone can
read, the token stands behind the "#" of the address, and the page removes it from there.
"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fedssca.cli.ui import redirect_file
from fedssca.run.record import RunDirectory
from tests.report.live.ui_helpers import Server

ADDRESS = "http://127.0.0.1:1/#token=secret-word"


def test_the_browser_is_given_a_private_file() -> None:
    with redirect_file(ADDRESS) as file:
        assert "secret-word" not in file.as_uri()
        assert ADDRESS in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.exists()


def test_the_token_opens_nothing_from_an_address(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        assert "#token=" in server.url
        assert server.ask(f"/api/runs?token={server.token}", X_Fedssca_Token="").code == 403
        assert server.token not in server.ask("/", X_Fedssca_Token="").body
        assert server.ask("/api/runs").code == 200
    finally:
        server.end()


@pytest.mark.parametrize("name", ["run", "new/run"])
def test_run_directories_are_their_owners(name: str, tmp_path: Path) -> None:
    folder = RunDirectory.create(tmp_path / name, "")
    folder.write("model/model.json", lambda file: file.write(b"{}"))
    for path in (folder.path, folder.path / "checkpoint", folder.path / "model"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
