"""The process of the server: a Flower SuperLink behind a gate, and the desk for the submitter.

Flower serves all its interfaces at one port. The gate lets nodes reach the Fleet interface, where
Flower checks their registered keys, and processes of this machine the Runtime interface, where it
checks tokens. Flower's Control interface knows no certificates, so it is closed; the submitting
side speaks to the desk instead, and signs every request with the key of its kit.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import threading
from typing import Any

import uvicorn
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app
from starlette.concurrency import run_in_threadpool

from fedssca.deploy.engines.flower.desk import Desk
from fedssca.deploy.engines.flower.kit import FlowerKit
from fedssca.deploy.engines.flower.mail import Handler, Mail, Receive, Scope, Send
from fedssca.deploy.engines.flower.words import PATH, SIGNATURE

__all__ = ["run_server"]

LARGEST = 12_000_000
"""The number of bytes of a request to the desk."""

UNUSED = ("Control", "FleetEventLog")
"""How the names of layers of Flower's application begin that the gate makes useless."""

HERE = ("127.0.0.1", "::1")


def run_server(kit: FlowerKit) -> None:
    """Serve until the process is ended."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    host = "127.0.0.1" if kit.settings["server"] in ("localhost", *HERE) else "0.0.0.0"
    port, startup = int(kit.settings["port"]), kit.startup
    secret = kit.path / "superexec.secret"
    secret.touch(0o600)
    secret.write_bytes(secrets.token_bytes(32))
    key, certificate = startup / "party.key", startup / "party.crt"
    application = create_app(_settings(kit, host, port, secret.read_bytes()), SuperLinkLifespan)
    application.user_middleware = [each for each in application.user_middleware if _needed(each)]
    state = application.state.linkstate_factory.state()
    register(state, kit)
    command = ["flower-superexec", "--root-certificates", str(kit.root)]
    command += ["--runtime-api-address", f"127.0.0.1:{port}", "--parent-pid", str(os.getpid())]
    command += ["--superexec-auth-secret-file", str(secret)]
    serving = uvicorn.Server(
        uvicorn.Config(
            _gate(application, Desk(kit, state)),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            ssl_keyfile=str(key),
            ssl_certfile=str(certificate),
        )
    )
    later = threading.Timer(1.0, lambda: subprocess.Popen(command, cwd=kit.path))
    later.daemon = True
    later.start()
    serving.run()


def register(state: LinkState, kit: FlowerKit) -> None:
    """Register the keys of the sites: Flower turns all other nodes away."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    for site, public in kit.settings["nodes"].items():
        key = load_ssh_public_key(public.encode())
        assert isinstance(key, EllipticCurvePublicKey)
        state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key_to_bytes(key), 0, name=site)


def _needed(layer: Any) -> bool:
    """Whether a layer of Flower's application does anything behind the gate.

    Those of the Control interface, which is closed, and of event logs, which are off, would still
    take half of the time of every request.
    """
    return not getattr(layer.cls, "__name__", "").startswith(UNUSED)


def _settings(kit: FlowerKit, host: str, port: int, secret: bytes) -> SuperLinkLifespanConfig:
    files = kit.root, kit.startup / "party.crt", kit.startup / "party.key"
    return SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=host,
        port=port,
        insecure=False,
        certificates=(files[0].read_bytes(), files[1].read_bytes(), files[2].read_bytes()),
        superexec_auth_secret=secret,
        authn_plugin=NoOpControlAuthnPlugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=str(files[0]),
        ssl_certfile=str(files[1]),
        ssl_keyfile=str(files[2]),
        database=FLWR_IN_MEMORY_DB_NAME,
        isolation="process",
        runtime_dependency_install=False,
    )


def _gate(flower: Handler, desk: Desk) -> Handler:
    """Flower's application with the paths that parties may reach, and the desk."""
    mail = Mail(flower)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        local = (scope.get("client") or ("",))[0] in HERE
        if scope["type"] == "http" and path == PATH:
            signed, body = _header(scope, SIGNATURE), await _body(receive)
            answer = None
            if body is not None:
                answer = await run_in_threadpool(desk.answer, body, signed.decode("latin-1"))
            await _reply(send, 403 if answer is None else 200, answer)
        elif (
            scope["type"] == "lifespan"
            or path.startswith("/v1/fleet/")
            or (path.startswith("/v1/runtime/") and local)
        ):
            await mail.carry(scope, receive, send)
        elif scope["type"] == "http":
            await _reply(send, 403, None)
        # What remains are web sockets, which are closed without an answer.

    return serve


async def _body(receive: Receive) -> bytes | None:
    body = b""
    while True:
        part = await receive()
        body += part.get("body", b"")
        if len(body) > LARGEST:
            return None
        if not part.get("more_body"):
            return body


def _header(scope: Scope, name: str) -> bytes:
    return next((value for key, value in scope["headers"] if key == name.encode()), b"")


async def _reply(send: Send, status: int, answer: dict[str, Any] | None) -> None:
    body = json.dumps(answer or {"refused": "only the submitter of this project may ask"}).encode()
    head = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
