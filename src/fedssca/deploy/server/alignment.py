"""The server's side of the alignment: which rows all parties with columns have."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedssca.data.ids import IdForm, misfit
from fedssca.deploy.alignment import ROWS_OF
from fedssca.errors import UserError
from fedssca.privacy.psi.protocol import check_points, common_positions
from fedssca.rounds.codec import Envelope, InvalidMessage, note

__all__ = ["align", "same_rows"]

Ask = Callable[[str, int, Sequence[dict[str, np.ndarray]]], list[Envelope]]
"""(kind, hop, the arrays for each site) -> the answers of all sites."""


def same_rows(names: Sequence[str], said: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all sites have the same ids in order; a UserError if they cannot be aligned."""
    if all(each["ids"] == said[0]["ids"] for each in said):
        return True
    for name, each in zip(names, said, strict=True):
        if each["parts"] != said[0]["parts"]:
            one, two = (" and ".join(ROWS_OF[p] for p in s["parts"]) for s in (each, said[0]))
            raise UserError(
                f"{name}: it brings {one}, {names[0]} brings {two}; either all parties or none "
                "have test rows of their own (NPZ: x_test)"
            )
    if line := misfit({n: IdForm(*each["form"]) for n, each in zip(names, said, strict=True)}):
        raise UserError(line)
    return False


def align(ask: Ask, names: Sequence[str], said: Sequence[Mapping[str, Any]], seconds: float) -> int:
    """Let all sites keep the rows that all of them have; returns the number of these rows."""
    count = len(names)
    told = note({"session": secrets.token_hex(16), "names": list(names), "seconds": seconds})
    everyone = [told] * count
    ask("align/open", 0, everyone)
    for hop in range(1, count):
        answers = ask("align/turn", hop, everyone)
    sets = []
    for owner, each in enumerate(said):
        last = (owner - 1) % count
        try:
            sets.append(check_points(answers[last].arrays.get("points"), each["count"], valid=True))
        except InvalidMessage as error:
            raise UserError(f"{names[last]}: what it sent cannot be aligned: {error}") from None
    places = common_positions(sets)
    if not len(places[0]):
        sizes = ", ".join(f"{n} {each['count']}" for n, each in zip(names, said, strict=True))
        raise UserError(
            f"no id is at all sites (rows: {sizes}); is id in every site.toml the column that "
            "names the same things, written alike?"
        )
    ask("align/keep", 0, [told | {"places": own} for own in places])
    ask("align/agree", 0, everyone)
    return len(places[0])
