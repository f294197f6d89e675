"""What an observer is sent: a client's message, or a sum; plain, or clipped and noised.

With noise a message is  sum_n a_n c_n (t_n, delta_n x_n') + a C sigma xi,  c_n = min(1, C / |.|)
over all gradients of sample n as one vector, a the largest a_n, xi standard normal. With
unit = "client" the whole message is clipped, to a client's share of C.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.methods.algorithm import Algorithm
from fedssca.privacy.noise.clip import per_client, per_sample
from fedssca.problem.problem import Array
from fedssca.studies.audit.scene import Gradients, Group, Noise, Scene

__all__ = ["View", "shrink", "take", "typical"]


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
    method = scene.algorithm if noise is None else _method(scene, noise)
    parts = [scene.group([client], round_).batch for client in clients]
    sent = [scene.blocks(scene.message(part, method)) for part in parts]
    top, first = (np.sum(blocks, axis=0) for blocks in zip(*sent, strict=True))
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


@cache
def _method(scene: Scene, noise: Noise) -> Algorithm:
    """The run's method with messages clipped, as the run itself would clip them."""
    if noise.unit == "client":
        return per_client(scene.algorithm, noise.clip, noise.clip)
    split = None if scene.horizontal else scene.problem.vertical
    blocks = () if split is None else split.blocks
    return per_sample(scene.algorithm, noise.clip, noise.clip, blocks)


def _gradients(scene: Scene, group: Group) -> Gradients:
    belief = jnp.eye(len(scene.kinds["y"]))[group.kind]
    h = jnp.asarray(group.x @ scene.first.T)
    return scene.gradients(h, belief)
