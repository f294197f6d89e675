"""What an observer is sent: a client's message, or a sum; plain, or clipped and noised.

With noise a message is  sum_n a_n c_n (t_n, delta_n x_n') + a C sigma xi,  c_n = min(1, C / |.|)
over all gradients of sample n as one vector, a the largest a_n, xi standard normal. With
unit = "client" the whole message is clipped, to a client's share of C.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.config import Config
from fedssca.errors import UserError
from fedssca.privacy.audit.scene import Gradients, Group, Scene
from fedssca.problem import Array

__all__ = ["Noise", "View", "asked", "shrink", "take", "typical"]


class Noise(NamedTuple):
    """Clipping, and noise in units of what is clipped to; `multiplier` 0: clipping only."""

    clip: float
    multiplier: float
    unit: str = "sample"


class View(NamedTuple):
    """The gradients in what an observer got (single precision, as sent), and what is behind."""

    top: np.ndarray
    """(m, d_0)."""
    first: np.ndarray
    """(m J, P)."""
    group: Group
    noise: Noise | None
    scalars: int
    """Numbers in the message beside the gradients."""

    @property
    def equations(self) -> int:
        """How many numbers were seen."""
        return int(self.top.size + self.first.size + self.scalars)


def take(scene: Scene, clients: list[int], noise: Noise | None = None, round_: int = 1) -> View:
    """The sum of these clients' messages in a round; of one client: its message."""
    group = scene.group(clients, round_)
    if noise is None:
        sent = [scene.blocks(scene.message(scene.group([c], round_).batch)) for c in clients]
        top, first = (np.sum(parts, axis=0) for parts in zip(*sent, strict=True))
    elif noise.unit == "sample":
        top, first = _clipped(scene, group, noise.clip)
    else:
        shares = [scene.group([c], round_) for c in clients]
        sent = [_whole(scene, own, noise.clip) for own in shares]
        top, first = (np.sum(parts, axis=0) for parts in zip(*sent, strict=True))
    if noise is not None:
        steps = scene.algorithm.steps * scene.algorithm.batch
        weight = group.weight.max() * (1 if noise.unit == "sample" else steps)
        spread = weight * noise.clip * noise.multiplier * scene.unit
        draw = np.random.default_rng([scene.config.run.seed, round_]).standard_normal
        top, first = top + spread * draw(top.shape), first + spread * draw(first.shape)
    top, first = (part.astype(np.float32).astype(float) for part in (top, first))
    return View(top, first, group, noise, scene.scalars)


def shrink(scene: Scene, found: Gradients, x: Array, clip: float) -> Array:
    """c_n of rows x (n, P) with these gradients."""
    square = (found.top**2).sum((1, 2)) + (found.delta**2).sum((1, 2)) * (x**2).sum(1)
    return jnp.minimum(1, clip * scene.unit / jnp.sqrt(jnp.maximum(square, 1e-30)))


def typical(scene: Scene) -> float:
    """The median length of a sample's gradient: what to clip to if nobody says."""
    group = scene.strangers(200)
    found = _gradients(scene, group)
    square = (found.top**2).sum((1, 2)) + (found.delta**2).sum((1, 2)) * (group.x**2).sum(1)
    return float(np.median(np.sqrt(square))) / scene.unit


def asked(config: Config) -> Noise | None:
    """The noise that a config asks for."""
    said = config.privacy
    if not said.clip and not said.noise_multiplier and not said.epsilon:
        return None
    if not said.clip > 0:
        raise UserError(
            "privacy.clip is missing: noise needs the longest gradient that counts, e.g. "
            "privacy.clip = 1.0"
        )
    if said.unit not in ("sample", "client"):
        raise UserError(f'privacy.unit = {said.unit!r}: it must be "sample" or "client"')
    return Noise(said.clip, said.noise_multiplier or _multiplier(config), said.unit)


def _multiplier(config: Config) -> float:
    """The noise that a target epsilon comes to; 0 where there is none."""
    said, chosen = config.privacy, config.algorithm
    if not said.epsilon:
        return 0.0
    try:
        multiplier = import_module("fedssca.privacy.accountant").multiplier
    except ImportError:
        raise UserError(
            "privacy.epsilon: this version audits privacy.noise_multiplier only; set that in its "
            "place"
        ) from None
    # Without the rows' numbers the rate is not known here: the audit takes the cautious one.
    return float(multiplier(said.epsilon, said.delta, 1.0, max(chosen.rounds - 1, 1)))


def _gradients(scene: Scene, group: Group) -> Gradients:
    belief = jnp.eye(len(scene.kinds["y"]))[group.kind]
    h = jnp.asarray(group.x @ scene.first.T)
    return scene.gradients(h, belief)


def _clipped(scene: Scene, group: Group, clip: float) -> tuple[np.ndarray, np.ndarray]:
    found = _gradients(scene, group)
    a = group.weight * np.asarray(shrink(scene, found, jnp.asarray(group.x), clip))
    top = np.einsum("n,nmd->md", a, found.top)
    first = np.einsum("n,nmj,np->mjp", a, found.delta, group.x)
    return top, first.reshape(-1, group.x.shape[1])


def _whole(scene: Scene, own: Group, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """A client's message, clipped as one vector to its share of `clip`."""
    top, first = scene.blocks(scene.message(own.batch))
    share = own.weight.sum() / scene.algorithm.steps
    length = np.sqrt((top**2).sum() + (first**2).sum()) / share
    factor = min(1.0, clip * scene.unit / max(length, 1e-30))
    return factor * top, factor * first
