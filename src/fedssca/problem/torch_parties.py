"""PyTorch modules of parties that hold columns: a bottom for each party, and a head.

    scores = head(h),    h = sum_i bottom_i(x_i), or the h_i side by side

JAX holds the flat vector w = (w_0, w_1, ..., w_I); torch computes values and gradients, as in
`problem.torch`. The head is differentiated by its inputs too, for which they travel beside w_0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraints import Constraint
from fedssca.problem.forms import JoinedModel
from fedssca.problem.models import classifier
from fedssca.problem.problem import Array, Problem
from fedssca.problem.stacks import Join, check_join
from fedssca.problem.tasks import CLASSIFICATION, Task
from fedssca.problem.torch import ModuleLayout, bridge, layout_of

if TYPE_CHECKING:
    import torch

__all__ = ["from_modules", "joined_modules", "one_module"]

INPUTS = "<h>"
"""The name of the inputs of the head among its parameters; no module has a parameter like it."""


def from_modules(
    bottoms: Sequence[torch.nn.Module],
    head: torch.nn.Module,
    features: Sequence[Sequence[int] | np.ndarray],
    constraints: Sequence[Constraint] = (),
    objective: str = "loss",
    l2: float = 0.0,
    *,
    join: Join = "concatenate",
    scale: float | None = None,
    device: str | torch.device | None = None,
    task: Task = CLASSIFICATION,
) -> Problem:
    """min loss + l2 |w|^2 (or |w|^2) subject to `constraints`, for parties with columns.

    bottoms[i] takes the columns features[i] of x and gives h_i (rows, H_i); the head takes their
    sum or concatenation and gives scores (rows, L). Everything else is as in `from_module`. The
    parameters of the result are (w_0, (w_1, ..., w_I)), flat vectors in the order of
    `named_parameters`; `load_into` writes them into the modules. `device` and `task` are those of
    `from_module`.
    """
    joined = joined_modules(bottoms, head, features, join=join, scale=scale, device=device)
    own = [np.array(party) for party in joined.parties]
    return classifier(joined, constraints, objective=objective, l2=l2, features=own, task=task)


def joined_modules(
    bottoms: Sequence[torch.nn.Module],
    head: torch.nn.Module,
    features: Sequence[Sequence[int] | np.ndarray],
    *,
    join: Join = "concatenate",
    scale: float | None = None,
    device: str | torch.device | None = None,
) -> JoinedModel:
    """The model of a module for the columns of each party, and a head."""
    check_join(join)
    if len(bottoms) != len(features):
        raise UserError(
            f"{len(bottoms)} bottoms for {len(features)} parties: give each party one module"
        )
    top, layouts = layout_of(head, device), [layout_of(module, device) for module in bottoms]
    if len({layout.dtype for layout in (top, *layouts)}) > 1:
        raise UserError("the modules have different dtypes: use .float() or .double() for all")
    return JoinedModel(
        lambda seed: (top.start(), [layout.start() for layout in layouts]),
        tuple(_bottom(f"bottom {i}", layout, scale) for i, layout in enumerate(layouts)),
        _head(top, join),
        tuple(tuple(int(place) for place in own) for own in features),
        join == "sum",
        top.layers + max(layout.layers for layout in layouts),
    )


def one_module(module: torch.nn.Module, features: int, scale: float | None = None) -> JoinedModel:
    """The model of a module of all columns, whose outputs are the scores."""
    layout = layout_of(module)
    return JoinedModel(
        lambda seed: ((), [layout.start()]),
        (_bottom("the module", layout, scale),),
        lambda w0, hs: hs[0],
        (tuple(range(features)),),
        depth=layout.layers,
    )


def _bottom(
    what: str, layout: ModuleLayout, scale: float | None
) -> Callable[[Array, Array], Array]:
    def forward(params: Any, batch: Any) -> torch.Tensor:
        x = batch["x"] if scale is None else batch["x"].to(layout.dtype) * scale
        return layout.call(params, x)

    run = bridge(layout, forward, what=what)

    def local(w: Array, x: Array) -> Array:
        h = run(w, {"x": x})
        if h.ndim != 2:
            raise UserError(f"{what} gives shape {h.shape}: it must give (rows, numbers)")
        return h

    return local


def _head(layout: ModuleLayout, join: Join) -> Callable[[Array, Sequence[Array]], Array]:
    def forward(params: Any, batch: Any) -> torch.Tensor:
        del batch
        own = {name: value for name, value in params.items() if name != INPUTS}
        return layout.call(own, params[INPUTS])

    def scores(w0: Array, hs: Sequence[Array]) -> Array:
        widths = [h.shape[1] for h in hs]
        if join == "sum" and len(set(widths)) > 1:
            raise UserError(
                f'join = "sum" adds outputs of the widths {", ".join(map(str, widths))}: let all '
                'bottoms give the same width, or use join = "concatenate"'
            )
        h = sum(hs[1:], start=hs[0]) if join == "sum" else jnp.concatenate(list(hs), axis=1)
        rows, width = h.shape
        whole = layout._replace(shapes=layout.shapes | {INPUTS: (rows, width)})
        outputs = layout.outputs(width)

        def like(w: Array) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((rows, outputs), w.dtype)

        run = bridge(whole, forward, like=like)
        return run(jnp.concatenate([w0, h.ravel()]), {})

    return scores
