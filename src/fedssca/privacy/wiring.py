"""From `[privacy]` to the two halves of a sum; nothing here is imported unless it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from fedssca.aggregate import Adder, Answerer, Sums, in_clear
from fedssca.algorithm import Algorithm
from fedssca.config import Config
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.metrics import Traffic, shapes, traffic
from fedssca.privacy import require_privacy
from fedssca.privacy.fixed import Layout
from fedssca.problem import Problem

__all__ = ["answerer", "hides_sums", "server_half", "simulated", "wire_of"]

Wire: TypeAlias = Callable[[Problem, Rows | Columns, Algorithm], Traffic]
"""What one round of a method sends."""


def hides_sums(config: Config) -> bool:
    """Messages of clients with rows reach the server as noise."""
    chosen = config.privacy
    return config.data.split == "sample" and (chosen.secure_sum or chosen.homomorphic)


def answerer(config: Config, run: bytes, parties: int, number: int, identity: Any) -> Answerer:
    """The half of client `number` among so many; `identity` signs for it."""
    if not hides_sums(config):
        return in_clear.client(number)
    if config.privacy.homomorphic:
        require_privacy("tenseal")
        from fedssca.privacy.homomorphic import Encrypter

        return Encrypter(number, identity, run, config.privacy.key_holder)
    require_privacy()
    from fedssca.privacy.secure_sum import Masker

    return Masker(number, identity, _rules(config, run, parties))


def server_half(config: Config, run: bytes, parties: int) -> Adder:
    """The server's half."""
    if not hides_sums(config):
        return in_clear.server()
    if config.privacy.homomorphic:
        require_privacy("tenseal")
        from fedssca.privacy.homomorphic import CipherAdder

        if config.privacy.key_holder >= parties:
            raise UserError(
                f"privacy.key_holder = {config.privacy.key_holder}: clients are numbered from 0 to "
                f"{parties - 1}"
            )
        return CipherAdder(run, config.privacy.key_holder)
    require_privacy()
    from fedssca.privacy.secure_sum_server import Opener

    return Opener(_rules(config, run, parties))


def _rules(config: Config, run: bytes, parties: int) -> Any:
    from fedssca.privacy.graph import Rules

    asked = config.algorithm.cohort or parties
    if asked < 2:
        raise UserError(
            "privacy.secure_sum = true with one client a round: its sum would be that client's "
            "message; at least 2 are needed"
        )
    return Rules(run, asked, config.privacy.neighbours, config.privacy.threshold)


def simulated(config: Config, parties: int) -> Sums:
    """Both halves for clients in one process, with identities made for this run."""
    if not hides_sums(config):
        return in_clear
    require_privacy()
    from fedssca.privacy.keys import directory_of

    identities, run = directory_of(parties), os.urandom(16)
    return Sums(
        client=lambda number: answerer(config, run, parties, number, identities[number]),
        server=lambda: server_half(config, run, parties),
    )


def wire_of(config: Config) -> Wire:
    """What a round of a config's run sends: with hidden sums, what is sent in place of messages.

    Of a secure sum among all clients the keys, which are exchanged once, are left out; among
    cohorts they are exchanged in every round and counted. Of a homomorphic sum the public key,
    once in 100 sums, is left out, and a ciphertext's size, which varies a little, is rounded.
    """
    if not hides_sums(config):
        return traffic

    def wire(problem: Problem, clients: Rows | Columns, algorithm: Algorithm) -> Traffic:
        size = Layout.of(shapes(problem, clients, algorithm)[1]).size
        asked = algorithm.cohort.size if algorithm.cohort else clients.count
        published = traffic(problem, clients, algorithm).down
        if config.privacy.homomorphic:
            from fedssca.privacy.homomorphic import cost

            up, down = cost(size, asked)
        else:
            from fedssca.privacy.secure_sum import cost as masked

            up, down = masked(
                _rules(config, b"", clients.count), size, algorithm.cohort is not None
            )
        return Traffic(up, down + published, 0)

    return wire
