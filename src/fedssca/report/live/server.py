"""What the page asks for, and the answers. Reads run directories; writes only by starting runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fedssca.errors import UserError
from fedssca.report.gather import going
from fedssca.report.live import form
from fedssca.report.live.guard import Guard
from fedssca.report.live.jobs import Jobs
from fedssca.report.live.shelf import Shelf, check_name
from fedssca.report.live.watch import Watch, check_names
from fedssca.report.page import SCRIPTS, STYLES, Page, assemble, report_page, static
from fedssca.run.config import embedded_default, parse

__all__ = ["Desk", "application"]

OWN_SCRIPTS = ("api.js", "list.js", "form.js", "run.js", "app.js")
PAUSE = 0.3
"""Seconds between two looks at runs that are watched."""
QUIET = 15.0
"""Seconds after which a silent stream says that it lives."""


class Desk(NamedTuple):
    """What the answers are made from."""

    shelf: Shelf
    jobs: Jobs
    closing: Callable[[], bool]
    """The server is about to end: streams end too."""


def application(desk: Desk, token: str, port: int) -> Any:
    """The whole page as an ASGI application, guarded."""
    page = whole_page()

    def reading(make: Callable[[Desk, Request], Any]) -> Callable[[Request], Response]:
        return lambda request: JSONResponse(make(desk, request))

    def writing(make: Callable[[Desk, dict[str, Any]], Any]) -> Any:
        async def answer(request: Request) -> Response:
            said = await _said(request)
            found = await run_in_threadpool(make, desk, said)
            return JSONResponse(found, 422 if found.get("errors") else 200)

        return answer

    routes = [
        Route("/", lambda request: _html(page)),
        Route("/api/runs", reading(list_runs)),
        Route("/api/form", reading(lambda desk, request: blank_form())),
        Route("/api/config", reading(config_of)),
        Route("/api/report", lambda request: _report(desk, request)),
        Route("/api/stream", lambda request: _stream(desk, request)),
        Route("/api/check", writing(check), methods=["POST"]),
        Route("/api/start", writing(start), methods=["POST"]),
        Route("/api/stop", writing(stop), methods=["POST"]),
        Route("/api/resume", writing(resume), methods=["POST"]),
    ]
    handlers: Any = {UserError: _bad, HTTPException: _http}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, port)


def whole_page() -> Page:
    """The page with all its styles and scripts in it."""
    styles = [static("fedssca.report", name) for name in STYLES] + [
        static("fedssca.report.live", "ui.css")
    ]
    shared = [static("fedssca.report", name) for name in SCRIPTS]
    own = [static("fedssca.report.live", name) for name in OWN_SCRIPTS]
    return assemble("fedssca", {}, styles, shared + own, connect="'self'")


def list_runs(desk: Desk, request: Request) -> dict[str, Any]:
    """All runs for the list; what processes know beats what files tell."""
    del request
    runs = desk.shelf.listing()
    for run in runs:
        if run["state"] != "complete" and (job := desk.jobs.state(run["name"])) is not None:
            run["state"] = "paused" if job == "ended" else job
    blank = {"data": "", "algorithm": "", "rounds": 0, "round": None, "train_cost": None}
    unborn = [
        {"name": name, "state": "starting", "modified": 0, "test_accuracy": None, "kept": None}
        | blank
        for name in desk.jobs.unborn()
    ]
    return {"folder": str(desk.shelf.folder), "runs": unborn + runs}


def blank_form() -> dict[str, Any]:
    """The fields, and the embedded default as a start."""
    text = embedded_default()
    return _as_form(text)


def new_name() -> str:
    """A name that is free, most likely."""
    return f"{datetime.now():%Y%m%d-%H%M%S}"


def config_of(desk: Desk, request: Request) -> dict[str, Any]:
    """A run's settings for the form: a new run like that one."""
    path = desk.shelf.path(request.query_params.get("run", ""))
    text = (path / "config.toml").read_text()
    parse(text)
    return _as_form(text)


def check(desk: Desk, said: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a form or a TOML text, and the same in the other shape."""
    del desk
    tree, errors = _filled(said)
    values, limits = form.values_of(tree)
    return {"errors": errors, "toml": form.as_toml(tree), "values": values, "limits": limits}


def start(desk: Desk, said: dict[str, Any]) -> dict[str, Any]:
    """Start a run, or say at which fields it cannot be."""
    tree, errors = _filled(said)
    name = str(said.get("name", ""))
    try:
        check_name(name)
        if desk.shelf.place(name).exists():
            raise UserError(f"{name!r} is there already: choose another name")
    except UserError as error:
        errors = {"name": str(error)} | errors
    if not errors:
        desk.jobs.start(name, form.as_toml(tree))
    return {"errors": errors, "name": name}


def stop(desk: Desk, said: dict[str, Any]) -> dict[str, Any]:
    """Ctrl-C for a run of ours."""
    name = str(said.get("name", ""))
    desk.shelf.place(name)
    desk.jobs.stop(name, force=said.get("force") is True)
    return {"name": name}


def resume(desk: Desk, said: dict[str, Any]) -> dict[str, Any]:
    """Go on with a run that nobody works on."""
    name = str(said.get("name", ""))
    path = desk.shelf.path(name)
    if (path / "result.json").exists():
        raise UserError(f"{name!r} is complete: there is nothing to resume")
    if (path / "deploy.json").exists():
        raise UserError(f"{name!r} is of several sites: fedssca deploy submit --resume {path}")
    if desk.jobs.state(name) is None and going(path):
        raise UserError(f"{name!r} was written to a moment ago: does it run elsewhere?")
    desk.jobs.resume(name)
    return {"name": name}


def _filled(said: dict[str, Any]) -> form.Filled:
    if "toml" in said:
        return form.from_toml(str(said["toml"]))
    values = said.get("values")
    return form.fill(values if isinstance(values, dict) else {}, said.get("limits"))


def _as_form(text: str) -> dict[str, Any]:
    """Fields, and the values of a TOML text for them."""
    values, limits = form.values_of(form.from_toml(text).tree)
    return {
        "sections": form.fields(),
        "takes": form.TAKES,
        "values": values,
        "limits": limits,
        "name": new_name(),
    }


async def _said(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "JSON is expected")
    try:
        said = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "this is not JSON") from error
    if not isinstance(said, dict):
        raise HTTPException(400, "an object is expected")
    return said


def _html(page: Page) -> Response:
    headers = {"content-security-policy": page.policy + "; frame-ancestors 'none'"}
    return HTMLResponse(page.text, headers=headers)


def _report(desk: Desk, request: Request) -> Response:
    names = check_names(desk.shelf, request.query_params.getlist("run"))
    text = report_page([desk.shelf.path(name) for name in names])
    return Response(text, media_type="application/octet-stream")


def _stream(desk: Desk, request: Request) -> Response:
    names = check_names(desk.shelf, request.query_params.getlist("run"))
    events = _events(desk, Watch(desk.shelf, desk.jobs, names), request)
    return StreamingResponse(events, media_type="text/event-stream")


async def _events(desk: Desk, watch: Watch, request: Request) -> AsyncIterator[str]:
    """Server-sent events for as long as the page is there."""
    silent = 0.0
    while not desk.closing() and not await request.is_disconnected():
        for kind, data in await run_in_threadpool(lambda: list(watch.news())):
            yield f"event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
            silent = 0.0
        if silent >= QUIET:
            yield ": still here\n\n"
            silent = 0.0
        await asyncio.sleep(PAUSE)
        silent += PAUSE


def _bad(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, UserError)
    return JSONResponse({"error": str(error), "field": error.key or None}, 400)


def _http(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


def serve(folder: Path, token: str, sock: Any) -> None:
    """Serve on a socket until Ctrl-C."""
    import uvicorn

    port = sock.getsockname()[1]
    shelf = Shelf(folder)
    server: uvicorn.Server
    desk = Desk(shelf, Jobs(folder), lambda: server.should_exit)
    config = uvicorn.Config(
        application(desk, token, port),
        log_level="warning",
        access_log=False,  # addresses hold the token
        lifespan="off",
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.run(sockets=[sock])
