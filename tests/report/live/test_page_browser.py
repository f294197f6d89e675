"""The page in a real browser: watch, compare, start, stop, resume; and be refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser_helpers import Seen, chromium, needs_axe, needs_browser
from tests.report.live.ui_helpers import Server, count_rows, wait_for
from tests.run_helpers import made_up, row

pytestmark = needs_browser
HOSTILE = "<img src=x onerror=alert(1)>"
LIVE = {
    "data.name": "breast-cancer",
    "data.clients": "4",
    "model.hidden": "3",
    "algorithm.batch": "5",
    "algorithm.rounds": "2000000",
    "algorithm.rho": "{a = 0.9, alpha = 0.3}",
    "algorithm.gamma": "{a = 0.9, alpha = 0.6}",
    "algorithm.tau": "0.1",
    "run.evaluate_every": "500",
    "run.checkpoint_every": "1000",
}


@pytest.fixture(scope="module", autouse=True)
def runs(folder: Path) -> None:
    made_up(folder / "one")
    made_up(folder / "two", train_cost=0.25)
    made_up(folder / HOSTILE)
    rival = made_up(folder / "rival") / "config.toml"
    rival.write_text(rival.read_text().replace('name = "ssca"', 'name = "penalty"'))
    deployed(made_up(folder / "hospitals"))


def deployed(path: Path) -> None:
    """Make a run one of two sites, the second of which was dropped."""
    result = json.loads((path / "result.json").read_text())
    told = [{"name": name, "rows": 9, "train": {"cost": 0.2}} for name in ("north", "south")]
    (path / "result.json").write_text(json.dumps(result | {"per_client": told}))
    costs = {"north": [0.5, 10, 20], "south": [0.7, 10, 20]}
    lines = [{"round": k, "sites": costs, "missing": []} for k in (1, 2)]
    lines.append({"round": 3, "sites": {"north": [0.5, 10, 20]}, "missing": ["south"]})
    (path / "sites.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    event = {"round": 3, "site": "south", "event": f"dropped: {HOSTILE}"}
    (path / "events.jsonl").write_text(json.dumps(event) + "\n")
    (path / "deploy.json").write_text("{}")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as found:
        yield found


@pytest.fixture
def seen(browser, server: Server) -> Iterator[Seen]:
    found = Seen(browser)
    found.page.goto(server.url)
    yield found
    assert all(url.startswith(f"http://{server.host}/") for url in found.requests)
    found.close()


def fill(seen: Seen, values: dict[str, str]) -> None:
    """Type into the fields of the form, folded ones too."""
    seen.page.wait_for_selector(".newrun")
    seen.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for key, value in values.items():
        field = seen.page.locator(f"[data-key='{key}']").locator("input, select")
        if field.evaluate("node => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def points(seen: Seen) -> int:
    curve = seen.page.locator(".chart path.curve").first
    return int(curve.get_attribute("data-points") or 0)


def test_without_the_token_it_is_refused(browser, server: Server) -> None:
    seen = Seen(browser)
    seen.page.goto(f"http://{server.host}/")
    seen.page.get_by_text("needs its token").wait_for()
    assert seen.page.goto(f"http://{server.host}/?token={server.token}").status == 200
    seen.page.get_by_text("needs its token").wait_for()  # an address is no place for it
    assert seen.page.goto(f"http://{server.host}/api/runs").status == 403
    seen.close()


def test_two_ticked_runs_are_compared(seen: Seen) -> None:
    page = seen.page
    page.get_by_role("checkbox", name="Compare one").check()
    page.get_by_role("checkbox", name="Compare two").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.wait_for_selector(".chart path.curve")
    cost = page.locator(".chart", has=page.get_by_role("heading", name="Training cost"))
    assert cost.locator("path.curve").count() == 2
    assert page.locator("table.runs tbody tr").count() == 2
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Report").click()
    assert b"<!doctype html>" in Path(waiting.value.path()).read_bytes()[:100]


def test_the_list_is_filtered(seen: Seen) -> None:
    seen.page.wait_for_selector(".runlist li")
    seen.page.get_by_role("searchbox").fill("two")
    assert seen.page.locator(".runlist .title").all_text_contents() == ["two"]


def test_hostile_names_do_nothing(seen: Seen, server: Server) -> None:
    page = seen.page
    page.get_by_role("link", name=HOSTILE).click()
    page.wait_for_selector(".certificate")
    assert page.locator("h1").text_content() == HOSTILE
    for name in (HOSTILE, "../../x", "..%2F..%2Fx", "</script><script>alert(1)</script>"):
        for view in ("run", "compare", "new"):
            page.goto("about:blank")
            page.goto(f"http://{server.host}/#/{view}/{quote(name, safe='')}")
            page.wait_for_selector("h1")
    page.wait_for_selector(".notice.wrong")
    assert page.locator("img, script[src], [onerror], iframe").count() == 0


def test_a_name_with_a_path_is_an_error_at_its_field(seen: Seen, folder: Path) -> None:
    seen.page.get_by_role("link", name="New run").click()
    fill(seen, {"name": "../../elsewhere"})
    seen.page.get_by_role("button", name="Start the run").click()
    error = seen.page.locator("[data-key='name'] .error")
    error.wait_for()
    assert "letters" in error.text_content()
    assert not (folder.parent / "elsewhere").exists()


def test_rows_appear_and_a_deleted_run_is_said(seen: Seen, folder: Path) -> None:
    page = seen.page
    path = made_up(folder / "growing", rows=3, done=False)
    page.get_by_role("link", name="growing").click()
    page.wait_for_selector(".chart path.curve[data-points='3']")
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(15)) + "\n" + json.dumps(row(20))[:50])
    page.wait_for_selector(".chart path.curve[data-points='4']")
    (path / "audit.json").write_text(json.dumps({"attack": {"advantage": 0.01}, "note": HOSTILE}))
    page.wait_for_selector(".audit")
    assert "0.01" in page.locator(".audit").text_content()
    shutil.rmtree(path)
    page.get_by_text("its folder was deleted").wait_for()
    assert page.locator("img").count() == 0


def test_bad_values_are_shown_at_their_fields_then_a_run_is_watched_stopped_and_resumed(
    seen: Seen, folder: Path
) -> None:
    page = seen.page
    page.get_by_role("link", name="New run").click()
    fill(seen, LIVE | {"name": "live", "algorithm.batch": "-5", "limit": ""})
    page.get_by_role("button", name="Start the run").click()
    batch = page.locator("[data-key='algorithm.batch']")
    batch.locator(".error").wait_for()
    assert "at least 1" in batch.locator(".error").text_content()
    assert batch.locator("input").get_attribute("aria-invalid") == "true"
    assert "lacks limit" in page.locator("[data-key='limit'] .error").text_content()
    assert page.locator(".error:visible").count() == 2
    assert not (folder / "live").exists()

    fill(seen, {"algorithm.batch": "5", "limit": "0.3"})
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_selector(".chart path.curve", timeout=300_000)
    before = points(seen)
    wait_for(lambda: points(seen) > before + 2)

    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Resume").wait_for(timeout=300_000)
    assert "not finished" in page.locator(".status").text_content()
    stopped = count_rows(folder / "live")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Stop", exact=True).wait_for(timeout=300_000)
    wait_for(lambda: points(seen) > stopped)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Resume").wait_for(timeout=300_000)


def test_a_failed_run_is_listed_corrected_and_ends_with_its_certificate(
    seen: Seen, folder: Path, server: Server
) -> None:
    page = seen.page
    page.get_by_role("link", name="New run").click()
    short = {"algorithm.rounds": "21", "run.evaluate_every": "5", "run.checkpoint_every": "10"}
    fill(seen, LIVE | short | {"name": "short", "limit": "0.3", "algorithm.batch": "9999"})
    page.get_by_role("button", name="Start the run").click()
    page.get_by_role("button", name="Change the settings").wait_for()
    page.goto(f"http://{server.host}/")
    page.reload()  # nothing is kept in the page: the server knows the run and its settings
    line = page.locator(".runlist li", has=page.get_by_role("link", name="short"))
    assert "failed" in line.text_content()
    assert "larger than client" in line.text_content()
    line.get_by_role("link").click()
    page.get_by_role("button", name="Change the settings").click()
    batch = page.locator("[data-key='algorithm.batch']")
    batch.locator(".error").wait_for()
    assert "larger than client" in batch.locator(".error").text_content()
    assert page.locator("[data-key='name'] input").input_value() == "short"
    assert page.locator("[data-key='data.clients'] input").input_value() == "4"

    batch.locator("input").fill("5")
    page.get_by_role("radio", name="TOML").click()
    text = page.get_by_label("The run as TOML")
    text.wait_for()
    assert "batch = 5" in text.input_value()
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_selector(".certificate", timeout=300_000)
    assert (folder / "short" / "result.json").exists()
    assert "loss" in page.locator(".certificate").text_content()
    page.get_by_role("link", name="Clients and sites").click()
    page.wait_for_selector(".breakdown")
    assert page.locator(".breakdown tbody tr").count() == 4


def test_own_data_take_the_place_of_a_ready_made_set(seen: Seen) -> None:
    page = seen.page
    page.get_by_role("link", name="New run").click()
    page.wait_for_selector(".newrun")
    name = page.locator("[data-key='data.name'] select")
    assert name.is_enabled()
    page.get_by_label("Own data (file or folder)").fill("rows.csv")
    assert name.is_disabled()
    page.get_by_label("Label column").fill("ill")
    page.get_by_role("radio", name="TOML").click()
    text = page.get_by_label("The run as TOML")
    text.wait_for()
    assert 'path = "rows.csv"\nlabel = "ill"' in text.input_value()
    assert "digits" not in text.input_value()
    page.get_by_role("radio", name="Form").click()
    page.get_by_label("Own data (file or folder)").fill("")
    assert name.is_enabled()


def test_a_deployed_run_asks_for_the_kit(seen: Seen, folder: Path) -> None:
    path = made_up(folder / "joint", done=False)
    (path / "deploy.json").write_text("{}")
    for file in path.iterdir():
        os.utime(file, (1e9, 1e9))
    page = seen.page
    page.get_by_role("link", name="joint").click()
    page.get_by_label("Folder of the submitter's kit").fill("nowhere/kit")
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("is resumed with the kit of the submitter").wait_for()


def test_the_sites_of_a_run_and_how_they_answered(seen: Seen, folder: Path) -> None:
    page = seen.page
    page.get_by_role("link", name="hospitals").click()
    tab = page.get_by_role("link", name="Clients and sites")
    tab.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".answers")
    assert tab.get_attribute("aria-current") == "page"
    assert page.locator(".breakdown tbody th").all_text_contents() == ["north", "south"]
    south = page.locator(".answers tbody tr", has=page.get_by_role("rowheader", name="south"))
    assert "dropped in round 3" in south.text_content()
    assert "2 of 3" in south.text_content()
    heading = page.locator(".answers").get_by_role("button", name="answers used")
    heading.focus()
    page.keyboard.press("Enter")
    assert page.locator(".answers tbody th").all_text_contents() == ["south", "north"]
    assert HOSTILE in page.locator(".sites li").text_content()
    with open(folder / "hospitals/sites.jsonl", "a") as file:
        file.write(json.dumps({"round": 4, "sites": {"south": [1, 1, 1]}, "missing": []}) + "\n")
    page.get_by_text("no site was dropped").wait_for()  # it has come back


def test_methods_are_compared_with_the_keyboard(seen: Seen) -> None:
    page = seen.page
    page.get_by_role("link", name="Methods").click()
    page.wait_for_selector(".matrix tbody tr")
    heads = page.locator(".matrix thead th").all_text_contents()
    assert heads == ["problem", "ssca", "penalty"]
    price = page.get_by_role("radio", name="price")
    price.focus()
    page.keyboard.press("Space")
    assert "price not known" in page.locator(".matrix tbody").text_content()
    page.locator(".matrix .open").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".chart path.curve")
    assert page.locator("h1").text_content() == "rival"


READY = ".runlist li, .chart svg, .newrun, .answers, .matrix, .nothing"
VIEWS = [
    *("", "#/run/one", "#/sites/hospitals", "#/sites/one", "#/compare/one/two"),
    *("#/methods", "#/new"),
]


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(browser, server: Server, scheme: str) -> None:
    seen = Seen(browser, color_scheme=scheme, bypass_csp=True)
    seen.page.goto(server.url)
    for view in VIEWS:
        seen.page.goto("about:blank")
        seen.page.goto(f"http://{server.host}/{view}")
        seen.page.wait_for_selector(READY)
        folded = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
        seen.page.evaluate(folded)
        assert seen.violations() == [], view
    seen.close()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_a_phone(browser, server: Server, view: str) -> None:
    seen = Seen(browser, width=390, color_scheme="dark")
    seen.page.goto(server.url)
    seen.page.goto(f"http://{server.host}/{view}")
    seen.page.wait_for_selector(READY)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 390
    seen.close()
