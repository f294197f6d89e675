"""Three clients whose rows arrive while the model trains: a generator, a queue, a growing file.

Run: python examples/streaming.py. Minimise |w|^2 while the loss on held-out digits stays below a
limit. Nobody keeps a row after the round that used it.
"""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fedssca

LIMIT, BATCH, ROUNDS = 0.35, 20, 500

data = fedssca.load("digits")
digits = fedssca.by_sample({"x": data.train["x"] / np.float32(16), "y": data.train["y"]}, 3)
check = {"x": data.test["x"] / np.float32(16), "y": data.test["y"]}


def arrivals(client: int, rows: int = 17) -> Iterator[dict[str, np.ndarray]]:
    """An endless flow of a client's digits, in random order, a few rows at a time."""
    own, rng = digits.client(client), np.random.default_rng(client)
    while True:
        some = rng.integers(0, len(own["y"]), rows)
        yield {name: column[some] for name, column in own.items()}


def feed(waiting: queue.Queue, over: threading.Event) -> None:
    """The second client: a thread puts rows into a queue, every two milliseconds."""
    for block in arrivals(1):
        if over.wait(0.002):
            return
        waiting.put(block)


def log(path: Path, over: threading.Event) -> None:
    """The third client: a thread appends lines to a file, every two milliseconds."""
    with path.open("a") as file:
        for block in arrivals(2):
            if over.wait(0.002):
                return
            for x, y in zip(block["x"], block["y"], strict=True):
                file.write(",".join(f"{value:g}" for value in x) + f",{y}\n")
            file.flush()


def main() -> fedssca.Result:
    over = threading.Event()
    waiting: queue.Queue = queue.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.csv"
        path.write_text(",".join(f"pixel{i}" for i in range(64)) + ",digit\n")
        threads = [
            threading.Thread(target=feed, args=(waiting, over)),
            threading.Thread(target=log, args=(path, over)),
        ]
        for thread in threads:
            thread.start()
        clients = fedssca.Streams(
            [
                arrivals(0),
                fedssca.from_queue(waiting),
                fedssca.follow_csv(path, label="digit", wait=0.01, stop=over),
            ],
            check=check,
        )
        model = fedssca.mlp(features=64, hidden=32, classes=10)
        problem = fedssca.classifier(model, fedssca.loss_at_most(LIMIT), objective="norm")
        algorithm = fedssca.auto(problem, clients, batch=BATCH, rounds=ROUNDS)
        try:
            result = fedssca.simulate(
                problem, clients, algorithm, ROUNDS, evaluate_every=50, on_row=show
            )
        finally:
            over.set()
            for thread in threads:
                thread.join()
    for name, reader in zip(("generator", "queue", "file"), clients.readers, strict=True):
        print(f"{name:>9}: {reader.taken:,} rows, each used once")
    for note in result.notes:
        print(note)
    cost, accuracy = (result.final[f"train_{name}"] for name in ("cost", "accuracy"))
    kept = "kept" if result.feasible else "broken"
    print(f"limit {LIMIT} {kept}: held-out loss {cost:.3f}, accuracy {accuracy:.1%}")
    return result


def show(row: dict) -> None:
    print(f"round {row['round']:>3}: held-out loss {row['train_cost']:.3f}")


if __name__ == "__main__":
    main()
