"""Who sees what in a run: an observer, a phase, and how much of the data is behind it.

Clients with rows: the server gets a message of each client, or with a secure sum their sum only. A
client gets w(t), and from w(t) and w(t+1) can work out the sum that moved it, less its own part.

Parties with columns: the server gets a block of the gradient from each party, put together the
gradient of the whole batch (or, with an open collection, the data). Peers get h_i = W_i x_i of
every sample, or only the sum of them; a party without labels gets the slope of the loss at h.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.run.privacy import hides_columns, hides_sums
from fedssca.studies.audit.count import Count, count
from fedssca.studies.audit.membership import Membership, membership
from fedssca.studies.audit.scene import Noise, Scene
from fedssca.studies.audit.view import View, take

__all__ = ["Seen", "Sight", "gradients_seen", "sights", "vertical_peers"]


class Sight(NamedTuple):
    """A message that an observer gets, and under which protections."""

    observer: str
    phase: str
    what: str
    clients: list[int]
    noise: Noise | None
    used: bool
    """This is how the run, as it is set, shows it; else: what the setting would change it to."""
    name: str
    """The protection in a few words."""


class Seen(NamedTuple):
    """What an observer of something other than gradients gets (parties with columns)."""

    observer: str
    phase: str
    what: str
    unknowns: int
    equations: int
    rank: int | None
    open: bool
    reason: str
    remedy: str
    labels: float | None = None
    """The share of labels that can be read off, where they are hidden."""


def sights(scene: Scene, example: Noise) -> list[Sight]:
    """All messages with gradients; with noise as the run asks, or `example`: what it would do."""
    clients, noise = scene.clients, scene.noise
    if isinstance(clients, Columns):
        if clients.collection == "open":
            return []
        what = "the gradient of the whole batch, a block from each party"
        return [
            Sight("server", "reply", what, [0], n, (n is not None) == (noise is not None), name)
            for n, name in _noises(noise, example, "plain")
        ]
    summed = hides_sums(scene.config)
    crowd = _crowd(scene, clients)
    found = []
    for among, one in (([crowd[0]], "alone"), (crowd, f"sum of {len(crowd)} clients")):
        if len(crowd) == 1 and among is crowd:
            continue
        for n, name in _noises(noise, example, one):
            used = (len(among) > 1) == (summed and len(crowd) > 1)
            used = used and (n is not None) == (noise is not None)
            what = "each client's message" if among is not crowd else "the sum of all messages"
            found.append(Sight("server", "reply", what, among, n, used, name))
    if len(crowd) > 1:
        what = "w(t) and w(t+1): the sum of the others' messages"
        found.append(
            Sight(
                "peer", "publish", what, crowd[1:], noise, True, f"sum of {len(crowd) - 1} others"
            )
        )
    return found


def _noises(noise: Noise | None, example: Noise, name: str) -> list[tuple[Noise | None, str]]:
    chosen = noise or example
    more = f"noise {chosen.multiplier:.3g}" if chosen.multiplier else f"clip {chosen.clip:.3g}"
    return [(None, name), (chosen, f"{name}, {more}")]


def _crowd(scene: Scene, clients: Rows) -> list[int]:
    """The clients of round 1."""
    turnout = scene.algorithm.request(scene.algorithm.init(scene.problem.start)).turnout
    if not turnout:
        return list(range(clients.count))
    return sorted(int(number) for number in np.asarray(turnout.asked))


def gradients_seen(scene: Scene, sight: Sight, rounds: int = 8) -> tuple[View, Count, Membership]:
    """Counted, and tested for membership on enough messages to see a hundred members."""
    view = take(scene, sight.clients, sight.noise)
    enough = min(rounds, -(-100 // len(view.group.x)))
    more = [take(scene, sight.clients, sight.noise, t) for t in range(2, enough + 1)]
    strangers = scene.strangers(1000)
    return view, count(scene, view), membership(scene, [view, *more], strangers)


def vertical_peers(scene: Scene) -> list[Seen]:
    """What parties with columns, and with an open collection the server, see beside gradients."""
    clients = scene.clients
    if not isinstance(clients, Columns):
        return []
    if clients.collection == "open":
        return [_collected(scene, clients)]
    found = [_shared(scene, clients)]
    if clients.label_holder is not None:
        found.append(_slopes(scene, clients))
    return found


def _collected(scene: Scene, clients: Columns) -> Seen:
    rows, width = scene.config.algorithm.batch, scene.first.shape[1]
    return Seen(
        "server",
        "reply (open collection)",
        "h_i and its Jacobian, which is x_i itself; the labels",
        rows * (width + 1),
        rows * (width * 1 + 1 + clients.count * len(scene.first)),
        rows * (width + 1),
        True,
        "the Jacobian of a linear first layer is the data",
        'set data.collection = "exchange"',
    )


def _shared(scene: Scene, clients: Columns) -> Seen:
    """h_i = W_i x_i: J numbers a sample about K_i features, to whoever reads them."""
    rows, hidden = scene.config.algorithm.batch, len(scene.first)
    widest = max(clients.blocks, key=len)
    narrowest = min(clients.blocks, key=len)
    masked = hides_columns(scene.config, scene.problem)
    reader = "every peer" if clients.label_holder is None else f"party {clients.label_holder}"
    parts = clients.count
    rank = int(np.linalg.matrix_rank(scene.first[:, narrowest]))
    if masked and parts > 2:
        hidden_columns = sum(map(len, clients.blocks)) - len(widest)
        return Seen(
            reader,
            "share (masked)",
            f"the sum of {parts} parties' h_i",
            rows * hidden_columns,
            rows * hidden,
            rows * int(np.linalg.matrix_rank(scene.first)),
            False,
            f"a reader gets {hidden} sums a sample about {hidden_columns} columns of the others, "
            "under weights that it does not know (parties that collude take theirs off the sum)",
            "",
        )
    one = (
        "the other party's h (a sum of two hides nothing)" if masked else "h_i of each other party"
    )
    exact = rank >= len(narrowest)
    reason = (
        f"{hidden} numbers a sample about {len(narrowest)} columns: whoever knows W_i "
        "(the server does) solves for x_i"
        if exact
        else f"{hidden} numbers a sample about {len(narrowest)} columns: too few in one "
        "round, but a row comes again under other weights"
    )
    return Seen(
        reader,
        "share",
        one,
        rows * len(narrowest),
        rows * hidden,
        rows * rank,
        False,
        reason + "; a peer alone does not know W_i, which adds "
        f"{hidden * len(narrowest):,} unknowns",
        "a third party" if masked else "set privacy.secure_sum = true: peers see the sum only",
    )


def _slopes(scene: Scene, clients: Columns) -> Seen:
    """d f / d h of each sample, sent by the labels' holder: how many labels show in it?"""
    group = scene.group([0])
    kinds = len(scene.kinds["y"])
    h = jnp.asarray(group.x @ scene.first.T)
    true = np.asarray(scene.gradients(h, jnp.eye(kinds)[group.kind]).delta)
    true = true.reshape(len(true), -1)
    # A party knows w_0, not h: it tries each label at h = 0 and takes the likest direction.
    tried = [
        np.asarray(scene.gradients(0 * h, jnp.eye(kinds)[np.full(len(h), kind)]).delta)
        for kind in range(kinds)
    ]
    shapes = np.stack([each.reshape(len(each), -1) for each in tried], axis=1)
    shapes /= np.maximum(np.linalg.norm(shapes, axis=2, keepdims=True), 1e-30)
    read = np.einsum("nkj,nj->nk", shapes, true).argmax(1)
    right = float((read == group.kind).mean())
    usual = float(np.bincount(group.kind).max() / len(group.kind))
    return Seen(
        f"parties other than {clients.label_holder}",
        "head",
        "the slope of every sample's loss at h",
        len(group.kind),
        true.size,
        None,
        right > usual + 0.2,
        f"{right:.0%} of the labels can be read off the slopes (the commonest label: {usual:.0%})",
        "no setting hides it: labels are safe only from parties that are not in the run",
        right,
    )
