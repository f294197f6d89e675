"""What every script of a peer shares: settings in, one JSON line out. Needs numpy only.

A script is called with the path of a JSON file (`Settings`), trains for `rounds` rounds from the
given weights, and prints one line: seconds of every steady round, seconds to start, the loss at
the end on the first `loss_rows` rows, versions.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Settings(NamedTuple):
    """The task: client i holds rows i * rows .. (i + 1) * rows - 1 of x and y."""

    data: str
    """An npz: x uint8, y int32, scale."""
    weights: str
    """An npz: where training starts, the arrays of the network in the order of `scores`."""
    network: str
    """mlp or cnn."""
    hidden: int
    clients: int
    rows: int
    batch: int
    rounds: int
    """The loss is taken after this many rounds."""
    warmup: int
    """The first of them do not count."""
    rate: float
    seed: int
    loss_rows: int
    seconds: float
    """Scripts of fast peers go on until they have timed this long."""
    threads: int
    launched: float
    """time.time() when this process was started."""
    variant: str = ""


class Data(NamedTuple):
    """x is float32 and scaled: no framework pays for the conversion."""

    x: np.ndarray
    y: np.ndarray
    w: list[np.ndarray]
    """Where training starts."""


PLACE = "FEDSSCA_PEER_SETTINGS"


def settings() -> Settings:
    """Settings as the command line, or in processes that a framework starts PLACE, names them."""
    if PLACE not in os.environ:
        os.environ[PLACE] = str(Path(sys.argv[1]).absolute())
    return Settings(**json.loads(Path(os.environ[PLACE]).read_text()))


@contextmanager
def silent() -> Iterator[None]:
    """Whatever a framework prints goes to stderr, so that stdout holds the one line only."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(answer, 1)


def load(given: Settings, client: int | None = None) -> Data:
    """All rows, or those of one client."""
    held, first = np.load(given.data), np.load(given.weights)
    part = slice(0, given.clients * given.rows)
    if client is not None:
        part = slice(client * given.rows, (client + 1) * given.rows)
    x = np.multiply(held["x"][part], np.float32(held["scale"]), dtype=np.float32)
    w = [first[f"arr_{number}"] for number in range(len(first.files))]
    return Data(x, held["y"][part].astype(np.int64), w)


def gradient(w: Sequence[np.ndarray], x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Gradient of the mean cross-entropy, where a framework has none: that of PyTorch for "cnn"."""
    if len(w) > 2:
        import common_torch

        return common_torch.gradient(w, x, y)
    w1, w0 = w
    z = x @ w1.T
    gate = 1 / (1 + np.exp(-z))
    act = z * gate
    scores = act @ w0.T
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    odds[np.arange(len(y)), y] -= 1
    odds /= len(y)
    back = (odds @ w0) * (gate + act * (1 - gate))
    return [back.T @ x, odds.T @ act]


def scores(w: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
    """W_0 swish(W_1 x) for "mlp": w = W_1, W_0.

    For "cnn", twice a convolution, max(., 0) and the largest of 2 x 2 places, then a dense layer,
    max(., 0) and another dense layer: w = kernel (out, in, 3, 3), bias, kernel, bias, weights,
    bias, weights, bias. Before the dense layers, the channels of a place are side by side.
    """
    if len(w) == 2:
        z = x @ w[0].T
        return (z / (1 + np.exp(-z))) @ w[1].T
    z = x.reshape(len(x), 28, 28, 1)
    for kernel, bias in (w[:2], w[2:4]):
        padded = np.pad(z, ((0, 0), (1, 1), (1, 1), (0, 0)))
        patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        z = np.maximum(np.tensordot(patches, kernel, ([3, 4, 5], [1, 2, 3])) + bias, 0)
        rows, side, _, channels = z.shape
        z = z.reshape(rows, side // 2, 2, side // 2, 2, channels).max(axis=(2, 4))
    return np.maximum(z.reshape(len(x), -1) @ w[4].T + w[5], 0) @ w[6].T + w[7]


def loss(given: Settings, w: Sequence[Any]) -> float:
    """Mean cross-entropy on the first rows, the same sum for every peer."""
    held, w = np.load(given.data), [np.asarray(each, np.float32) for each in w]
    found = []
    for start in range(0, given.loss_rows, 500):
        part = slice(start, min(start + 500, given.loss_rows))
        x = held["x"][part].astype(np.float32) * np.float32(held["scale"])
        own = scores(w, x)
        top = own.max(axis=1)
        picked = own[np.arange(len(x)), held["y"][part]]
        found.append(top + np.log(np.exp(own - top[:, None]).sum(axis=1)) - picked)
    return float(np.mean(np.concatenate(found)))


def since_launch(given: Settings) -> float:
    """Seconds since this process was started."""
    return time.time() - given.launched


def timed(rounds: int, one: Callable[[], Any]) -> list[float]:
    """Seconds of each of `rounds` calls."""
    marks = [time.perf_counter()]
    for _ in range(rounds):
        one()
        marks.append(time.perf_counter())
    return list(np.diff(marks))


def go_on(given: Settings, seconds: list[float], one: Callable[[], Any]) -> list[float]:
    """More rounds, until enough time was measured."""
    while sum(seconds) < given.seconds:
        seconds = seconds + timed(max(1, len(seconds)), one)
    return seconds


def emit(
    seconds: Sequence[float], startup: float, final: float, packages: Sequence[str], **more: Any
) -> None:
    """The one line."""
    found = {"python": sys.version.split()[0]} | {name: version(name) for name in packages}
    line = {"seconds": [float(s) for s in seconds], "startup": startup, "loss": final}
    print(json.dumps(line | {"versions": found} | more), flush=True)
