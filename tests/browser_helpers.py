"""A real browser for the tests of pages: Chromium as the distribution packages it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ModuleNotFoundError:
    sync_playwright = None  # type: ignore[assignment]

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("FEDSSCA_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
MISSING = "no browser on this machine: install chromium (Debian: apt-get install chromium)"
needs_browser = pytest.mark.skipif(not CHROMIUM or sync_playwright is None, reason=MISSING)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


AXE = Path(__file__).parents[1] / "node_modules/axe-core/axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm install")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own, with an empty profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """A page, and everything on it that must not be: errors, dialogs, requests to hosts."""

    def __init__(self, browser: Browser, width: int = 1280, **context: Any) -> None:
        size = {"width": width, "height": 800}
        self.context = browser.new_context(viewport=size, **context)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(300_000)
        self.requests: list[str] = []
        self.trouble: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.trouble.append("dialog"), dialog.dismiss()))
        self.page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.trouble.append(message.text)

    def violations(self) -> list[str]:
        """What axe-core finds on the page as it is: the rule, and the first element that breaks it.

        The page needs a context with bypass_csp: its policy allows no script but its own.
        """
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run().then((report) => report.violations)")
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found]

    def close(self) -> None:
        """Nothing bad was seen."""
        self.context.close()
        assert self.trouble == []
