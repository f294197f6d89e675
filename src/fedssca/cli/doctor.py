"""`fedssca doctor`: check an installation, and say what to do about what is wrong."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from fedssca.cli.options import Json, new_app
from fedssca.run.schema import ProjectFile
from fedssca.run.schema.validate import default_of
from fedssca.system import cores, pip_install, starting_up, user_cache

__all__ = ["CHECKS", "Checked", "app"]

app = new_app()

GIGA = 1e9
SERVER_PORT: int = default_of(ProjectFile, "port")
ROOM, MEMORY = 1.0, 2.0
"""Gigabytes of disk and of memory below which a warning is given."""
MARKS = {"ok": "[green]ok   [/]", "note": "[yellow]note [/]", "wrong": "[red]wrong[/]"}


class Checked(NamedTuple):
    """What a check found."""

    state: Literal["ok", "note", "wrong"]
    """wrong: the package does not work; note: something that may be wanted does not."""
    found: str
    todo: str = ""
    """What to do about it, if there is something."""


@app.command(epilog="Example: fedssca doctor --json")
def doctor(as_json: Json = False) -> None:
    """Check this installation, and say what to do about what is wrong.

    Exit code 1 says that something is wrong. Notes are about parts that are not installed or not
    needed by everybody.
    """
    findings = {name: _checked(check) for name, check in CHECKS.items()}
    wrong = any(finding.state == "wrong" for finding in findings.values())
    if as_json:
        told = {name: finding._asdict() for name, finding in findings.items()}
        print(json.dumps({"ok": not wrong, "checks": told}))
    else:
        _show(findings, wrong)
    raise typer.Exit(1 if wrong else 0)


def _checked(check: Callable[[], Checked]) -> Checked:
    try:
        return check()
    except Exception as error:  # a check must not end the others
        return Checked("wrong", f"{type(error).__name__}: {error}", "report this with the output")


def _show(findings: dict[str, Checked], wrong: bool) -> None:
    """Print plain lines, so that commands in them can be copied whole."""
    console = Console(soft_wrap=True, highlight=False)
    for name, finding in findings.items():
        console.print(f"{MARKS[finding.state]}  {name:<15}{escape(finding.found)}")
        if finding.todo:
            console.print(f"{'':<22}[bold]{escape(finding.todo)}[/]")
    console.print("something is wrong: see above" if wrong else "fedssca works on this machine")


def _python() -> Checked:
    where = f"{platform.python_version()} ({sys.executable})"
    return Checked("ok", f"{where} on {platform.system()}, {len(cores())} processor cores")


def _packages() -> Checked:
    from packaging.requirements import Requirement

    wrong = []
    for line in requires("fedssca") or ():
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        have = _version(need.name)
        if have is None or not need.specifier.contains(have, prereleases=True):
            wrong.append(f"{need} ({have or 'not installed'})")
    if wrong:
        return Checked(
            "wrong",
            "needed: " + ", ".join(wrong),
            pip_install().replace("install", "install --upgrade", 1),
        )
    return Checked("ok", f"fedssca {version('fedssca')}, jax {version('jax')}, and what they need")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _extras() -> Checked:
    from fedssca.run.versions import extras

    found = extras()
    missing = [name for name, packages in found.items() if not all(packages.values())]
    have = [name for name in found if name not in missing]
    text = f"installed: {', '.join(have) or 'none'}"
    if not missing:
        return Checked("ok", text)
    hint = f"to add one, {missing[0]} for example: {pip_install(missing[0])}"
    return Checked("note", f"{text}; not installed: {', '.join(missing)}", hint)


def _compiler() -> Checked:
    with starting_up():
        import jax
        import jax.numpy as jnp
    begun = time.perf_counter()
    value = float(jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.arange(8.0)))
    taken, devices = time.perf_counter() - begun, ", ".join(map(str, jax.devices()))
    due = sum(math.sin(n) * math.cos(n) for n in range(8))
    if abs(value - due) > 1e-4:
        return Checked("wrong", f"a compiled sum is {value}", "reinstall jax and jaxlib")
    return Checked("ok", f"compiles and computes in {taken:.1f} s on {devices}")


def _cache() -> Checked:
    place = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", user_cache() / "compiled"))
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / GIGA
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Checked(
            "note",
            f"{place} cannot be written ({error.strerror}): programs are compiled anew every time",
            "set JAX_COMPILATION_CACHE_DIR to a folder of yours",
        )
    if size > 5:
        return Checked("note", f"{place} holds {size:.1f} GB", "it can be deleted at any time")
    return Checked("ok", f"{place}, {size:.2f} GB of compiled programs")


def _data() -> Checked:
    from fedssca.data import status

    found = status()
    have = [one.name for one in found if one.state in ("embedded", "present")]
    corrupt = [one.name for one in found if one.state == "corrupt"]
    if corrupt:
        return Checked(
            "note",
            f"damaged: {', '.join(corrupt)}",
            f"download again: fedssca data get {' '.join(corrupt)}",
        )
    return Checked("ok", f"data sets on this machine: {', '.join(have)}")


def _space() -> Checked:
    free = {
        str(place): shutil.disk_usage(place).free / GIGA
        for place in (Path.cwd(), Path(tempfile.gettempdir()))
    }
    text = ", ".join(f"{room:.1f} GB free at {place}" for place, room in free.items())
    if min(free.values()) < ROOM:
        return Checked("note", text, "make room: runs, models and compiled programs are files")
    return Checked("ok", text)


def _memory(table: Path = Path("/proc/meminfo")) -> Checked:
    lines = table.read_text().splitlines() if table.exists() else []
    free = [int(line.split()[1]) * 1024 / GIGA for line in lines if line.startswith("MemAvailable")]
    if not free:
        return Checked("ok", "this system does not say how much is free")
    if free[0] < MEMORY:
        return Checked(
            "note", f"{free[0]:.1f} GB free", "close other programs, or use smaller batches"
        )
    return Checked("ok", f"{free[0]:.1f} GB free")


def _ports() -> Checked:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
    except OSError as error:
        return Checked(
            "note",
            f"this machine cannot connect to itself ({error.strerror or error})",
            "allow connections to 127.0.0.1: the page and local deployments need them",
        )
    text = "connections on 127.0.0.1 work (the page, local deployments)"
    taken = f"{text}; port {SERVER_PORT}, the default of fedssca deploy server, is in use"
    free = f"{text}; port {SERVER_PORT}, the default of fedssca deploy server, is free"
    try:
        socket.create_server(("", SERVER_PORT)).close()
    except OSError:
        return Checked("ok", taken)
    return Checked("ok", free)


def _clock() -> Checked:
    now, made = time.time(), Path(__file__).stat().st_mtime
    text = datetime.fromtimestamp(now).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    if now < made - 3600:
        return Checked(
            "note",
            f"{text}, before this package was installed",
            "set the clock: certificates of a deployment are not valid yet at this time",
        )
    return Checked("ok", f"{text}; the clocks of all sites of a deployment should agree")


def _browser() -> Checked:
    import webbrowser

    try:
        name = webbrowser.get().name
    except webbrowser.Error:
        return Checked(
            "note",
            "none found",
            "fedssca ui prints an address: open it in a browser, through ssh -L from elsewhere",
        )
    return Checked("ok", f"{name} opens the page of fedssca ui")


CHECKS: dict[str, Callable[[], Checked]] = {
    "Python": _python,
    "packages": _packages,
    "extras": _extras,
    "compiler": _compiler,
    "compile cache": _cache,
    "data": _data,
    "disk": _space,
    "memory": _memory,
    "ports": _ports,
    "clock": _clock,
    "browser": _browser,
}
"""Every check by its name, in the order in which they are shown."""
