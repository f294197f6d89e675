"""Run the notebooks of `examples`, cell by cell in this process, and keep what they show.

    python -m tests.notebooks --save examples/*.ipynb     runs them and writes their outputs

A cell shows what it prints, the value of its last line, and the figures that it made. That is what
Jupyter shows of these notebooks; no Jupyter is needed to run them.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

DPI = 72


def run_notebook(path: Path) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    """The names that a notebook leaves behind, and the outputs of each of its code cells."""
    import matplotlib as mpl

    mpl.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, cell in enumerate(code_cells(json.loads(path.read_text())), 1):
        shown.append(_run("".join(cell["source"]), f"{path.name}, cell {number}", names, number))
    return names, shown


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of a notebook that hold code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run(source: str, where: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    from matplotlib import pyplot as plt

    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs, value = io.StringIO(), list[dict[str, Any]](), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed)})
    for figure in map(plt.figure, plt.get_fignums()):
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=DPI, bbox_inches="tight", metadata={})
        data = {"image/png": base64.b64encode(stream.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    if value is not None:
        data = {"text/plain": _lines(io.StringIO(repr(value)))}
        kind = {"output_type": "execute_result", "execution_count": number}
        outputs.append({**kind, "metadata": {}, "data": data})
    return outputs


def _lines(text: io.StringIO) -> Any:
    return text.getvalue().splitlines(keepends=True)


def save(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    _, shown = run_notebook(path)
    notebook = json.loads(path.read_text())
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), shown, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--save", nargs="+", type=Path, required=True)
    for each in parser.parse_args().save:
        save(each)
        print(each, each.stat().st_size, "bytes")
