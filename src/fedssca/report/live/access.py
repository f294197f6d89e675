"""Access to the page: requests need the token, this machine's own name, and the page's own origin.

The page sends the token as a header with every request. It finds the token behind the "#" of its
own address, which browsers do not send, and removes it from there at once. There is no cookie, so
another page in the same browser cannot make the browser send it. The page itself holds nothing
about runs, so it is served without the token. A foreign host name that resolves to this machine
(DNS rebinding) is refused because of its `Host` header.
"""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADER", "AccessCheck"]

HEADER = "x-fedssca-token"
LARGEST_BODY = 256_000
"""Bytes of the largest request that is read."""
SECURITY_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
NO_TOKEN = (
    "This page needs its token: open the address that `fedssca ui` printed, "
    "http://127.0.0.1:<port>/#token=<token>."
)


class AccessCheck:
    """ASGI middleware that checks every request before the application sees it."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the application, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = self._refusal(scope) or self._app
        await answer(scope, _limited(receive), _hardened(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:
            return _refuse(421, f"This page is served at 127.0.0.1, not at {host[:100]!r}.")
        if origin is not None and origin != f"http://{host}":
            return _refuse(403, "This request came from another page.")
        token = headers.get(HEADER, "")
        if scope["path"] == "/" and scope["method"] == "GET":
            return None
        if not secrets.compare_digest(token.encode(), self._token):
            return _refuse(403, NO_TOKEN)
        if int(headers.get("content-length") or "0") > LARGEST_BODY:
            return _refuse(413, f"The request is larger than {LARGEST_BODY} bytes.")
        return None


def _refuse(code: int, message: str) -> Response:
    return JSONResponse({"error": message}, code)


def _limited(receive: Receive) -> Receive:
    """Disconnect after LARGEST_BODY bytes, whatever the content-length header says."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > LARGEST_BODY:
            return {"type": "http.disconnect"}
        return message

    return limited


def _hardened(send: Send) -> Send:
    """Add the security headers to every answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
