"""The process of a site: a Flower SuperNode that runs installed code only.

It connects to the Fleet API of a SuperLink as Flower's own SuperNode does, with TLS and a
registered key. Unlike that one it loads no app that comes with a run, keeps its data in memory
from message to message, and does not sleep for seconds between them.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Message
from flwr.supercore import heartbeat
from flwr.supercore.heartbeat import HeartbeatFailure, HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
)
from flwr.supernode import fleet_http_connection

from fedssca.deploy.engines.flower.kit import SITE_FILE, SITES, FlowerKit
from fedssca.deploy.engines.flower.parties import SiteRuns
from fedssca.deploy.engines.flower.records import content, read
from fedssca.deploy.site.identity import certified
from fedssca.deploy.site.ledger import ledger_of
from fedssca.deploy.site.party import Party
from fedssca.deploy.site.raw_table import read_source
from fedssca.errors import UserError

__all__ = ["begin_party", "run_node"]

LOG = logging.getLogger(__name__)

BUSY, IDLE = 0.01, 0.25
"""The seconds between two looks for messages, during a run and long after the last message."""

ALIVE = 10
"""The seconds in which a node tells the SuperLink that it is alive; after twice that time without
a word it is away. Flower allows no less, and its default is three times as long."""

AWAKE = 5.0
"""The seconds after a message in which the node looks often."""


def begin_party(name: str, file: Path, kit: Path) -> Party:
    """The party of a new run: the data that site.toml names, the identity of the kit."""
    startup = kit / "startup"
    files = (startup / "party.key", startup / "party.crt", startup / "rootCA.pem")
    identity = certified(*files, kit / SITES)
    # What goes to peers is sealed by the site itself (`site.sealed`), and the server carries it.
    return Party(name, read_source(file), True, identity, ledger_of(file))


def run_node(kit: FlowerKit) -> None:
    """Answer the server's messages; returns when the connection is lost for good."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    file = os.environ.get(SITE_FILE)
    if not file:
        raise UserError(f"{kit.name}: start it with fedssca deploy site KIT --data ...")
    key = load_ssh_private_key((kit.startup / "node.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    runs = SiteRuns(kit.name, lambda: begin_party(kit.name, Path(file), kit.path))
    root = kit.root.read_bytes()
    # Flower interrupts a node that a restarted SuperLink does not know yet; it connects anew.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in (fleet_http_connection, heartbeat):
        vars(module)["HEARTBEAT_DEFAULT_INTERVAL"] = ALIVE
    vars(fleet_http_connection).update(HeartbeatSender=SteadyHeartbeat, flwr_exit=_not_admitted)
    admitted = False
    while True:
        _await_server(kit.address)
        try:
            with fleet_http_connection.http_request_response(
                kit.address, False, root, (key, key.public_key())
            ) as connection:
                admitted = True
                _serve(connection, runs)
        except NotAdmitted as error:
            if not admitted:
                sys.exit(str(error))
            LOG.warning("%s; trying again", error)
            time.sleep(1.0)


class NotAdmitted(Exception):
    """The server did not let the node connect."""


def _not_admitted(code: int, message: str) -> NoReturn:
    """In place of Flower's exit.

    A SuperLink turns away a node whose signed request comes late, which happens on busy machines;
    a node that was admitted before tries again.
    """
    raise NotAdmitted(f"{message} (Flower's exit code {code})")


class SteadyHeartbeat(HeartbeatSender):
    """Tells the SuperLink that the node is alive, and goes on after any error.

    Flower's own sender ends for good at an error other than a lost connection, for instance when a
    busy SuperLink answers with status 500. The node would then count as away for ever.
    """

    def _heartbeat(self) -> None:
        try:
            super()._heartbeat()
        except HeartbeatFailure:
            raise
        except Exception as error:
            LOG.warning("the server did not take a sign of life: %s", error)
            raise HeartbeatFailure from error


def _await_server(address: str) -> None:
    """Return when the server listens: Flower itself would try again after ever longer times."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 5.0).close()
        except OSError:
            time.sleep(IDLE)
        else:
            return


def _serve(connection: tuple[Any, ...], runs: SiteRuns) -> None:
    """Receive messages and answer each in a thread of its own."""
    node, receive, send, _, _, pull, push, confirm = connection
    LOG.info("node %s is connected", node)
    last = time.monotonic()

    def answer(message: Message) -> None:
        begun = time.monotonic()
        record = runs.reply(message.metadata.run_id, read(message))
        reply = Message(content(record), reply_to=message)
        run = message.metadata.run_id
        try:
            with no_object_id_recompute():
                reply.metadata.__dict__["_message_id"] = reply.object_id
                wanted, session = send(reply, get_object_tree(reply), time.monotonic() - begun)
                for name, each in get_all_nested_objects(reply).items():
                    if name in wanted:
                        push(run, session, name, each.deflate())
        except Exception as error:  # the run may have ended; the node goes on
            LOG.warning("a reply was not sent: %s", error)

    while True:
        got = receive()
        if got is None:
            time.sleep(BUSY if time.monotonic() - last < AWAKE else IDLE)
            continue
        last = time.monotonic()
        head, tree = got
        run, name = head.metadata.run_id, head.metadata.message_id
        try:
            found = pull_objects(
                [each.object_id for each in iterate_object_tree(tree)],
                partial(pull, run),
                initial_backoff=BUSY,
                backoff_cap=IDLE,
                max_time=60.0,
            )
            confirm(run, name)
            message = inflate_object_from_contents(name, found)
            assert isinstance(message, Message)
            message.metadata.__dict__["_message_id"] = name
        except Exception as error:  # the run may have ended; the node goes on
            LOG.warning("a message was not received: %s", error)
            continue
        threading.Thread(target=answer, args=(message,), daemon=True).start()
