"""The server of the live page. It reads run directories, and writes only by starting runs."""

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
from fedssca.report.gather import LARGEST_OBJECT, is_recent, read_file
from fedssca.report.live import form
from fedssca.report.live.access import AccessCheck
from fedssca.report.live.events import RunEvents, events_of, failure_of
from fedssca.report.live.folder import RunFolder, check_name
from fedssca.report.live.processes import RunProcesses
from fedssca.report.page import Page, assemble, report_page, script, style
from fedssca.run.config import embedded_default, parse

__all__ = ["LiveContext", "application", "serve"]

MOST_RUNS = 100
"""The largest number of runs in one request."""
PAUSE = 0.3
"""Seconds between two looks at the files of a run whose events are streamed."""
SILENCE = 15.0
"""Seconds without an event after which a stream sends a comment, so that it stays open."""


class LiveContext(NamedTuple):
    """What the answers are made from."""

    folder: RunFolder
    processes: RunProcesses
    closing: Callable[[], bool]
    """Whether the server is shutting down; streams end then."""


def application(context: LiveContext, token: str, port: int) -> Any:
    """The page and its answers as an ASGI application that checks access."""
    page = live_page()

    def reading(answer: Callable[[LiveContext, Request], Any]) -> Callable[[Request], Response]:
        return lambda request: JSONResponse(answer(context, request))

    def writing(answer: Callable[[LiveContext, dict[str, Any]], Any]) -> Any:
        async def respond(request: Request) -> Response:
            body = await _json_body(request)
            found = await run_in_threadpool(answer, context, body)
            return JSONResponse(found, 422 if found.get("errors") else 200)

        return respond

    routes = [
        Route("/", lambda request: _html(page)),
        Route("/api/runs", reading(list_runs)),
        Route("/api/methods", reading(list_trainings)),
        Route("/api/form", reading(lambda context, request: _form_of(embedded_default()))),
        Route("/api/config", reading(form_like)),
        Route("/api/report", lambda request: _report(context, request)),
        Route("/api/stream", lambda request: _stream(context, request)),
        Route("/api/check", writing(check), methods=["POST"]),
        Route("/api/start", writing(start), methods=["POST"]),
        Route("/api/stop", writing(stop), methods=["POST"]),
        Route("/api/resume", writing(resume), methods=["POST"]),
        Route("/api/forget", writing(forget), methods=["POST"]),
    ]
    handlers: Any = {UserError: _user_error, HTTPException: _http_error}
    return AccessCheck(Starlette(routes=routes, exception_handlers=handlers), token, port)


def live_page() -> Page:
    """The page, which contains all its styles and scripts."""
    styles = style("live/static/ui.css", "live/static/form.css")
    return assemble("fedssca", {}, styles, script("live/static/app.js"), connect="'self'")


def list_runs(context: LiveContext, request: Request) -> dict[str, Any]:
    """All runs for the list. The state of a process takes precedence over that of the files."""
    del request
    processes = context.processes
    runs = context.folder.listing()
    for run in runs:
        process = processes.state(run["name"])
        if run["state"] != "complete" and process is not None:
            run["state"] = "paused" if process == "ended" else process
        run["error"] = _error_of(processes, run)
    others = [_without_folder(processes, *each) for each in processes.without_folder().items()]
    runs = sorted(others, key=lambda run: -run["modified"]) + runs
    return {"folder": str(context.folder.folder), "runs": runs}


def list_trainings(context: LiveContext, request: Request) -> dict[str, Any]:
    """All trainings in the folder, for the comparison of methods."""
    del request
    return {"trainings": context.folder.trainings()}


def _without_folder(processes: RunProcesses, name: str, modified: float) -> dict[str, Any]:
    """The entry of a run without a run directory: it starts, or it has failed."""
    running = processes.state(name) in ("running", "stopping")
    run: dict[str, Any] = {"name": name, "state": "starting" if running else "failed"}
    metrics = "train_cost", "test_accuracy", "test_label_accuracy", "test_rmse"
    unknown = dict.fromkeys(("round", *metrics, "kept"))
    empty = {"data": "", "algorithm": "", "rounds": 0, "modified": modified, **unknown}
    return run | empty | {"error": _error_of(processes, run)}


def _error_of(processes: RunProcesses, run: dict[str, Any]) -> str | None:
    """Why a run that is not complete has ended, if an error ended it."""
    if run["state"] not in ("failed", "paused"):
        return None
    error = processes.error(run["name"])
    return None if error is None else str(error)


def form_like(context: LiveContext, request: Request) -> dict[str, Any]:
    """The form with the settings of a run, and what was wrong with them if the run has failed."""
    name = request.query_params.get("run", "")
    path = context.folder.path_for(name)
    sent = context.processes.settings(name)
    if sent is not None and not (path / "config.toml").exists():
        return _form_of(sent) | {"name": name, "failure": failure_of(context.processes, name)}
    path = context.folder.path(name)
    try:
        text = read_file(path, "config.toml", LARGEST_OBJECT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config.toml of {path.name!r} cannot be read: {error}") from None
    parse(text)
    return _form_of(text)


def check(context: LiveContext, body: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a form or a TOML text, and its settings in both shapes."""
    del context
    tree, errors = _filled(body)
    values, limits = form.values_of(tree)
    return {"errors": errors, "toml": form.as_toml(tree), "values": values, "limits": limits}


def start(context: LiveContext, body: dict[str, Any]) -> dict[str, Any]:
    """Start a run, unless its name or a field is wrong."""
    tree, errors = _filled(body)
    name = str(body.get("name", ""))
    try:
        check_name(name)
        if context.folder.path_for(name).exists():
            raise UserError(f"{name!r} exists already: choose another name")
    except UserError as error:
        errors = {"name": str(error)} | errors
    if not errors:
        context.processes.start(name, form.as_toml(tree))
    return {"errors": errors, "name": name}


def stop(context: LiveContext, body: dict[str, Any]) -> dict[str, Any]:
    """Stop a run that a page has started."""
    name = str(body.get("name", ""))
    context.folder.path_for(name)
    context.processes.stop(name, force=body.get("force") is True)
    return {"name": name}


def resume(context: LiveContext, body: dict[str, Any]) -> dict[str, Any]:
    """Resume a run that is not finished and that no process works on."""
    name = str(body.get("name", ""))
    path = context.folder.path(name)
    if (path / "result.json").exists():
        raise UserError(f"{name!r} is complete: there is nothing to resume")
    if context.processes.state(name) is None and is_recent(path):
        raise UserError(
            f"{name!r} was written to a moment ago: it may still be running outside this page"
        )
    context.processes.resume(name, _kit(body) if (path / "deploy.json").exists() else None)
    return {"name": name}


def _kit(body: dict[str, Any]) -> Path:
    """The kit with which a deployed run is submitted again."""
    kit = Path(str(body.get("kit") or "")).expanduser()
    if not body.get("kit") or not kit.is_dir():
        raise UserError(
            f"{str(kit)!r} is not a folder: a deployed run is resumed with the kit of the "
            "submitter, such as kits/submit"
        )
    return kit.resolve()


def forget(context: LiveContext, body: dict[str, Any]) -> dict[str, Any]:
    """Remove a run that failed before it had a run directory from the list."""
    name = str(body.get("name", ""))
    if (context.folder.path_for(name) / "config.toml").exists():
        raise UserError(f"{name!r} has a folder: delete {context.folder.path_for(name)} itself")
    context.processes.forget(name)
    return {"name": name}


def _filled(body: dict[str, Any]) -> form.Filled:
    """The settings in a request: a TOML text, or the values and limits of the form."""
    if "toml" in body:
        return form.from_toml(str(body["toml"]))
    values = body.get("values")
    return form.fill(values if isinstance(values, dict) else {}, body.get("limits"))


def _form_of(text: str) -> dict[str, Any]:
    """The fields of the form, filled with the values of a TOML text."""
    values, limits = form.values_of(form.from_toml(text).tree)
    return {
        "sections": form.fields(),
        "takes": form.TAKES,
        "values": values,
        "limits": limits,
        "name": f"{datetime.now():%Y%m%d-%H%M%S}",
    }


async def _json_body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the request is not JSON") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "the request is not a JSON object")
    return body


def _names(context: LiveContext, request: Request) -> list[str]:
    names = request.query_params.getlist("run")
    if not 1 <= len(names) <= MOST_RUNS:
        raise UserError(f"request 1 to {MOST_RUNS} runs, not {len(names)}")
    for name in names:
        context.folder.path_for(name)
    return names


def _html(page: Page) -> Response:
    headers = {"content-security-policy": page.policy + "; frame-ancestors 'none'"}
    return HTMLResponse(page.text, headers=headers)


def _report(context: LiveContext, request: Request) -> Response:
    text = report_page([context.folder.path(name) for name in _names(context, request)])
    return Response(text, media_type="application/octet-stream")


def _stream(context: LiveContext, request: Request) -> Response:
    names = _names(context, request)
    watched = [RunEvents(context.folder, context.processes, name) for name in names]
    return StreamingResponse(_events(context, watched, request), media_type="text/event-stream")


async def _events(
    context: LiveContext, watched: list[RunEvents], request: Request
) -> AsyncIterator[str]:
    """Server-sent events until the page disconnects or the server ends."""
    silent = 0.0
    while not context.closing() and not await request.is_disconnected():
        for kind, data in await run_in_threadpool(events_of, watched):
            yield f"event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
            silent = 0.0
        if silent >= SILENCE:
            yield ": no news\n\n"
            silent = 0.0
        await asyncio.sleep(PAUSE)
        silent += PAUSE


def _user_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, UserError)
    return JSONResponse({"error": str(error), "field": error.key or None}, 400)


def _http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


def serve(folder: Path, token: str, sock: Any) -> None:
    """Serve the page on a socket until Ctrl-C. Runs that the page has started go on.

    While it serves, the server handles SIGINT. So the runs that it starts react to SIGINT too, even
    if the server itself was started with SIGINT ignored.
    """
    import uvicorn

    server: uvicorn.Server
    context = LiveContext(RunFolder(folder), RunProcesses(folder), lambda: server.should_exit)
    config = uvicorn.Config(
        application(context, token, sock.getsockname()[1]),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.run(sockets=[sock])
