"""Two processes resume one run, or its data change between two of its rounds: by accident.

Two writers would mix their rows, and a run that goes on with other data would look like one run. So
one process at a time may write to a run directory, and a checkpoint knows the digest of its data.
Both end in one clear line, and nothing of the run is lost. A folder that cannot be written to is
one clear line too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.engine import JobNotReady
from fedssca.deploy.submit import FileCopies
from fedssca.errors import UserError
from fedssca.run.checkpoint import ChangedData
from fedssca.run.config import parse
from fedssca.run.execute import execute, load_config
from fedssca.run.record import RunDirectory

CONFIG = """
[data]
path = "{path}"
clients = 2
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 4
rounds = 30
[run]
evaluate_every = 5
checkpoint_every = 10
"""


class Stop(Exception):
    pass


def table(file: Path, shift: int = 0) -> None:
    lines = "".join(f"{i + shift},{i * i % 7},{i % 2}\n" for i in range(60))
    file.write_text("a,b,y\n" + lines)


def stopped(folder: Path) -> Path:
    """A run that ended after its second checkpoint."""
    table(folder / "rows.csv")

    def end(row: dict[str, Any]) -> None:
        if row["round"] == 25:
            raise Stop

    with pytest.raises(Stop):
        execute(parse(CONFIG.format(path=folder / "rows.csv")), folder / "run", on_row=end)
    return folder / "run"


HOLD = """
import sys
from pathlib import Path
from fedssca.run.record import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_of_two_resumes_is_refused(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    before = (run / "metrics.jsonl").read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="another process is writing to"):
            execute(load_config(run), run, resume=True)
        assert (run / "metrics.jsonl").read_bytes() == before
        other.kill()
        other.wait()
    assert execute(load_config(run), run, resume=True)["round"] == 29  # the lock died with it


def test_changed_data_are_noticed(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    before = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    table(tmp_path / "rows.csv", shift=3)
    with pytest.raises(ChangedData, match="--new-data"):
        execute(load_config(run), run, resume=True)
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before
    table(tmp_path / "rows.csv")
    whole = tmp_path / "whole"
    execute(load_config(run), whole)
    execute(load_config(run), run, resume=True)
    ours, theirs = (np.load(folder / "model.npz")["w_last"] for folder in (run, whole))
    assert (ours == theirs).all()


def test_changed_data_on_purpose(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    table(tmp_path / "rows.csv", shift=3)
    assert execute(load_config(run), run, resume=True, new_data=True)["round"] == 29


def test_drafts_have_names_of_their_own_and_do_not_stay(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    folder, names = RunDirectory(run), set()

    def fill(file: Any) -> None:
        names.update(path.name for path in run.glob(".note*.part"))
        file.write(b"x")

    for _ in range(3):
        folder.write("note", fill)
    assert len(names) == 3
    (run / ".metrics.jsonl.0badcafe.part").write_text("left by a killed process")
    execute(load_config(run), run, resume=True)
    assert not list(run.rglob(".*.part"))


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_read_only_folder_is_one_clear_line(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    before = (run / "metrics.jsonl").read_bytes()
    if os.geteuid() == 0:  # permissions do not stop root; a read-only mount does
        done = subprocess.run(["mount", "--bind", run, run], capture_output=True)
        if done.returncode:
            pytest.skip("mounting is not permitted here")
        subprocess.run(["mount", "-o", "remount,ro,bind", run], check=True, capture_output=True)
    else:
        run.chmod(0o500)
    try:
        with pytest.raises(UserError, match=r"cannot write to .*; free space or choose"):
            execute(load_config(run), run, resume=True)
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", run], check=True, capture_output=True)
        else:
            run.chmod(0o700)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert execute(load_config(run), run, resume=True)["round"] == 29


class FakeServer:
    """Answers commands for files as a job does, and counts the bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.sent = 0

    def command(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        from base64 import b64encode

        if job != "job":
            raise JobNotReady
        data = self.files.get(asked["file"])
        if data is None:
            return {"size": -1}
        piece = data[asked["at"] : asked["at"] + 1000]
        self.sent += len(piece)
        return {"size": len(data), "data": b64encode(piece).decode()}


def test_every_row_is_fetched_once(tmp_path: Path) -> None:
    """Refetching all rows for each new one costs the square of their number."""
    server = FakeServer()
    copies = FileCopies(server, "job", tmp_path)  # type: ignore[arg-type]
    rows = [f'{{"round": {k}}}\n'.encode() * 20 for k in range(200)]
    for k in range(len(rows)):
        server.files["metrics.jsonl"] = b"".join(rows[: k + 1])
        copies.fetch(ended=False)
    copies.fetch(ended=True)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(rows)
    assert server.sent == len(b"".join(rows))
    server.files["metrics.jsonl"] = rows[0]  # a job that was resumed has a shorter file
    copies.fetch(ended=False)
    assert (tmp_path / "metrics.jsonl").read_bytes() == rows[0]
