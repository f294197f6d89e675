"""From the section `[privacy]` of a config to the mechanisms: clipping, noise, hidden sums."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.errors import ConfigError, UserError
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.evaluate.personal import personal_evaluator
from fedssca.evaluate.traffic import Sent, Traffic, shorter, traffic, traffic_in
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.participation import Cohort, cohort_of
from fedssca.privacy import require_privacy
from fedssca.privacy.noise.clip import ReadChange
from fedssca.privacy.noise.evaluation import noised_evaluator
from fedssca.privacy.noise.messages import MessageNoise, with_noise
from fedssca.privacy.sums.fixed_point import Layout
from fedssca.problem.problem import Problem
from fedssca.rounds.aggregate import Adder, Answerer, Sums, in_clear
from fedssca.rounds.exchange import Ends, pairwise
from fedssca.rounds.roles import roles_of
from fedssca.rounds.shapes import h_shapes, round_shapes
from fedssca.run.config import Config
from fedssca.run.schema import PrivacySettings

__all__ = [
    "answerer",
    "check_columns",
    "check_deployed",
    "evaluator_for",
    "hides_clients",
    "hides_columns",
    "hides_sums",
    "noise_deviation",
    "noise_of",
    "noisy",
    "server_half",
    "simulated_exchange",
    "simulated_sums",
    "survivors",
    "traffic_of",
]


TrafficOf: TypeAlias = Callable[[Problem, Rows | Columns, Algorithm], Sent]
"""What the rounds of a method send."""


def hides_sums(config: Config) -> bool:
    """Messages of clients with rows reach the server as noise."""
    chosen = config.privacy
    return config.data.split == "sample" and (chosen.secure_sum or chosen.homomorphic)


def hides_clients(config: Config) -> str:
    """Why results of single clients must not be shown; empty if they may be."""
    chosen = config.privacy
    if hides_sums(config):
        return "hidden by the secure sum" if chosen.secure_sum else "hidden by the encrypted sum"
    if chosen != PrivacySettings():
        return "not shown, because the run protects single rows by clipping and noise"
    return ""


def hides_columns(config: Config, problem: Problem) -> bool:
    """Parties with columns show each other the sum of the h_i only, and the server nothing."""
    split = problem.vertical
    return config.privacy.secure_sum and split is not None and split.additive


def check_columns(config: Config, problem: Problem, clients: Columns) -> None:
    """Can these parties hide their h_i? A UserError, or a warning of what stays visible."""
    split = problem.vertical
    if not config.privacy.secure_sum or split is None:
        return
    if clients.collection == "open":
        raise UserError(
            'data.collection = "open" hands the h_i to the server, privacy.secure_sum hides them: '
            'use collection = "exchange"'
        )
    if not split.additive:
        warnings.warn(
            "the head needs every h_i, not just their sum: parties exchange them in pairs, "
            "encrypted in a deployment, and see each other's",
            stacklevel=2,
        )
        return
    require_privacy()
    from fedssca.privacy.sums.hidden_exchange import check_additive

    rows = {name: column[:4] for name, column in clients.beside().items()}
    hs = [jnp.zeros(h.shape, h.dtype) for h in h_shapes(problem, clients, 4)]
    rows["client"] = np.zeros(4, np.int32)
    check_additive(split, problem.start[split.blocks[0]], hs, rows)
    if clients.count == 2:
        warnings.warn(
            "the sum of two parties' h_i gives away the other's to each of them: only the server "
            "is kept from it",
            stacklevel=2,
        )


def answerer(config: Config, run: bytes, parties: int, number: int, identity: Any) -> Answerer:
    """The half of client `number` among so many; `identity` signs for it."""
    if not hides_sums(config):
        return in_clear.client(number)
    if config.privacy.homomorphic:
        require_privacy("tenseal")
        from fedssca.privacy.sums.ckks import EncryptedSumClient

        return EncryptedSumClient(number, identity, run, config.privacy.key_holder)
    require_privacy()
    from fedssca.privacy.sums.masked_client import MaskedSumClient

    return MaskedSumClient(number, identity, _rules(config, run, parties))


def server_half(config: Config, run: bytes, parties: int) -> Adder:
    """The server's half."""
    if not hides_sums(config):
        return in_clear.server()
    if config.privacy.homomorphic:
        require_privacy("tenseal")
        from fedssca.privacy.sums.ckks import EncryptedSumServer

        if config.privacy.key_holder >= parties:
            raise UserError(
                f"privacy.key_holder = {config.privacy.key_holder}: clients are numbered from 0 to "
                f"{parties - 1}"
            )
        return EncryptedSumServer(run, config.privacy.key_holder)
    require_privacy()
    from fedssca.privacy.sums.masked_server import MaskedSumServer

    return MaskedSumServer(_rules(config, run, parties))


def _rules(config: Config, run: bytes, parties: int) -> Any:
    from fedssca.privacy.sums.graph import Rules

    asked = config.algorithm.cohort or parties
    if asked < 2:
        raise UserError(
            "privacy.secure_sum = true with one client a round: its sum would be that client's "
            "message; at least 2 are needed"
        )
    return Rules(run, asked, config.privacy.neighbours, config.privacy.threshold)


def simulated_sums(config: Config, parties: int) -> Sums:
    """Both halves for clients in one process, with identities made for this run."""
    if not hides_sums(config):
        return in_clear
    require_privacy()
    from fedssca.privacy.sums.keys import simulated_identities

    identities, run = simulated_identities(parties), os.urandom(16)
    return Sums(
        client=lambda number: answerer(config, run, parties, number, identities[number]),
        server=lambda: server_half(config, run, parties),
    )


def simulated_exchange(config: Config, problem: Problem, clients: Rows | Columns) -> Ends:
    """The exchange of parties in one process."""
    if not hides_columns(config, problem):
        return pairwise
    from fedssca.privacy.sums.hidden_exchange import in_process

    return in_process(clients.count)


def traffic_of(config: Config) -> TrafficOf:
    """What rounds of a config's run send: with hidden sums, what is sent in place of messages.

    Of a secure sum among all clients the keys, which are exchanged once, are left out; among
    cohorts they are exchanged in every round and counted. Of a homomorphic sum the public key,
    once in 100 sums, is left out, and a ciphertext's size, which varies a little, is rounded.
    """

    def sent(problem: Problem, clients: Rows | Columns, algorithm: Algorithm) -> Sent:
        if isinstance(clients, Columns) and hides_columns(config, problem):
            return _hidden_columns(problem, clients, algorithm).times
        plain = traffic_in(problem, clients, algorithm)
        if not hides_sums(config):
            return plain
        message = round_shapes(problem, clients, algorithm)[1]
        cohort = cohort_of(algorithm, problem)
        asked = cohort.size if cohort else clients.count
        if config.privacy.homomorphic:
            from fedssca.privacy.sums.ckks import cost

            first = later = Traffic(*cost(Layout.of(message).size, asked), 0)
        else:
            from fedssca.privacy.sums.masked_client import cost as masked
            from fedssca.privacy.sums.sum_layout import SumLayout

            rules, afresh = _rules(config, b"", clients.count), cohort is not None
            forms = message, shorter(message, algorithm.bits)
            first, later = (
                Traffic(*masked(rules, SumLayout.of(form), afresh), 0) for form in forms
            )

        def with_sums(rounds: int) -> Traffic:
            up, down, _ = later.times(rounds)
            if rounds:
                up, down = up + first.up - later.up, down + first.down - later.down
            return Traffic(up, down + plain(rounds).down, 0)

        return with_sums

    return sent


def _hidden_columns(problem: Problem, clients: Columns, algorithm: Algorithm) -> Traffic:
    """Every share goes up, their sum down to each reader; no h_i from party to party."""
    from fedssca.privacy.sums.hidden_exchange import CHECKED, SEALED

    plain, hs = traffic(problem, clients, algorithm), h_shapes(problem, clients, algorithm.batch)
    one, readers = 8 * hs[0].size + CHECKED, len(roles_of(clients).readers)
    boxes = SEALED * (readers - 1)
    sent = hs[0].size * hs[0].dtype.itemsize * (readers * clients.count - readers)
    return Traffic(
        plain.up + clients.count * one + boxes,
        plain.down + readers * one + boxes,
        plain.peer - sent,
    )


def noisy(said: PrivacySettings) -> bool:
    """There is to be noise."""
    return bool(said.noise_multiplier or said.epsilon)


def check_deployed(config: Config) -> None:
    """A UserError if the config asks for what sites on other machines cannot do.

    They send no exact evaluations in a run with noise, and take the time that they take.
    """
    if config.algorithm.delays is not None:
        raise ConfigError(
            "algorithm.delays",
            "algorithm.delays simulates slow clients: leave it out, real sites answer when they do",
        )
    if noisy(config.privacy) and config.privacy.evaluation == "exact":
        raise UserError(
            'privacy.evaluation = "exact": sites that add noise send no exact sums; use "noise", '
            "which epsilon covers"
        )


def evaluator_for(
    problem: Problem,
    clients: Rows | Columns,
    test: Mapping[str, np.ndarray] | None,
    noise: MessageNoise | None,
    seed: int,
) -> Evaluator:
    """The evaluator of a simulated run: exact, or with the noise that the run accounts for."""
    if problem.personal is not None:
        return personal_evaluator(problem, clients, test)
    if noise is None or noise.evaluation is None:
        return evaluator_over(problem, clients, test)
    return noised_evaluator(problem, clients, test, noise.evaluation, seed)


def noise_deviation(
    noise: MessageNoise | None, cohort: Cohort | None, clients: Rows | Columns
) -> float:
    """Standard deviation of the noise on one entry of the summed gradient; 0 without noise."""
    if noise is None or noise.ledger is None:
        return 0.0
    sizes = np.asarray(clients.sizes if isinstance(clients, Rows) else (clients.total,))
    each = noise.weight(sizes / sizes.sum())
    more = cohort.clients / cohort.size if cohort else 1.0
    return float(noise.vector * np.sqrt(more * np.sum(np.square(each))))


def survivors(config: Config, clients: int) -> int:
    """Clients in the smallest sum that can be opened; 0: messages are seen one by one.

    An encrypted sum may be opened with one client in it: there each adds the noise of a message
    that is seen.
    """
    said, asked = config.privacy, config.algorithm.cohort or clients
    if not said.secure_sum:
        return 0
    require_privacy()
    from fedssca.privacy.sums.graph import Rules

    return Rules(b"", asked, said.neighbours, said.threshold).least


def noise_of(
    config: Config,
    problem: Problem,
    clients: Rows | Columns,
    algorithm: Algorithm,
    change: ReadChange | None,
    probes: int,
) -> tuple[Algorithm, MessageNoise | None]:
    """`algorithm` with clipped messages, and their noise, if the config asks for it.

    `probes` messages come before the rounds; they are clipped, noised and counted alike.
    """
    said = config.privacy
    if not said.clip and not noisy(said):
        return algorithm, None
    return with_noise(
        algorithm,
        problem,
        clients,
        clip=said.clip,
        value_clip=said.value_clip,
        unit=said.unit,
        noise_multiplier=said.noise_multiplier,
        epsilon=said.epsilon,
        delta=said.delta,
        rounds=config.algorithm.most_rounds,
        seed=config.run.seed,
        probes=probes,
        survivors=survivors(config, clients.count),
        change=change,
        sampling=said.sampling,
        evaluate_every=config.run.evaluate_every if said.evaluation == "noise" else 0,
        calibration=config.problem.certified,
    )
