"""How long the page's list of 1000 runs takes: read for the first time, again, and over HTTP.

python benchmarks/ui.py [runs]
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from fedssca.report.live.folder import RunFolder
from fedssca.run.config import Config, render


def make(folder: Path, runs: int) -> None:
    text = render(Config())
    row = {"objective": 1.0, "train_cost": 0.5, "test_accuracy": 0.9, "norm_sq": 3.0}
    row |= {"constraints": [-0.1], "multipliers": [1.0], "slack": [0.0], "seconds": 1.0}
    for k in range(runs):
        path = folder / f"run-{k:05}"
        path.mkdir()
        (path / "config.toml").write_text(text)
        lines = [json.dumps({"round": 10 * i} | row) + "\n" for i in range(100)]
        (path / "metrics.jsonl").write_text("".join(lines))
        if k % 2:
            (path / "result.json").write_text(json.dumps({"round": 990, "feasible": True} | row))


def timed(name: str, action: object) -> None:
    begun = time.perf_counter()
    action()  # type: ignore[operator]
    print(f"{name}: {time.perf_counter() - begun:.3f} s")


def main(runs: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, runs)
        found = RunFolder(folder)
        timed(f"{runs} runs, read for the first time", found.listing)
        timed(f"{runs} runs, again", found.listing)
        command = [sys.executable, "-m", "fedssca", "ui", "--dir", place, "--port", "0"]
        page = subprocess.Popen(
            [*command, "--no-browser", "--json"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert page.stdout is not None
            url = json.loads(page.stdout.readline())["url"]

            def ask() -> None:
                connection = http.client.HTTPConnection(urlsplit(url).netloc)
                header = {"X-Fedssca-Token": url.partition("token=")[2]}
                connection.request("GET", "/api/runs", headers=header)
                answer = json.loads(connection.getresponse().read())
                assert len(answer["runs"]) == runs
                connection.close()

            timed(f"{runs} runs over HTTP, for the first time", ask)
            timed(f"{runs} runs over HTTP, again", ask)
        finally:
            page.terminate()
            page.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
