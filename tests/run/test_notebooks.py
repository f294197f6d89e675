"""The notebooks of `examples` run from top to bottom, and are stored with what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.notebooks import code_cells, run_notebook

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
MOST_BYTES = 300_000


def pictures(outputs: list[dict[str, object]]) -> int:
    return sum("image/png" in dict(output.get("data", {})) for output in outputs)  # type: ignore[call-overload]


def test_there_are_three() -> None:
    names = [path.stem for path in NOTEBOOKS]
    assert names == ["first_limit", "from_a_flower_app", "two_banks"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads(path.read_text())
    cells = code_cells(notebook)
    if "from_a_flower_app" in path.stem:
        pytest.importorskip("flwr")
        torch = pytest.importorskip("torch")
        threads = torch.get_num_threads()
    names, shown = run_notebook(path)
    if "from_a_flower_app" in path.stem:
        torch.set_num_threads(threads)
    stored = [cell["outputs"] for cell in cells]
    kinds = [[output["output_type"] for output in outputs] for outputs in stored]
    assert kinds == [[output["output_type"] for output in outputs] for outputs in shown]
    assert sum(map(pictures, stored)) >= 2
    assert path.stat().st_size < MOST_BYTES
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    if path.stem == "first_limit":
        assert names["limited"].feasible
        assert not names["free"].certificate["constraints"]
    elif path.stem == "two_banks":
        assert names["together"].feasible
        assert names["found"]["both banks"] == pytest.approx(names["found"]["one place"], rel=0.01)
    else:
        assert names["strategy"].certificate["feasible"]
