"""Parts of a network by name, and the problem in which only some of them are trained.

    networks by name     layer1, layer2, ... in the order of computation, and head, the last layer;
                         with bottoms bottom1.layer1, ..., join, layer1, ..., head
    (apply, params)      the places in the tree, such as encoder.kernel
    Model, JoinedModel   head for w_0; bottom for W_1, or bottom1, bottom2, ...

A name stands for everything that begins with it: bottom1 for bottom1.layer1 and bottom1.layer2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.layers import Convolution, Dense, Stack
from fedssca.problem.networks import Network
from fedssca.problem.own import own_parts
from fedssca.problem.problem import Array, Kept, Problem, Vertical
from fedssca.problem.stacks import Stacks

__all__ = ["named_parts", "narrowed", "places_of"]


def named_parts(network: Network) -> list[tuple[str, int]]:
    """The names of the parts of a network and their sizes, in the order of the flat vector."""
    if ":" in network.name:
        return own_parts(network.name, network.features, network.classes, network.options)
    stacks = network.stacks()
    bottoms, head = _stack_names(stacks)
    values = stacks.init(0)
    owned = [*zip(head, values[0], strict=True)]
    for names, own in zip(bottoms, values[1], strict=True):
        owned += zip(names, own, strict=True)
    return [(name, sum(leaf.size for leaf in jax.tree.leaves(own))) for name, own in owned]


def places_of(key: str, network: Network, wanted: Sequence[str]) -> np.ndarray:
    """The positions in the flat vector of the parts with these names; `key` is the user's."""
    parts = named_parts(network)
    sizes = [size for _, size in parts]
    ends = np.cumsum(sizes)
    chosen: set[int] = set()
    for name in wanted:
        own = [
            k for k, (part, _) in enumerate(parts) if part == name or part.startswith(f"{name}.")
        ]
        if not own:
            known = ", ".join(dict.fromkeys(part for part, size in parts if size))
            raise UserError(f"{key}: the network has no part {name!r}; its parts are {known}")
        chosen |= set(own)
    places = [np.arange(ends[k] - sizes[k], ends[k]) for k in sorted(chosen)]
    found = np.concatenate(places) if places else np.zeros(0, int)
    if not len(found):
        raise UserError(f"{key}: {', '.join(wanted)} has no parameters; name parts that have some")
    return found


def _stack_names(stacks: Stacks) -> tuple[list[list[str]], list[str]]:
    """The name of every layer of the bottoms and of the head."""
    if len(stacks.bottoms) == 1:
        names = list(_numbered((*stacks.bottoms[0], *stacks.head), "layer1"))
        count = len(stacks.bottoms[0])
        return [names[:count]], _last_is_head(stacks.head, names[count:])
    bottoms = [
        [f"bottom{number}.{name}" for name in _numbered(layers, "layer1")]
        for number, layers in enumerate(stacks.bottoms, 1)
    ]
    return bottoms, _last_is_head(stacks.head, list(_numbered(stacks.head, "join")))


def _numbered(layers: Stack, first: str) -> Iterator[str]:
    """Layers that follow a dense layer or a convolution belong to it."""
    number, name = 0, first
    for layer in layers:
        if isinstance(layer, Dense | Convolution):
            number += 1
            name = f"layer{number}"
        yield name


def _last_is_head(layers: Stack, names: list[str]) -> list[str]:
    """The last layer with weights is the head; of a linear model these are its biases."""
    last = max((k for k, layer in enumerate(layers) if isinstance(layer, Dense)), default=0)
    return [*names[:last], *["head"] * (len(names) - last)]


def narrowed(problem: Problem, places: np.ndarray) -> Problem:
    """The problem in which only the parameters at these places of the model are trained.

    Its w are these parameters, s. All others, c, keep their values in w(1):
    f(s; x) = f((s, c); x), and |w|^2 in known terms is |s|^2. `Problem.model` gives (s, c).
    """
    if problem.worst:  # the epigraph variable is the last entry of w
        places = np.append(places, problem.dimension - 1)
    kept = Kept(places, problem.start)
    scores = problem.scores
    return replace(
        problem,
        terms=lambda w, batch: problem.terms(kept.whole(w), batch),
        start=problem.start[places],
        unravel=lambda w: problem.unravel(kept.whole(w)),
        measure=lambda w, batch: problem.measure(kept.whole(w), batch),
        scores=None if scores is None else lambda w, batch: scores(kept.whole(w), batch),
        vertical=None if problem.vertical is None else _narrowed_split(problem.vertical, kept),
        kept=kept,
    )


def _narrowed_split(split: Vertical, kept: Kept) -> Vertical:
    """The vertical form: every block has its trained entries only."""
    number = np.full(len(kept.start), -1)
    number[kept.places] = np.arange(len(kept.places))
    owns = [number[block] >= 0 for block in split.blocks]
    wholes = [
        Kept(np.flatnonzero(own), kept.start[block]).whole
        for own, block in zip(owns, split.blocks, strict=True)
    ]
    measure, scores = split.measure, split.scores

    def local(party: int) -> Callable[[Array, Array], Array]:
        return lambda w, x: split.locals[party](wholes[party + 1](w), x)

    def top(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda w0, *given: function(wholes[0](w0), *given)

    return replace(
        split,
        locals=tuple(local(party) for party in range(len(split.locals))),
        head=top(split.head),
        blocks=tuple(number[block][own] for own, block in zip(owns, split.blocks, strict=True)),
        linear=False,
        scores=None if scores is None else top(scores),
        measure=None if measure is None else top(measure),
    )
