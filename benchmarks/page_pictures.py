"""The pictures of docs/see.md: python benchmarks/page_pictures.py RUNS docs

RUNS is a folder of runs as `fedssca ui` shows it; it must hold `first` and `first-unconstrained`
(`fedssca run --twin --out RUNS/first`), and `hospitals` (`fedssca deploy local --sites 3 --out
RUNS/hospitals`), and runs of several methods on the same problems. Chromium takes the pictures.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedssca.report.page import report_page
from tests.browser_helpers import Seen, chromium
from tests.report.live.ui_helpers import Server

VIEWS = {
    "ui.png": ("#/run/first", "dark", ".chart path.curve", 860),
    "sites.png": ("#/sites/hospitals", "light", ".answers", 860),
    "methods.png": ("#/methods", "light", ".matrix", 620),
}
"""File -> address, theme, what is waited for, height in pixels."""
WIDTH = 1280


def main(runs: Path, out: Path) -> None:
    pair = [runs / "first", runs / "first-unconstrained"]
    server = Server(runs)
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        report.write_text(report_page(pair), encoding="utf-8")
        shots = {"report.png": (report.as_uri(), "light", ".chart path.curve", 860)}
        for name, (address, *others) in VIEWS.items():
            shots[name] = (f"http://{server.host}/{address}", *others)
        for name, (address, scheme, ready, height) in shots.items():
            seen = Seen(browser, WIDTH, color_scheme=scheme)
            seen.page.goto(server.url)
            seen.page.goto(address)
            seen.page.set_viewport_size({"width": WIDTH, "height": height})
            seen.page.wait_for_selector(ready)
            seen.page.screenshot(path=out / name)
            seen.close()
    server.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
