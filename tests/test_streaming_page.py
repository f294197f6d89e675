"""The page docs/streaming.md and examples/streaming.py do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def test_the_page_keeps_its_limit() -> None:
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/streaming.md").read_text(), flags=re.S
    )
    names: dict[str, Any] = {}
    exec(compile(code, "streaming.md", "exec"), names)
    assert names["result"].feasible
    assert "client 1's rows ended after 3,200 rows, in round 161 of 199" in names["result"].notes[0]


def test_the_example_keeps_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    result = runpy.run_path(str(ROOT / "examples/streaming.py"))["main"]()
    assert result.feasible
    assert result.notes == []
    assert result.final["train_accuracy"] > 0.9
    said = capsys.readouterr().out
    assert said.count("9,980 rows, each used once") == 3
    assert "limit 0.35 kept" in said
