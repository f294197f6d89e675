"""One script from ES modules: their order, their private names, and forms that are refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fedssca.report.bundle import bundle
from fedssca.report.page import script

ROOT = Path(__file__).parents[2]
ENTRIES = ["static/report.js", "live/static/app.js"]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def run_node(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", *map(str, arguments)], input=text, capture_output=True, text=True, cwd=ROOT
    )


@needs_node
def test_modules_run_in_order_and_keep_their_names_apart() -> None:
    files = {
        "a/entry.js": 'import { x } from "./x.js";\nimport { y } from "../y.js";\n'
        "const own = 1;\nconsole.log(own, x, y());\n",
        "a/x.js": 'import {\n  y,\n} from "../y.js";\n'
        "const own = 2;\nexport const x = own + y();\n",
        "y.js": "let own = 10;\nexport function y() {\n  own += 1;\n  return own;\n}\n",
    }
    text = bundle("a/entry.js", files.__getitem__)
    assert text == bundle("a/entry.js", files.__getitem__)
    assert run_node("-", text=text).stdout == "1 13 12\n"


@pytest.mark.parametrize(
    "text",
    [
        'import x from "./x.js";\n',
        'import "./x.js";\n',
        'import { x as y } from "./x.js";\n',
        'import { x } from "package";\n',
        "export default 1;\n",
        "export let x = 1;\n",
        "const x = 1;\nexport { x };\n",
    ],
)
def test_other_forms_of_import_and_export_are_refused(text: str) -> None:
    files = {"entry.js": text, "x.js": "export const x = 1;\n"}
    with pytest.raises(ValueError, match=r"entry\.js: "):
        bundle("entry.js", files.__getitem__)


def test_modules_that_import_each_other_are_refused() -> None:
    files = {
        "a.js": 'import { b } from "./b.js";\nexport const a = 1;\n',
        "b.js": 'import { a } from "./a.js";\nexport const b = 1;\n',
    }
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js"):
        bundle("a.js", files.__getitem__)


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_scripts_of_the_pages_fit_into_a_page(entry: str) -> None:
    text = script(entry)
    assert "</script" not in text.lower()
    assert "<!--" not in text


@needs_node
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_scripts_of_the_pages_are_valid(entry: str) -> None:
    outcome = run_node("--check", "-", text=script(entry))
    assert outcome.returncode == 0, outcome.stderr


@needs_node
def test_the_unit_tests_of_the_scripts_pass() -> None:
    files = sorted((ROOT / "tests/report/scripts").glob("*.test.js"))
    assert files
    outcome = run_node("--test", *files)
    assert outcome.returncode == 0, outcome.stdout
