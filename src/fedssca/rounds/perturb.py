"""What is done to messages before anybody else sees them; by default nothing.

Mechanisms that clip or disturb messages give a `Perturbation` to whoever runs the rounds. A client
that answers on its own disturbs its own message; a simulator that adds up all clients in one
product disturbs the sum by as much as the clients together would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from fedssca.methods.algorithm import Message, Request
from fedssca.problem.problem import Array

__all__ = ["Perturb", "Perturbation", "unperturbed"]

Perturb: TypeAlias = Callable[[Message, Request], Message]
"""A message, and the request that it answers -> what leaves the client."""


class Perturbation(NamedTuple):
    """The same change to messages, for single clients and for the sum of all."""

    client: Callable[[int, float], Perturb]
    """The number of a client (or of a block of w), and N_i / N -> what it does to its messages."""
    joint: Callable[[Message, Request, Array, Any], Message]
    """(sum, request, N_i / N of those who answer and 0 of others, seed) -> the perturbed sum."""
    separate: bool = False
    """The messages of single clients are bounded: batches of several clients cannot be joined."""


unperturbed = Perturbation(
    client=lambda number, share: lambda message, request: message,
    joint=lambda total, request, shares, seed: total,
)
"""Messages as the algorithm makes them."""
