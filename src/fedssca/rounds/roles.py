"""Who does what in a round: the phases, who speaks for the top block, who reads the h_i.

Simulator, sites and server all read their part from one `Roles`; nobody else works it out.
"""

from __future__ import annotations

from typing import NamedTuple

from fedssca.data.split import Columns, Rows

__all__ = ["Roles", "evaluation_roles", "roles_of"]


class Roles(NamedTuple):
    """The phases of a round in their order, and the parties with a special task."""

    phases: tuple[str, ...]
    speaker: int = 0
    """The party that sends the message of the top block w_0 and the values of the terms."""
    readers: tuple[int, ...] = ()
    """The parties that need the h_i of all parties; none where clients hold rows."""


def roles_of(clients: Rows | Columns) -> Roles:
    """The roles in a round of training.

    Clients that hold rows only reply. Parties that hold columns share their h_i first. Where one
    party alone has the labels it reads all h_i, and sends the derivatives of the terms to the
    others before they reply. In the open collection every party sends everything to the server.
    """
    if isinstance(clients, Rows) or clients.collection == "open":
        return Roles(("reply",))
    if clients.label_holder is None:
        return Roles(("share", "reply"), readers=tuple(range(clients.count)))
    holder = clients.label_holder
    return Roles(("share", "head", "reply"), holder, (holder,))


def evaluation_roles(clients: Rows | Columns) -> Roles:
    """The roles in an evaluation or prediction: the speaker alone reads the h_i and replies."""
    if isinstance(clients, Rows):
        return Roles(("reply",))
    speaker = roles_of(clients).speaker
    return Roles(("share", "reply"), speaker, (speaker,))
