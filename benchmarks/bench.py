"""The tables of docs/performance.md, made from what `fedssca bench` measures.

    python benchmarks/bench.py limit            one section, and the Markdown of its tables
    python benchmarks/bench.py deep --json FILE  from the output of `fedssca bench --json`

The sections are limit, noise, deep, start, bytes and peers. Run them on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cells import markdown

from fedssca.studies.bench.measure import measure_all

Found = Mapping[str, Any]
Table = Sequence[Mapping[str, Any]]
NETWORKS = {"mlp": "network 784-128-10", "cnn": "convolutional network"}
DEEP = {"cnn": "convolutional network, as above", "mlp3": "dense network 784-256-128-64-10"}
OWN = "fedssca"
PEERS = {
    "ours": OWN,
    "pytorch": "PyTorch, careful loop over clients",
    "pytorch-joined": "PyTorch, all clients at once, no longer a federated program",
    "flower": "Flower's simulation",
    "nvflare": "NVFlare's simulator",
    "pfl": "pfl-research",
    "fedjax": "FedJAX",
}


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.{0 if seconds > 0.02 else 2 if seconds < 0.001 else 1}f}"


def limit_tables(found: Found) -> list[Table]:
    """Rounds beside their two products, and what extras cost."""
    rounds = []
    for batch, ratio in found["limit"].items():
        own = found["seconds"][f"round, B = {batch}"]["best"]
        name = f"B = {batch}" + (" (all rows)" if batch == "6000" else "")
        times = {"one round": own, "the products": own / ratio}
        shown = {title: f"{milliseconds(each)} ms" for title, each in times.items()}
        rounds.append({"batch": name, **shown, "ratio": f"{ratio:.2f}"})
    extras = [
        {"extra": name, "time with / time without": f"{ratio:.2f}"}
        for name, ratio in found["costs"].items()
    ]
    return [rounds, extras]


def noise_tables(found: Found) -> list[Table]:
    """Rounds with clipped samples and noise beside plain ones."""
    times = {name: found["noise_seconds"][name]["best"] for name in found["noise_seconds"]}
    return [
        [
            {
                "a round with clipped samples and noise": NETWORKS[name],
                "ms": milliseconds(times[f"{name}, noise"]),
                "without": milliseconds(times[f"{name}, plain"]),
                "ratio": f"{ratio:.2f}",
            }
            for name, ratio in found["noise"].items()
        ]
    ]


def deep_tables(found: Found) -> list[Table]:
    """Rounds of deeper networks beside PyTorch's."""
    times = {name: found["deep_seconds"][name]["best"] for name in found["deep_seconds"]}
    return [
        [
            {
                "": title,
                "ms per round": milliseconds(times[f"{name}, ours"]),
                "PyTorch, one joined batch": milliseconds(times[f"{name}, PyTorch joined"]),
                "PyTorch, client after client": milliseconds(times[f"{name}, PyTorch loop"]),
                "ratio to the joined batch": f"{found['deep'][name]:.2f}",
            }
            for name, title in DEEP.items()
        ]
    ]


def start_tables(found: Found) -> list[Table]:
    """The first rows of a run beside the import of JAX."""
    base = found["start_seconds"]["import jax"]["median"]
    ways = {
        "first row": ("start", "start_cold"),
        "second row": ("start_second", "start_second_cold"),
    }
    table: list[dict[str, Any]] = [
        {"the default run": "`import jax`", "seconds": f"{base:.2f}", "ratio": 1, "cold": ""}
    ]
    table += [
        {
            "the default run": title,
            "seconds": f"{found[warm] * base:.2f}",
            "ratio": f"{found[warm]:.1f}",
            "cold": f"{found[cold]:.1f}",
        }
        for title, (warm, cold) in ways.items()
    ]
    return [table]


def bytes_tables(found: Found) -> list[Table]:
    """What methods send until they reach an accuracy."""
    return [
        [
            {
                "": name,
                "rounds": f"{row['rounds']:.1f} ± {row['rounds_sd']:.1f}",
                "MB": f"{row['megabytes']:.0f}",
                "ratio": f"{found['bytes'].get(name, 1.0):.2f}",
                "MB in a secure sum": f"{row['secure_sum_megabytes']:.0f}",
            }
            for name, row in found["bytes_details"].items()
        ]
    ]


def peers_tables(found: Found) -> list[Table]:
    """Rounds of other frameworks, with the dense and with the convolutional network."""
    return [
        [
            {
                "": PEERS[name] + (f" ({row['variant']})" if row.get("variant") else ""),
                "ms per round": milliseconds(row["seconds"]),
                f"relative to {OWN}": f"{one['peers'].get(name, 1.0):.3g}",
                "loss": f"{row['loss']:.3f}",
            }
            for name, row in one["peers_details"].items()
            if name not in one["peers_failed"]
        ]
        for one in (found, found["peers_cnn"])
    ]


SECTIONS: dict[str, Callable[[Found], list[Table]]] = {
    "limit": limit_tables,
    "noise": noise_tables,
    "deep": deep_tables,
    "start": start_tables,
    "bytes": bytes_tables,
    "peers": peers_tables,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--json", type=Path, help="what fedssca bench --json printed")
    given = parser.parse_args()

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if given.json:
        found = json.loads(given.json.read_text())
    else:
        found = measure_all((given.section,), None, False, tell, tell)
    print("\n\n".join(markdown(table) for table in SECTIONS[given.section](found)))


if __name__ == "__main__":
    main()
