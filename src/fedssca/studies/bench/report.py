"""Tables, figures and files of `fedssca bench`, made from its results alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.errors import UserError
from fedssca.run.curves import COLOURS, DASHES

__all__ = ["print_found", "save"]

Found = Mapping[str, Any]
RATIOS = {
    "noise": "a round with clipped samples and noise / without",
    "deep": "a round / PyTorch's joined batch",
    "deep_loop": "a round / PyTorch's loop over the clients",
    "start": "first row of the default run / import jax",
    "start_cold": "the same when nothing is compiled",
    "start_second": "second row of the default run / import jax",
    "start_second_cold": "the same when nothing is compiled",
    "bytes": "bytes to the same accuracy / those of momentum SGD in 32 bits",
}
SECONDS = {
    "sums": "processor time of a secure sum over 100 clients, all parties",
    "psi": "time to find common ids, all parties on this machine",
}
SITES = {
    "sites": "sites",
    "megabytes_per_site": "megabytes per site",
    "seconds_per_round": "seconds per round",
    "ratio": "a round / bare calls of the engine",
    "server_megabytes_start": "megabytes of the server, first rounds",
    "server_megabytes_end": "megabytes of the server, last rounds",
}
MARKERS = "os^DvPX"
LABELS = {
    "batch": "batch B",
    "clients": "clients I",
    "hidden": "hidden units (d = 794 x)",
    "limits": "limits M",
}


def print_found(found: Found) -> None:
    """Print all tables in 80 columns."""
    console = Console()
    if "limit" in found:
        pairs = [(f"B = {b}", f"{ratio:.2f}") for b, ratio in found["limit"].items()]
        _table(console, "a round / its two matrix products", ("batch", "ratio"), pairs)
        if started := found.get("start_of_a_million_clients"):
            console.print(f"1,000,000 clients, start to first round: {started:.1f} s")
        costs = [(name, f"{ratio:.2f}") for name, ratio in found["costs"].items()]
        _table(console, "what extras cost, with / without", ("extra", "ratio"), costs)
        for name, row in found["compile"].items():
            said = f"failed: {row}"
            if name != "failed":
                said = f"{row['first_round']:.2f} s, {row['process']:.1f} s with start of Python"
            console.print(f"compile and run one round, {name} cache: {said}", highlight=False)
    if "methods" in found:
        times = [(name, f"{seconds * 1e3:.3g}") for name, seconds in found["methods"].items()]
        _table(console, "a round of each method, B = 10", ("method", "ms / round"), times)
    for section, title in RATIOS.items():
        if section in found:
            _table(console, title, ("what", "ratio"), _ratio_rows(found[section]))
    for section, title in SECONDS.items():
        if section in found:
            spent = [(name, f"{seconds:.3g}") for name, seconds in found[section].items()]
            _table(console, title, ("what", "seconds"), spent)
    if "sites" in found:
        shown = [(title, f"{found['sites'][key]:.3g}") for key, title in SITES.items()]
        _table(console, "a deployment on this machine, secure sums", ("what", "value"), shown)
    if "peers" in found:
        _print_peers(console, found, "FedSGD, ten clients, B = 10")
    if "peers_cnn" in found:
        _print_peers(console, found["peers_cnn"], "the same, convolutional network")
    if "growth" in found:
        rows = [
            (LABELS[r["axis"]], f"{r['value']}", r["line"], f"{r['median'] * 1e3:.3g}")
            for r in found["growth"]
        ]
        _table(console, "how a round grows", ("axis", "value", "line", "ms / round"), rows)


def _ratio_rows(ratios: float | Mapping[str, float]) -> list[tuple[str, str]]:
    pairs = ratios if isinstance(ratios, Mapping) else {"time": ratios}
    return [(name, f"{ratio:.2f}") for name, ratio in pairs.items()]


def _print_peers(console: Console, found: Found, title: str) -> None:
    kept = {k: v for k, v in found["peers_details"].items() if k not in found["peers_failed"]}
    heads = ("framework", "ms / round", "ratio", "spread", "start-up", "loss")
    lines = [_peer(name, row, found["peers"].get(name)) for name, row in kept.items()]
    _table(console, title, heads, lines)
    for name, row in kept.items():
        if tried := row.get("variants"):
            said = "; ".join(f"{way} {seconds * 1e3:.3g} ms" for way, seconds in tried.items())
            console.print(f"{name}, ways tried: {said}", highlight=False, markup=False)
    for name, why in found["peers_failed"].items():
        console.print(f"[red]{name}[/]: {escape(why)}", highlight=False, soft_wrap=True)


def _peer(name: str, row: Found, ratio: float | None) -> tuple[str, ...]:
    return (
        f"{name} ({row['variant']})" if row.get("variant") else name,
        f"{row['seconds'] * 1e3:.3g}",
        "1" if ratio is None else f"{ratio:.3g}",
        f"{row['spread']:.0%}",
        f"{row['startup']:.1f} s",
        f"{row['loss']:.4f}",
    )


def _table(
    console: Console, title: str, heads: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
        min_width=min(len(title), 80),
    )
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def save(found: Found, out: Path) -> list[Path]:
    """Write bench.json, and a CSV and a PNG for every section."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps(found, indent=1))
        written = [out / "bench.json"]
        if "limit" in found:
            timings = found["seconds"] | found["costs_seconds"]
            written.append(_csv(out / "limit.csv", timings))
            bars = {
                f"a round / its products, B = {b}": ratio for b, ratio in found["limit"].items()
            }
            written.append(_bars(out / "limit.png", bars | found["costs"], "ratio", log=False))
        if "methods" in found:
            written.append(_csv(out / "methods.csv", found["methods_seconds"]))
            title = "seconds per round (log scale)"
            written.append(_bars(out / "methods.png", found["methods"], title, log=True))
        for section in ("noise", "deep", "start", *SECONDS):
            if section in found:
                written.append(_csv(out / f"{section}.csv", found[f"{section}_seconds"]))
        for section in (section for section in SECONDS if section in found):
            label = f"seconds: {SECONDS[section]}"
            place = out / f"{section}.png"
            written.append(_bars(place, found[section], label, log=False, ratio=False))
        if "sites" in found:
            rows = {str(row["round"]): row for row in found["sites_memory"]}
            written.append(_csv(out / "sites.csv", rows))
        if "bytes" in found:
            written.append(_csv(out / "bytes.csv", found["bytes_details"]))
            sent = {
                name + more: row[key]
                for name, row in found["bytes_details"].items()
                for more, key in (("", "megabytes"), (", secure sum", "secure_sum_megabytes"))
            }
            title = f"MB sent until the test accuracy is {found['bytes_target']:.0%}"
            written.append(_bars(out / "bytes.png", sent, title, log=False, ratio=False))
        if "peers" in found:
            title = "seconds per round / ours (log scale)"
            for name, one in (("peers", found), ("peers_cnn", found.get("peers_cnn"))):
                if one:
                    written.append(_csv(out / f"{name}.csv", one["peers_details"]))
                    written.append(_bars(out / f"{name}.png", one["peers"], title, log=True))
        if "growth" in found:
            rows = {str(n): row for n, row in enumerate(found["growth"])}
            written += [_csv(out / "growth.csv", rows), _lines(out / "growth.png", found["growth"])]
    except OSError as error:
        raise UserError(
            f"cannot write to {out}: {error.strerror or error}; choose another --out"
        ) from error
    return written


def _csv(path: Path, rows: Mapping[str, Found]) -> Path:
    keys = [
        "axis",
        "value",
        "line",
        "seconds",
        "processor_seconds",
        "best",
        "median",
        "spread",
        "startup",
        "loss",
    ]
    keys += ["rounds", "rounds_sd", "megabytes", "secure_sum_megabytes", "runs", "server", "site"]
    used = [key for key in keys if any(key in row for row in rows.values())]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *used])
        writer.writerows([name, *(row.get(key, "") for key in used)] for name, row in rows.items())
    return path


def _bars(
    path: Path, values: Mapping[str, float], label: str, *, log: bool, ratio: bool = True
) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.35 * max(1, len(values))), layout="constrained")
    axis = figure.subplots()
    bars = axis.barh(list(values), list(values.values()), color=COLOURS[0])
    axis.bar_label(bars, fmt="%.3g", padding=3)
    if ratio:
        axis.axvline(1.0, color="black", linewidth=1.0)
    if log and values:
        axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.set_xlabel(label)
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=120)
    return path


def _lines(path: Path, rows: Iterable[Found]) -> Path:
    from matplotlib.figure import Figure

    table = list(rows)
    axes = list(dict.fromkeys(row["axis"] for row in table))
    shared = list(dict.fromkeys(row["line"] for row in table if row["axis"] != "limits"))
    figure = Figure(figsize=(4.2 * len(axes), 4.0), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(axes), squeeze=False)[0], axes, strict=True):
        lines = list(dict.fromkeys(row["line"] for row in table if row["axis"] == name))
        for line in lines:
            number = (shared if line in shared else lines).index(line) % len(COLOURS)
            own = [r for r in table if r["axis"] == name and r["line"] == line]
            style = {"color": COLOURS[number], "linestyle": DASHES[number % len(DASHES)]}
            values = [row["value"] for row in own], [row["median"] for row in own]
            panel.plot(*values, marker=MARKERS[number], label=line, **style)
        ticks = sorted({row["value"] for row in table if row["axis"] == name})
        panel.set_xscale("symlog" if name == "limits" else "log")
        panel.set_xticks(ticks, [_short(tick) for tick in ticks])
        panel.minorticks_off()
        panel.set_yscale("log")
        panel.set(xlabel=LABELS[name], ylabel="seconds per round")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False)
    figure.savefig(path, format="png", dpi=120)
    return path


def _short(number: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return str(number)
