"""The report in a real browser, opened from disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedssca.report.page import report_page
from tests.browser_helpers import Seen, chromium, needs_axe, needs_browser
from tests.run_helpers import made_up, train

pytestmark = needs_browser
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three real runs: plain, with two limits, and with a hostile name."""
    folder = tmp_path_factory.mktemp("report")
    fnr = "{kind='fnr', limit=0.1}"
    limits = f"problem.constraint=[{{kind='client_loss', limit=0.6}}, {fnr}]"
    runs = [
        train(folder / "plain"),
        train(folder / "two", limits, "data.clients=2", "algorithm.tau=[0.1,0.1,0.1,0.1]"),
        train(folder / HOSTILE, "run.seed=7"),
    ]
    out = folder / "report.html"
    out.write_text(report_page(runs))
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as found:
        yield found


@pytest.fixture
def seen(browser, report: Path) -> Iterator[Seen]:
    found = Seen(browser)
    found.page.goto(report.as_uri())
    yield found
    found.close()


def test_it_asks_no_host_for_anything(seen: Seen, report: Path) -> None:
    seen.page.locator(".chart").last.scroll_into_view_if_needed()
    seen.page.wait_for_selector(".chart path.curve")
    assert seen.requests == [report.as_uri()]


def test_curves_limits_and_tables_are_there(seen: Seen) -> None:
    page = seen.page
    titles = page.locator(".chart h3").all_text_contents()
    for title in ("Training cost", "Test accuracy", "loss", "fnr", "loss, client 0", "Norm"):
        assert any(found.startswith(title) for found in titles), title
    for title in ("Multiplier of loss", "Bytes up", "Bytes down", "Time"):
        assert title in titles
    cost = page.locator(".chart", has=page.get_by_role("heading", name="Training cost"))
    assert cost.locator("path.curve").count() == 3
    assert cost.locator("path.curve").first.get_attribute("data-points") == "5"
    loss = page.locator(".chart", has=page.get_by_role("heading", name="loss", exact=True))
    loss.scroll_into_view_if_needed()
    assert loss.locator("rect.kept").count() == 1
    assert "limit 0.3" in loss.locator("svg").text_content()
    marked = page.locator("td.differs").all_text_contents()
    assert "7" in marked
    assert page.locator(".certificate").count() == 3
    signs = page.locator(".certificate td:nth-child(2)").all_text_contents()
    assert any(sign.startswith("○") for sign in signs)
    assert page.locator(".breakdown").count() == 3
    assert "accuracy" in page.locator(".breakdown").first.text_content()
    assert page.locator(".breakdown .beam").count() > 3


def test_another_axis_and_fewer_runs(seen: Seen) -> None:
    page = seen.page
    cost = page.locator(".chart", has=page.get_by_role("heading", name="Training cost"))
    assert "rounds" in cost.locator("svg").text_content()
    page.get_by_role("radio", name="bytes sent").check(force=True)
    assert "bytes sent" in cost.locator("svg").text_content()
    page.get_by_role("checkbox", name="Draw two").uncheck()
    assert cost.locator("path.curve").count() == 2
    page.get_by_role("button", name="plain", exact=True).click()
    assert cost.locator("path.curve").count() == 1


def test_values_are_read_with_the_keyboard(seen: Seen) -> None:
    page = seen.page
    cost = page.locator(".chart", has=page.get_by_role("heading", name="Training cost"))
    cost.locator(".stage").focus()
    page.keyboard.press("End")
    assert "rounds: 20" in cost.locator(".tip").text_content()
    page.keyboard.press("ArrowLeft")
    assert "rounds: 15" in cost.locator(".tip").text_content()
    assert "plain" in cost.locator(".tip").text_content()
    page.keyboard.press("Escape")
    assert cost.locator(".tip").is_hidden()


@pytest.mark.parametrize(
    ("kind", "begins"), [("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("CSV", b"run,rounds,mean loss")]
)
def test_a_chart_is_saved(seen: Seen, kind: str, begins: bytes) -> None:
    page = seen.page
    cost = page.locator(".chart", has=page.get_by_role("heading", name="Training cost"))
    cost.locator("summary").click()
    with page.expect_download() as waiting:
        cost.get_by_role("button", name=kind).click()
    data = Path(waiting.value.path()).read_bytes()
    assert waiting.value.suggested_filename == f"training-cost.{kind.lower()}"
    assert data.startswith(begins)
    if kind == "CSV":
        assert len(data.splitlines()) == 1 + 3 * 5
        assert b"<img src=x onerror=alert(1)>" in data


def test_hostile_texts_do_nothing(browser, tmp_path: Path) -> None:
    """In every place that text comes from: names, settings, results, notes, events, audits."""
    bad = f"</script>{HOSTILE}<svg onload=alert(2)>"
    path = made_up(tmp_path / HOSTILE)
    found = json.loads((path / "result.json").read_text())
    found["notes"] = [bad]
    found["constraint_names"] = [bad]
    found["certificate"]["constraints"][0]["name"] = bad
    found["client_losses"] = [0.1, None, "x"]
    found["versions"] = {bad: bad}
    (path / "result.json").write_text(json.dumps(found))
    (path / "config.toml").write_text(f'[data]\nname = "{bad}"\n')
    (path / "audit.json").write_text(json.dumps({bad: {bad: [bad]}}))
    (path / "events.jsonl").write_text(json.dumps({"round": 1, "site": bad, "event": bad}) + "\n")
    sites = {"round": 1, "sites": {bad: [1, 2, 3]}}
    (path / "sites.jsonl").write_text(json.dumps(sites) + "\n")
    out = tmp_path / "report.html"
    out.write_text(report_page([path]))
    seen = Seen(browser)
    seen.page.goto(out.as_uri())
    seen.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    seen.page.wait_for_selector(".chart path.curve")
    assert seen.page.locator("img, script[src], [onload], [onerror]").count() == 0
    assert bad in seen.page.locator(".audit").text_content()
    assert seen.page.title().startswith(HOSTILE)
    assert seen.requests == [out.as_uri()]
    seen.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser, report: Path, scheme: str) -> None:
    seen = Seen(browser, width=390, color_scheme=scheme)
    seen.page.goto(report.as_uri())
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
    assert seen.page.evaluate("document.documentElement.dataset.theme") == scheme
    seen.page.get_by_role("button", name="Light or dark page").click()
    assert seen.page.evaluate("document.documentElement.dataset.theme") != scheme
    seen.close()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(browser, report: Path, scheme: str) -> None:
    seen = Seen(browser, color_scheme=scheme, bypass_csp=True)
    seen.page.goto(report.as_uri())
    seen.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert seen.violations() == []
    seen.close()


def test_the_certificate_is_seen_whole(seen: Seen) -> None:
    """No column is outside its card, in a window of 1280 pixels and on a phone."""
    for width in (1280, 390):
        seen.page.set_viewport_size({"width": width, "height": 800})
        box = seen.page.locator(".certificate .scroll").first
        assert box.evaluate("node => node.scrollWidth - node.clientWidth") <= 0, width


def test_a_slider_tells_the_price_of_another_limit(seen: Seen) -> None:
    card = seen.page.locator(".pricing").first
    slider = card.get_by_role("slider")
    slider.focus()
    seen.page.keyboard.press("End")
    assert "instead of" in card.locator(".price").text_content()
    assert slider.get_attribute("aria-valuetext").startswith("≤")
