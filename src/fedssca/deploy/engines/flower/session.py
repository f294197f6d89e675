"""The submitting side's connection to the desk of a server."""

from __future__ import annotations

import json
import secrets
import ssl
import time
from contextlib import closing, suppress
from typing import Any

from fedssca.deploy.engine import UNREACHABLE, JobNotReady, JobOrder, Kit, ServerUnreachable
from fedssca.deploy.engines.flower.words import PATH, SIGNATURE, signed_bytes
from fedssca.deploy.signatures import signature
from fedssca.errors import UserError

__all__ = ["FlowerSession", "open_session"]

PAUSE = 0.3
"""The seconds between two attempts to connect."""


def open_session(kit: Kit) -> closing[FlowerSession]:
    """Connect to the server with the submitter's kit; the session is closed at the end."""
    return closing(FlowerSession(kit))


class FlowerSession:
    """Requests to the server, each signed with the key of the submitter's kit."""

    def __init__(self, kit: Kit) -> None:
        import httpx
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        self._kit, startup = kit, kit.path / "startup"
        try:
            key = load_pem_private_key((startup / "party.key").read_bytes(), None)
            own = x509.load_pem_x509_certificate((startup / "party.crt").read_bytes())
            trusted = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
        except (OSError, ValueError) as error:
            raise UserError(f"{kit.path} has no usable keys ({error}): is it complete?") from None
        assert isinstance(key, RSAPrivateKey)
        self._key, self._certificate = key, own.public_bytes(Encoding.DER)
        self._client = httpx.Client(
            base_url=f"https://{kit.address}", verify=trusted, timeout=30.0, trust_env=False
        )

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def connected(self, patience: float | None = None) -> dict[str, float]:
        """The sites that are connected, and when the server last heard from each."""
        return {site: float(at) for site, at in self._ask("connected", patience=patience).items()}

    def submit(self, order: JobOrder) -> str:
        """Start a job and return the engine's identifier of it."""
        return str(self._ask("submit", order=order._asdict()))

    def command(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Send a command to a running job; `JobNotReady` if it is not running."""
        return dict(self._ask("command", job=job, asked=asked))

    def status(self, job: str) -> str:
        """The state of a job: SUBMITTED, RUNNING, or FINISHED and how."""
        return str(self._ask("status", job=job))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the server knows."""
        return list(self._ask("jobs"))

    def abort(self, job: str) -> None:
        """End a job, if it still exists."""
        with suppress(Exception):
            self._ask("abort", PAUSE, job=job)

    def _ask(self, what: str, patience: float | None = None, **given: Any) -> Any:
        """The server's answer; `ServerUnreachable` if it stays silent."""
        import httpx

        until = time.monotonic() + (UNREACHABLE if patience is None else patience)
        while True:
            try:
                response = self._client.post(**self._request(what, given))
                said = response.json()
                break
            except (httpx.HTTPError, ValueError) as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise UserError(
                        f"the server at {self._kit.address} has no certificate of this project: "
                        "use the kit that was made with the server's"
                    ) from error
                if time.monotonic() > until:
                    raise ServerUnreachable(
                        f"the server at {self._kit.address} does not answer "
                        f"({type(error).__name__}): is fedssca deploy server running there?"
                    ) from error
                time.sleep(PAUSE)
        if "not_ready" in said:
            raise JobNotReady(str(said["not_ready"]))
        if "refused" in said:
            raise UserError(f"the server refuses: {said['refused']}")
        return said["answer"]

    def _request(self, what: str, given: dict[str, Any]) -> dict[str, Any]:
        asked = {"what": what, "with": given, "time": time.time(), "number": secrets.token_hex(16)}
        body = json.dumps(asked).encode()
        signed = signature(self._key, self._certificate, signed_bytes(body)).hex()
        return {"url": PATH, "content": body, "headers": {SIGNATURE: signed}}
