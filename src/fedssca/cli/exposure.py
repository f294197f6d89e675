"""Prints what would leave a site, for `fedssca deploy check`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["print_exposure"]


def print_exposure(found: Mapping[str, Any]) -> None:
    """Print what `deploy.check.check_site` found, for people."""
    for line in _lines(found):
        print(line)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    for each in found["refused"]:
        yield f"REFUSED by {each['limit']} = {json.dumps(each['value'])}: {each['why']}"
    if found["refused"]:
        yield "This site would refuse the run. What it would send otherwise:"
    used = found["used_before"]
    yield f"Used before: {len(used['jobs'])} jobs, epsilon {used['epsilon']:g} of all together"
    if found["census"] is None:
        return
    yield ""
    yield f"Before round 1 ({found['sites']} sites)" + _hidden(found["hidden"])
    yield from _census(found["census"], found["labels"], found["counted_labels"])
    yield ""
    yield f"Features of the model ({len(found['features'])}): {_short(found['features'])}"
    yield ""
    yield "In the rounds" + _hidden(found["hidden"])
    if found["rounds_unknown"]:
        yield f"  {found['rounds_unknown']}"
    for each in found["rounds"]:
        noise = ", with noise" if each["noise"] else ""
        yield f"  {each['stage']}: {each['what']}{noise}"
        yield f"    {each['numbers']} numbers, at least {each['rows']} rows behind each"
        for name, shape in each["shapes"].items():
            yield f"    {name.strip('.')}: {' x '.join(map(str, shape)) or 'one number'}"


def _hidden(hidden: bool) -> str:
    if not hidden:
        return ", read by the server:"
    return ", added to what the other sites send under masks; the server reads only the sums:"


def _census(said: Mapping[str, Any], labels: list[Any], counted: list[Any]) -> Iterator[str]:
    open_ = ("package", "rows", "all_rows", "held", "features", "array", "dtype", "scale")
    yield "  always read by the server:"
    for name in open_:
        yield f"    {name}: {json.dumps(said[name])}"
    for name in ("ids", "y"):
        if name in said:
            yield f"    {name}: a digest that is of no use in another run"
    for name in ("test_rows", "encoded", "most"):
        if name in said:
            yield f"    {name}: {_short(said[name])}"
    yield f"  labels with enough rows: {_short(labels)}"
    for name, kinds in said["groups"].items():
        yield f"  groups of {name}: {_short(kinds)}"
    for name, own in said.get("summaries", {}).items():
        yield f"  column {name}: {_column(own)}"
    for place, count in said.get("counts", []):
        row = [counted[place[0]]]
        row += [kinds[k] for kinds, k in zip(said["groups"].values(), place[1:], strict=True)]
        yield f"  rows with {', '.join(map(str, row))}: {count}"


def _column(own: Mapping[str, Any]) -> str:
    parts = [own["kind"]]
    if own["missing"]:
        parts.append(f"{own['missing']} missing")
    if own["moments"]:
        rows, mean, spread = own["moments"]
        parts.append(f"{rows:g} values, mean {mean:.6g}, squared distances {spread:.6g}")
    if own["counts"]:
        parts.append("rows by value: " + ", ".join(f"{k} {n}" for k, n in own["counts"]))
    if own["different"] > len(own["counts"]):
        parts.append("other values are not told")
    for form, (rows, mean, spread) in own["dates"].items():
        parts.append(f"dates as {form}: {rows:g}, mean {mean:.6g}, spread {spread:.6g}")
    if own["values"]:
        parts.append(f"{len(own['values'])} numbers with their counts")
    if own["powers"]:
        parts.append(
            "all different: their number, sum and sum of squares {}, {}, {}".format(*own["powers"])
        )
    elif own["unique"]:
        parts.append("all different")
    return "; ".join(parts)


def _short(values: Any) -> str:
    if not isinstance(values, list):
        return json.dumps(values)
    shown = ", ".join(map(str, values[:20]))
    return shown + (f", ... ({len(values)} in all)" if len(values) > 20 else "")
