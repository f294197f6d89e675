"""PyTorch modules that a function of the user makes, see `problem.own`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fedssca.errors import UserError
from fedssca.problem.forms import JoinedModel
from fedssca.problem.functions import error_line
from fedssca.problem.torch import layout_of, load_into
from fedssca.problem.torch_parties import joined_modules, one_module

__all__ = ["torch_model", "torch_parts", "torch_state"]


def torch_model(
    name: str,
    made: Callable[[int], Any],
    features: int,
    scale: float,
    dtype: str,
    parties: Sequence[Sequence[int]],
) -> JoinedModel:
    """The model of the modules that made(seed) returns, in this precision.

    torch's random numbers begin with the seed, so that all sites draw the same first parameters.
    """

    def seeded(seed: int) -> JoinedModel:
        found = _drawn(lambda: made(seed), seed)
        kind, factor = getattr(torch, dtype), None if scale == 1 else scale
        if isinstance(found, torch.nn.Module):
            return one_module(found.to(kind), features, factor)
        if not parties:
            raise UserError(
                f"model.name = {name!r} returned bottoms and a head, which are for parties with "
                'columns: set data.split = "feature", or return one module'
            )
        bottoms, head = found
        modules = [module.to(kind) for module in bottoms]
        joined = joined_modules(modules, head.to(kind), parties, scale=factor)
        _check_widths(name, modules, parties)
        return joined

    return seeded(0)._replace(init=lambda seed: seeded(seed).init(seed))


def _check_widths(
    name: str, bottoms: Sequence[torch.nn.Module], parties: Sequence[Sequence[int]]
) -> None:
    """Raise a UserError unless every bottom takes the columns of its party."""
    for number, (module, own) in enumerate(zip(bottoms, parties, strict=True)):
        layout = layout_of(module)
        try:
            with torch.no_grad():
                layout.call(layout.zeros(), layout.tensor(np.zeros((2, len(own)), np.float32)))
        except Exception as error:
            raise UserError(
                f"model.name = {name!r}: bottom {number} does not take the {len(own)} columns of "
                f"its party: {error_line(error)}"
            ) from error


def torch_state(made: Callable[[], Any], w: np.ndarray) -> dict[str, np.ndarray]:
    """The trained modules' arrays by name; w is the flat vector, as `torch_parts` divides it.

    What is not trained, frozen parameters and buffers, is that of seed 0, as in `torch_model`.
    """
    found = _drawn(made, 0)
    named = {"": found} if isinstance(found, torch.nn.Module) else _by_prefix(*found)
    state: dict[str, np.ndarray] = {}
    place = 0
    for prefix, module in named.items():
        size = sum(p.numel() for p in module.parameters() if p.requires_grad)
        load_into(module, w[place : place + size])
        place += size
        state |= {prefix + name: value.numpy() for name, value in module.state_dict().items()}
    return state


def _drawn(made: Callable[[], Any], seed: int) -> Any:
    """What made() returns if torch's random numbers begin with the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return made()


def torch_parts(found: Any) -> list[tuple[str, int]]:
    """The names of the trained parameters and their sizes, in the order of the flat vector."""
    if isinstance(found, torch.nn.Module):
        return _named("", found)
    parts: list[tuple[str, int]] = []
    for prefix, module in _by_prefix(*found).items():
        parts += _named(prefix, module)
    return parts


def _by_prefix(
    bottoms: Sequence[torch.nn.Module], head: torch.nn.Module
) -> dict[str, torch.nn.Module]:
    """The modules of parties with columns, in the order of the flat vector."""
    numbered = {f"bottom{number}.": module for number, module in enumerate(bottoms, 1)}
    return {"head.": head} | numbered


def _named(prefix: str, module: torch.nn.Module) -> list[tuple[str, int]]:
    sizes = {name: int(np.prod(shape)) for name, shape in layout_of(module).shapes.items()}
    return [(prefix + name, size) for name, size in sizes.items()]
