"""Who receives which message in a run.

Clients that hold rows: the server receives the message of each client, or only their sum if sums
are hidden. A client receives w(t). From w(t) and w(t+1) it can compute the sum of the messages of
the other clients.

Parties that hold columns: the server receives one block of the gradient from each party, together
the gradient of the whole batch; with an open collection it receives the data. Peers receive
h_i = W_i x_i of every sample, or only their sum. A party without labels receives the gradient of
the loss with respect to h.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.run.privacy import hides_columns, hides_sums
from fedssca.studies.audit.audited_run import AuditedRun, NoiseSetting
from fedssca.studies.audit.count import Count, count
from fedssca.studies.audit.membership import Membership, membership
from fedssca.studies.audit.message import ObservedMessage, observe
from fedssca.studies.audit.vocabulary import Level, Observer, Phase

__all__ = [
    "GradientObservation",
    "IntermediateObservation",
    "gradient_observations",
    "intermediate_observations",
    "measure",
]


class GradientObservation(NamedTuple):
    """A message with gradients that an observer receives under one protection."""

    observer: Observer
    phase: Phase
    what: str
    """What the observer receives, in words."""
    clients: list[int]
    """The clients whose messages are added up."""
    noise: NoiseSetting | None
    """The clipping and noise of the message."""
    used: bool
    """Whether the run itself uses this protection; otherwise it is shown for comparison."""
    name: str
    """The protection in a few words."""


class IntermediateObservation(NamedTuple):
    """Intermediate results that an observer receives in a run that splits columns."""

    observer: str
    """Who receives it, in words."""
    phase: Phase
    what: str
    """What the observer receives, in words."""
    unknowns: int
    equations: int
    rank: int | None
    level: Level
    reason: str
    """Why it has this level, in words."""
    remedy: str
    """The setting that would change the level; empty if there is none to change."""
    labels: float | None = None
    """The fraction of labels that can be inferred, if labels are hidden from the observer."""


def gradient_observations(run: AuditedRun, example: NoiseSetting) -> list[GradientObservation]:
    """Return all messages with gradients, each also with the noise of the run or of `example`."""
    clients, noise = run.clients, run.noise
    if isinstance(clients, Columns):
        if clients.collection == "open":
            return []
        what = "the gradient of the whole batch, a block from each party"
        return [
            GradientObservation(
                Observer.SERVER,
                Phase.REPLY,
                what,
                [0],
                n,
                (n is not None) == (noise is not None),
                name,
            )
            for n, name in _noises(noise, example, "plain")
        ]
    summed = hides_sums(run.config)
    crowd = _crowd(run, clients)
    found = []
    for among, one in (([crowd[0]], "alone"), (crowd, f"sum of {len(crowd)} clients")):
        if len(crowd) == 1 and among is crowd:
            continue
        for n, name in _noises(noise, example, one):
            used = (len(among) > 1) == (summed and len(crowd) > 1)
            used = used and (n is not None) == (noise is not None)
            what = "each client's message" if among is not crowd else "the sum of all messages"
            found.append(
                GradientObservation(Observer.SERVER, Phase.REPLY, what, among, n, used, name)
            )
    if len(crowd) > 1:
        what = "w(t) and w(t+1): the sum of the others' messages"
        found.append(
            GradientObservation(
                Observer.PEER,
                Phase.PUBLISH,
                what,
                crowd[1:],
                noise,
                True,
                f"sum of {len(crowd) - 1} others",
            )
        )
    return found


def _noises(
    noise: NoiseSetting | None, example: NoiseSetting, name: str
) -> list[tuple[NoiseSetting | None, str]]:
    chosen = noise or example
    more = f"noise {chosen.multiplier:.3g}" if chosen.multiplier else f"clip {chosen.clip:.3g}"
    return [(None, name), (chosen, f"{name}, {more}")]


def _crowd(run: AuditedRun, clients: Rows) -> list[int]:
    """Return the clients of round 1."""
    turnout = run.algorithm.request(run.algorithm.init(run.problem.start)).turnout
    if not turnout:
        return list(range(clients.count))
    return sorted(int(number) for number in np.asarray(turnout.asked))


def measure(
    run: AuditedRun, observation: GradientObservation, rounds: int = 8
) -> tuple[ObservedMessage, Count, Membership]:
    """Count equations, and test membership on enough messages for a hundred members."""
    message = observe(run, observation.clients, observation.noise)
    enough = min(rounds, -(-100 // len(message.group.x)))
    more = [observe(run, observation.clients, observation.noise, t) for t in range(2, enough + 1)]
    nonmembers = run.nonmembers(1000)
    return message, count(run, message), membership(run, [message, *more], nonmembers)


def intermediate_observations(run: AuditedRun) -> list[IntermediateObservation]:
    """Return what observers of a run that splits columns receive besides gradients."""
    clients = run.clients
    if not isinstance(clients, Columns):
        return []
    if clients.collection == "open":
        return [_collected(run, clients)]
    found = [_shared(run, clients)]
    if clients.label_holder is not None:
        found.append(_loss_gradients(run, clients))
    return found


def _collected(run: AuditedRun, clients: Columns) -> IntermediateObservation:
    rows, width = run.config.algorithm.batch, run.first.shape[1]
    return IntermediateObservation(
        Observer.SERVER,
        Phase.OPEN_REPLY,
        "h_i and its Jacobian, which is x_i itself; the labels",
        rows * (width + 1),
        rows * (width * 1 + 1 + clients.count * len(run.first)),
        rows * (width + 1),
        Level.OPEN,
        "the Jacobian of a linear first layer is the data",
        'set data.collection = "exchange"',
    )


def _shared(run: AuditedRun, clients: Columns) -> IntermediateObservation:
    """The readers receive h_i = W_i x_i: J numbers per sample about K_i features."""
    rows, hidden = run.config.algorithm.batch, len(run.first)
    widest = max(clients.blocks, key=len)
    narrowest = min(clients.blocks, key=len)
    masked = hides_columns(run.config, run.problem)
    reader = "every peer" if clients.label_holder is None else f"party {clients.label_holder}"
    parts = clients.count
    rank = int(np.linalg.matrix_rank(run.first[:, narrowest]))
    if masked and parts > 2:
        hidden_columns = sum(map(len, clients.blocks)) - len(widest)
        return IntermediateObservation(
            reader,
            Phase.MASKED_SHARE,
            f"the sum of the h_i of {parts} parties",
            rows * hidden_columns,
            rows * hidden,
            rows * int(np.linalg.matrix_rank(run.first)),
            Level.PROTECTED,
            f"a reader gets {hidden} sums per sample of {hidden_columns} columns of the others, "
            "with weights that it does not know (colluding parties can subtract their own h_i)",
            "",
        )
    one = (
        "the h of the other party (a sum of two hides nothing)"
        if masked
        else "h_i of each other party"
    )
    exact = rank >= len(narrowest)
    reason = (
        f"{hidden} numbers per sample about {len(narrowest)} columns: an observer that knows W_i, "
        "as the server does, can solve for x_i"
        if exact
        else f"{hidden} numbers per sample about {len(narrowest)} columns: too few in one "
        "round, but a row is used again with other weights"
    )
    return IntermediateObservation(
        reader,
        Phase.SHARE,
        one,
        rows * len(narrowest),
        rows * hidden,
        rows * rank,
        Level.AT_RISK,
        reason + "; a peer alone does not know W_i, which adds "
        f"{hidden * len(narrowest):,} unknowns",
        "add a third party" if masked else "set privacy.secure_sum = true: peers see only the sum",
    )


def _loss_gradients(run: AuditedRun, clients: Columns) -> IntermediateObservation:
    """The label holder sends df/dh of each sample, from which labels can be inferred."""
    group = run.batch_rows([0])
    kinds = len(run.kinds["y"])
    h = jnp.asarray(group.x @ run.first.T)
    true = np.asarray(run.gradients(h, jnp.eye(kinds)[group.kind]).delta)
    true = true.reshape(len(true), -1)
    # A party knows w_0 but not h: it tries each label at h = 0 and takes the nearest direction.
    tried = [
        np.asarray(run.gradients(0 * h, jnp.eye(kinds)[np.full(len(h), kind)]).delta)
        for kind in range(kinds)
    ]
    shapes = np.stack([each.reshape(len(each), -1) for each in tried], axis=1)
    shapes /= np.maximum(np.linalg.norm(shapes, axis=2, keepdims=True), 1e-30)
    read = np.einsum("nkj,nj->nk", shapes, true).argmax(1)
    right = float((read == group.kind).mean())
    usual = float(np.bincount(group.kind).max() / len(group.kind))
    return IntermediateObservation(
        f"parties other than {clients.label_holder}",
        Phase.HEAD,
        "the gradient of the loss of every sample with respect to h",
        len(group.kind),
        true.size,
        None,
        Level.OPEN if right > usual + 0.2 else Level.AT_RISK,
        f"{right:.0%} of the labels can be inferred from the gradients (the most frequent label: "
        f"{usual:.0%})",
        "no setting hides it: labels are safe only from parties that do not take part in the run",
        right,
    )
