"""Seconds a deployed round, against the bare engine moving the same bytes.

Four sites on loopback with real certificates, d = 101,632 (784-128-10). Rounds of the run and bare
rounds take turns within one job, so both see the same machine.

    rows      B = 10     a bare Collab echo: the request down, an answer of the same size up
    columns   B = 100    a bare exchange: block down, h_i encrypted to every peer, block up
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from fedssca.config import parse, render
from fedssca.deploy import kit, submit
from fedssca.deploy.local import field

RUN = """
[data]
path = "{path}"
clients = 4
split = "{split}"
[model]
hidden = 128
[algorithm]
batch = {batch}
rho = {{a = 0.9, alpha = 0.1}}
gamma = {{a = 0.5, alpha = 0.1}}
tau = 0.2
"""


def main() -> None:
    kit.ALLOWED.append("deploy_parts.")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "images.npz"
        draw = np.random.default_rng(0)
        x = draw.integers(0, 256, (4000, 784), dtype=np.uint8)
        np.savez(path, x=x, y=draw.integers(0, 10, 4000))
        for split, batch in (("sample", 10), ("feature", 100)):
            config = parse(RUN.format(path=path, split=split, batch=batch))
            found = measure(config, Path(scratch) / split)
            ratio = found["ours"] / found["bare"]
            print(
                f"{split:8} d = {found['dimension']:,}  B = {batch:3}  "
                f"round {found['ours']:.4f} s  bare {found['bare']:.4f} s  ratio {ratio:.2f}",
                flush=True,
            )


def measure(config: object, out: Path) -> dict[str, float]:
    write = submit.write_job

    def as_benchmark(folder: Path, *order: object) -> None:
        write(folder, *order)
        for name in ("server", "client"):
            file = folder / "app" / "config" / f"config_fed_{name}.json"
            text = file.read_text().replace(
                "fedssca.deploy.parts.Coordinator", "deploy_parts.Bench"
            )
            file.write_text(text.replace("fedssca.deploy.parts.Site", "deploy_parts.EchoSite"))

    submit.write_job = as_benchmark
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    try:
        with (
            field(config, 4, out / "logs", here) as made,
            submit.open_desk(made.kits["submit"]) as desk,
        ):
            ticket = submit.Ticket.new(made.sites, render(config))
            ticket.write(out)
            tell = submit.Follower(lambda row, live: None, print)
            submit.follow(desk, ticket, out, False, tell, 90.0)
    finally:
        submit.write_job = write
    return json.loads((out / "result.json").read_text())


if __name__ == "__main__":
    main()
