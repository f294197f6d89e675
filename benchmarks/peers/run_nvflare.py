"""NVIDIA FLARE: Collab API in its simulator, one process a client, one `bytes` a message.

To be kind to it: plain bytes instead of arrays (four times as fast), rows stay in memory.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import common
import numpy as np
from nvflare.collab import CollabRecipe, collab
from nvflare.recipe import SimEnv


def pack(w: Sequence[np.ndarray]) -> bytes:
    return np.concatenate([each.ravel() for each in w]).astype(np.float32, copy=False).tobytes()


def unpack(sent: bytes, like: common.Data) -> list[np.ndarray]:
    ends = np.cumsum([each.size for each in like.w])
    parts = np.split(np.frombuffer(sent, np.float32), ends[:-1])
    return [part.reshape(each.shape) for part, each in zip(parts, like.w, strict=True)]


class Client:
    """Holds its rows, takes one step a call."""

    @collab.init
    def start(self) -> None:
        """Called by FLARE once."""
        self.given = common.settings()
        client = int(collab.site_name.removeprefix("site-")) - 1
        self.data = common.load(self.given, client)
        self.rng = np.random.default_rng([self.given.seed, client])

    @collab.publish
    def train(self, sent: bytes) -> bytes:
        """The new model."""
        w = unpack(sent, self.data)
        index = self.rng.integers(self.given.rows, size=self.given.batch)
        slopes = common.gradient(w, self.data.x[index], self.data.y[index])
        return pack([each - self.given.rate * g for each, g in zip(w, slopes, strict=True)])


class Server:
    """Sends the model to all clients and averages what comes back."""

    @collab.main
    def run(self) -> None:
        """Called by FLARE once."""
        given = common.settings()
        data = common.load(given, 0)
        sent, marks = pack(data.w), []
        for _ in range(given.rounds):
            total = np.zeros(len(sent) // 4, np.float32)
            replies = list(collab.clients(timeout=60.0).train(sent))
            if len(replies) != given.clients:
                raise RuntimeError("a client failed")
            for _, reply in replies:
                total += np.frombuffer(reply, np.float32)
            total /= given.clients
            sent = total.tobytes()
            marks.append(time.time())
        answer = [list(np.diff(marks))[given.warmup - 1 :], marks[0]]
        final = common.loss(given, unpack(sent, data))
        Path(f"{os.environ[common.PLACE]}.result").write_text(json.dumps([*answer, final]))


def main() -> None:
    given = common.settings()
    with tempfile.TemporaryDirectory() as folder, common.silent():
        recipe = CollabRecipe("bench", server=Server(), client=Client(), min_clients=given.clients)
        recipe.execute(SimEnv(num_clients=given.clients, workspace_root=folder, log_config="ERROR"))
    seconds, first, final = json.loads(Path(f"{os.environ[common.PLACE]}.result").read_text())
    common.emit(seconds, first - given.launched, final, ["nvflare", "numpy"])


if __name__ == "__main__":
    import run_nvflare  # so that the classes have a name that other processes can import

    run_nvflare.main()
