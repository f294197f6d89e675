"""Who may ask: whoever has the token, by this machine's own name, from our own page.

The page sends the token as a header with everything it asks. No cookie is kept, so other pages in
the same browser have nothing to borrow; and a name that points here by trickery (DNS rebinding) is
not one that we answer to.
"""

from __future__ import annotations

import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADER", "Guard"]

HEADER = "x-fedssca-token"
BODY = 256_000
"""Bytes of the longest request."""
ALWAYS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
REFUSED = (
    "This page needs its token: open the address that `fedssca ui` printed, "
    "http://127.0.0.1:<port>/?token=<token>."
)


class Guard:
    """Middleware: every request is checked before anything else sees it."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on, or refuse."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        wrong = self._wrong(scope)
        answer = self._app if wrong is None else wrong
        await answer(scope, _short(receive), _hardened(send))

    def _wrong(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:
            return _refusal(421, f"This page is at 127.0.0.1, not at {host[:100]!r}.")
        if origin is not None and origin != f"http://{host}":
            return _refusal(403, "Another page asked for this.")
        asked = headers.get(HEADER, "")
        if scope["path"] == "/" and scope["method"] == "GET":
            asked = asked or parse_qs(scope["query_string"].decode()).get("token", [""])[0]
        if not secrets.compare_digest(asked.encode(), self._token):
            return PlainTextResponse(REFUSED, 403)
        if int(headers.get("content-length") or "0") > BODY:
            return _refusal(413, "That is too long.")
        return None


def _refusal(code: int, words: str) -> Response:
    return JSONResponse({"error": words}, code)


def _short(receive: Receive) -> Receive:
    """No body longer than BODY, whatever its header says."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > BODY:
            return {"type": "http.disconnect"}
        return message

    return limited


def _hardened(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ALWAYS.items():
                headers[name] = value
        await send(message)

    return sending
