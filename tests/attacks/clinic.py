"""A small clinic's table, and what a server that keeps everything learns of it before round 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedssca.deploy.census import Census
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.run.config import parse
from tests.deploy.loopback import RUN, Loopback, parties

BASE = """
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
rounds = 3
[data]
clients = 3
"""
SITES = 3
NAMES = [f"{first} {last}" for first in ("Ada", "Bo", "Cleo") for last in ("Ek", "Fry", "Gil")]
HIDDEN = "privacy.secure_sum=true"


def table(rows: int = 240) -> dict[str, list[str]]:
    """Patients with names, of whom some come several times, and a secret for each of them."""
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, rows)
    return {
        "name": [f"{NAMES[i // 6 % 9]} {i // 6}" for i in range(rows)],
        "age": [str(a) for a in age],
        "ward": list(rng.choice(["north", "south"], rows)),
        "weight": [f"{w:.3f}" for w in rng.normal(70, 9, rows)],
        "y": list(np.where(age + rng.normal(0, 9, rows) > 55, "ill", "well")),
    }


def clinics(folder: Path, site_toml: str = "", rows: int = 240) -> list[Path]:
    """The site.toml of each of three clinics, which share the patients out."""
    columns, files = table(rows), []
    for number in range(SITES):
        own = zip(*(values[number::SITES] for values in columns.values()), strict=True)
        lines = [",".join(columns), *(",".join(line) for line in own)]
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
        files.append(folder / f"{number}.toml")
        text = site_toml if "[limits]" in site_toml else site_toml + "\n[limits]\n"
        files[-1].write_text(f'path = "{number}.csv"\n{text}')
    return files


def ask_census(
    files: list[Path], settings: list[str], out: Path, run: bytes = RUN
) -> tuple[Census, Loopback]:
    """Carry out a run up to its census; returns what the server made of it, and all that it saw."""
    link = Loopback(parties(files))
    order = RunOrder(parse(BASE, settings), site_names(len(files)), run)
    server = RunServer(order, link, out)
    try:
        return server._preparation.census(), link
    finally:
        out.mkdir(exist_ok=True)
        (out / "seen").write_bytes(b"\n".join(link.answers))


def seen(out: Path) -> bytes:
    """All bytes that the server got."""
    return (out / "seen").read_bytes()
