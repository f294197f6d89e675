"""Before sites with columns send each other anything: they exchange keys by way of the server.

The server can neither read nor replace them, because they are public and signed.
"""

from __future__ import annotations

import numpy as np

from fedssca.deploy.server.sites import Sites

__all__ = ["introduce"]


def introduce(sites: Sites, seconds: float) -> None:
    """Bring every party the signed public keys of the others.

    The first party also chooses the secret of the checks, sealed for each of the others.
    """
    everyone = range(len(sites.names))
    none: dict[int, dict[str, np.ndarray]] = {number: {} for number in everyone}
    offers = sites.ask("offer", 0, none, seconds)
    sites.check_all(everyone, offers, 0)
    keys = {
        f"{part} {number}": offer.arrays[part]
        for number, offer in offers.items()
        for part in ("key", "signature")
        if part in offer.arrays
    }
    first = sites.ask("meet", 0, {0: keys}, seconds)
    sites.check_all([0], first, 0)
    boxes = {number: first[0].arrays.get(f"box {number}") for number in everyone[1:]}
    told = {i: keys | {"box": box} for i, box in boxes.items() if box is not None}
    sites.check_all(everyone[1:], sites.ask("meet", 0, told, seconds), 0)
