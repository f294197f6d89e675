"""PyTorch modules as problems: JAX holds the flat vector w, torch computes values and gradients.

`from_module` takes a module that returns scores and adds the ready-made loss and constraints.
`from_terms` takes any torch function of the module's output. Both are called through
`jax.pure_callback`, for clients that hold rows. Only first derivatives in reverse mode exist. Torch
computes on the device of the module, or on the one that is asked for.

w holds the trainable parameters in the order of `module.named_parameters()`, row by row. Parameters
with requires_grad=False and buffers stay as they are. The output for a row must depend on that row
only: BatchNorm and Dropout in training mode are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.callbacks import called_back, leading, picked
from fedssca.problem.constraints import Constraint, worst_parts
from fedssca.problem.custom import custom_problem
from fedssca.problem.functions import check_rows, error_line, some_rows
from fedssca.problem.limits import Limit
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.problem.scores import assemble, growth_of, layers
from fedssca.problem.tasks import CLASSIFICATION, Task
from fedssca.system import pip_install

try:
    import torch
except ImportError as missing:
    raise UserError(
        "PyTorch is not installed: pip install torch --index-url "
        "https://download.pytorch.org/whl/cpu (the CPU build; without the index pip may fetch "
        f"gigabytes of CUDA), then {pip_install('torch')}"
    ) from missing

from fedssca.problem.torch_checks import check_module, replace_batch_norm

__all__ = [
    "ModuleLayout",
    "bridge",
    "from_module",
    "from_terms",
    "layout_of",
    "load_into",
    "replace_batch_norm",
]

Tensors: TypeAlias = dict[str, torch.Tensor]
Function: TypeAlias = Callable[[Tensors, Tensors], torch.Tensor]
"""(parameters by name, batch) -> one tensor."""


def from_module(
    module: torch.nn.Module,
    constraints: Sequence[Constraint] = (),
    objective: str = "loss",
    l2: float = 0.0,
    *,
    scale: float | None = None,
    sizes: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    column: str | None = None,
    device: str | torch.device | None = None,
    task: Task = CLASSIFICATION,
) -> Problem:
    """min loss + l2 |w|^2 (or |w|^2) subject to `constraints`, for a module of torch.

    module(x) returns scores (B, L), for a regression (B, 1). Floating-point x is converted to the
    module's dtype, integer x is passed as it is. With `scale`, x * scale is passed in the module's
    dtype, so that images can stay uint8 in memory. Objectives, `sizes`, `groups`, `column` and
    `task` are those of `classifier`. `device` is any device of torch, such as "cuda:0"; without it
    that of the module is used.
    """
    layout = layout_of(module, device)

    def forward(params: Tensors, batch: Tensors) -> torch.Tensor:
        x = batch["x"] if scale is None else batch["x"].to(layout.dtype) * scale
        return layout.call(params, x)

    run = bridge(layout, forward)

    def scores(w: Array, batch: Batch) -> Array:
        outputs = run(w, {"x": batch["x"]})
        if outputs.ndim != 2:
            raise UserError(
                f"the module gives shape {outputs.shape}: it must give scores of shape "
                "(rows, number of classes), or (rows, 1) for a regression"
            )
        return outputs

    parts = worst_parts(objective, sizes, groups, column)
    made = layout.start(), layout.unravel
    depth = layers(layout.unravel(made[0]))
    return assemble(
        *(scores, *made, constraints, objective, l2), parts=parts, depth=depth, task=task
    )


def from_terms(
    module: torch.nn.Module,
    terms: Callable[[torch.Tensor, Tensors], torch.Tensor],
    *,
    limits: Sequence[Limit] = (),
    combine: np.ndarray | None = None,
    known: Sequence[float] | float = 0.0,
    names: Sequence[str] | None = None,
    device: str | torch.device | None = None,
) -> Problem:
    """A problem from any torch loss: terms(module(x), batch) -> (K, B), or (B,) for one term.

    `batch` holds the columns as tensors (integers as int64). Losses must not be averaged over the
    rows: use reduction="none". `device` is that of `from_module`, and the other settings are those
    of `fedssca.custom_problem`.
    """
    layout = layout_of(module, device)

    def forward(params: Tensors, batch: Tensors) -> torch.Tensor:
        values = terms(layout.call(params, batch["x"]), batch)
        return values[None] if values.ndim == 1 else values

    run = bridge(layout, forward, rows_last=True)
    count = len(limits) + 1 if combine is None else np.shape(combine)[1]

    def checked(w: Array, batch: Batch) -> Array:
        values = run(w, batch)
        rows = batch["x"].shape[0]
        if values.shape != (count, rows):
            raise UserError(
                f"terms gave shape {values.shape} for {rows} rows: ({count}, {rows}) is needed, "
                'one number per term and row (reduction="none")'
            )
        return values

    made = custom_problem(
        checked, layout.start(), limits=limits, combine=combine, known=known, names=names
    )
    return replace(made, unravel=layout.unravel, growth=growth_of(layout.layers))


def load_into(module: torch.nn.Module, w: Array | np.ndarray) -> torch.nn.Module:
    """Write a trained vector (`Result.w`) into the module's trainable parameters; returns it."""
    values = np.asarray(w)
    weights = [p for p in module.parameters() if p.requires_grad]
    size = sum(p.numel() for p in weights)
    if values.shape != (size,):
        raise UserError(
            f"w has shape {values.shape}, but the module has {size} trainable parameters: "
            "use a module like the one that was trained"
        )
    with torch.no_grad():
        ends = np.cumsum([p.numel() for p in weights])
        for p, part in zip(weights, np.split(values, ends[:-1]), strict=True):
            p.copy_(torch.tensor(part).reshape(p.shape))
    return module


class ModuleLayout(NamedTuple):
    """A frozen copy of the module, and where each of its trainable parameters lies in w."""

    module: torch.nn.Module
    dtype: torch.dtype
    shapes: dict[str, tuple[int, ...]]
    device: torch.device

    @property
    def layers(self) -> int:
        """The number of layers with weights."""
        return sum(len(shape) > 1 for shape in self.shapes.values())

    def start(self) -> Array:
        """The parameters that the module has now, as one vector."""
        flat = [weights.cpu().numpy().ravel() for weights in self.now().values()]
        return jnp.asarray(np.concatenate(flat))

    def now(self) -> Tensors:
        """The parameters that the module has now."""
        weights = dict(self.module.named_parameters())
        return {name: weights[name].detach() for name in self.shapes if name in weights}

    def cut(self, w: Any) -> dict[str, Any]:
        """A vector of numpy, JAX or torch as named parameters."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes.values())])
        return {
            name: w[a:b].reshape(shape)
            for (name, shape), a, b in zip(self.shapes.items(), ends, ends[1:], strict=False)
        }

    def unravel(self, w: Array) -> dict[str, Array]:
        """The parameters in a vector, by name."""
        return self.cut(w)

    def call(self, params: Tensors, x: torch.Tensor) -> torch.Tensor:
        """The output of the module with these parameters."""
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        return torch.func.functional_call(self.module, (params, buffers), (x,))

    def zeros(self) -> Tensors:
        """Parameters that are all 0."""
        shapes = self.shapes.items()
        return {name: torch.zeros(s, dtype=self.dtype, device=self.device) for name, s in shapes}

    def tensor(self, column: np.ndarray) -> torch.Tensor:
        """Floats in the module's dtype, integers as int64, bytes and booleans unchanged."""
        tensor = torch.tensor(column, device=self.device)
        if tensor.is_floating_point():
            return tensor.to(self.dtype)
        return tensor if tensor.dtype in (torch.uint8, torch.bool) else tensor.to(torch.int64)

    def with_arrays(self, call: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """The same function of numpy's arrays."""
        return lambda x: call(self.tensor(x)).detach().cpu().numpy()

    def outputs(self, width: int) -> int:
        """The number of scores of a head with so many inputs, found by calls on two rows."""
        h, now = some_rows(np.zeros((2, width), np.float32)), self.now()
        try:
            with torch.no_grad():
                found = self.call(now, self.tensor(h))
                check_rows("the head", self.with_arrays(partial(self.call, now)), h)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"the head does not take h of shape (rows, {width}): {error_line(error)}"
            ) from error
        if found.ndim != 2 or len(found) != 2:
            raise UserError(
                f"the head gives shape {tuple(found.shape)} for 2 rows: scores (rows, classes) "
                "needed"
            )
        return int(found.shape[1])


def layout_of(module: torch.nn.Module, device: str | torch.device | None = None) -> ModuleLayout:
    """Copy the module; refuse modules whose output is not a pure function of w and one row."""
    check_module(module)
    weights = {name: p for name, p in module.named_parameters() if p.requires_grad}
    kinds = {p.dtype for p in weights.values()}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(map(str, kinds))) or "none"
        raise UserError(
            f"trainable parameters are {found}: all must be torch.float32 or all torch.float64"
        )
    (dtype,) = kinds
    copied, place = _on_device(module, device)
    if dtype == torch.float64 and jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise UserError(
            'the module is float64 but JAX is not: jax.config.update("jax_enable_x64", True) '
            "first, or use module.float()"
        )
    return ModuleLayout(copied, dtype, {name: tuple(p.shape) for name, p in weights.items()}, place)


def _on_device(
    module: torch.nn.Module, device: str | torch.device | None
) -> tuple[torch.nn.Module, torch.device]:
    """A copy of the module on the device that is asked for, or on its own."""
    copied = copy.deepcopy(module)
    if device is not None:
        try:
            copied = copied.to(device)
            torch.zeros(1, device=device).cpu()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            first = str(error).strip().splitlines()[0]
            raise UserError(
                f"device = {str(device)!r} cannot be used here ({first}); use a device that "
                'torch has on this machine, such as "cpu"'
            ) from error
    places = {t.device for t in [*copied.parameters(), *copied.buffers()]}
    if len(places) > 1:
        told = ", ".join(sorted(map(str, places)))
        raise UserError(f"the module is on several devices ({told}): move it to one, or set device")
    return copied, places.pop()


def bridge(
    layout: ModuleLayout,
    function: Function,
    *,
    what: str = "the module",
    rows_last: bool = False,
    like: Callable[[Array], jax.ShapeDtypeStruct] | None = None,
) -> Callable[[Array, Batch], Array]:
    """`function` as a JAX function of (w, batch) that can be differentiated by w and vmapped.

    vmap adds leading axes to every argument, of length 1 if the argument is not mapped. The
    callbacks loop over these axes and run one forward pass for all cotangents of one point. `like`
    gives the shape of the output where it is known without a call.
    """

    def point(w: np.ndarray, batch: dict[str, np.ndarray], at: tuple[int, ...]) -> Any:
        params = layout.cut(layout.tensor(picked(w, at)))
        return params, {name: layout.tensor(picked(v, at)) for name, v in batch.items()}

    def values(w: np.ndarray, batch: dict[str, np.ndarray]) -> np.ndarray:
        lead = leading(w, batch)
        with torch.no_grad():
            outputs = [
                function(*point(w, batch, at)).to("cpu", layout.dtype).numpy()
                for at in np.ndindex(lead)
            ]
        return np.stack(outputs).reshape(*lead, *outputs[0].shape)

    def pulled(w: np.ndarray, batch: dict[str, np.ndarray], cotangent: np.ndarray) -> np.ndarray:
        points = leading(w, batch)
        lead = np.broadcast_shapes(points, cotangent.shape[: len(points)])
        slopes, last, pull = np.empty((*lead, w.shape[-1]), w.dtype), None, None
        for at in np.ndindex(lead):
            here = tuple(min(i, n - 1) for i, n in zip(at, points, strict=True))
            if pull is None or here != last:
                params, data = point(w, batch, here)
                _, pull, *_ = torch.func.vjp(_of_params(function, data, layout.dtype), params)
                last = here
            (parts,) = pull(layout.tensor(picked(cotangent, at)))
            whole = [parts[name].cpu().numpy().ravel() for name in layout.shapes]
            slopes[at] = np.concatenate(whole)
        return slopes

    def shape(w: Array, batch: Batch) -> jax.ShapeDtypeStruct:
        """The shape of the output, found by calling the function on two rows.

        A function that does not take some random numbers is called on zeros.
        """
        if like is not None:
            return like(w)
        rows = len(batch["x"])
        tried = {k: layout.tensor(np.zeros((2, *v.shape[1:]), v.dtype)) for k, v in batch.items()}
        call = partial(_with_x, function, layout.now(), tried)
        rows_of = some_rows(np.zeros((2, *batch["x"].shape[1:]), batch["x"].dtype))
        taken = True
        with torch.no_grad():
            try:
                found = call(layout.tensor(rows_of))
            except Exception:
                taken = False
                try:
                    found = call(tried["x"])
                except Exception as error:
                    own = ", ".join(map(str, ("rows", *batch["x"].shape[1:])))
                    raise UserError(
                        f"{what} does not take x of shape ({own}) and type {batch['x'].dtype}: "
                        f"{error_line(error)}"
                    ) from error
        if not isinstance(found, torch.Tensor):
            raise UserError(f"{what} returned {type(found).__name__}: it must return one tensor")
        axis = found.ndim - 1 if rows_last else 0
        if found.ndim == 0 or found.shape[axis] != 2:
            raise UserError(
                f"{what} returned shape {tuple(found.shape)} for 2 rows: it must return one "
                "result per row"
            )
        if taken:
            with torch.no_grad():
                check_rows(what, layout.with_arrays(call), rows_of, axis)
        sizes = [rows if i == axis else n for i, n in enumerate(found.shape)]
        return jax.ShapeDtypeStruct(tuple(sizes), w.dtype)

    @jax.custom_vjp
    def run(w: Array, batch: Batch) -> Array:
        return called_back(values, shape(w, batch), w, batch)

    def forward(w: Array, batch: Batch) -> tuple[Array, tuple[Array, Batch]]:
        return run(w, batch), (w, batch)

    def backward(saved: tuple[Array, Batch], cotangent: Array) -> tuple[Array, None]:
        w, batch = saved
        return called_back(
            pulled, jax.ShapeDtypeStruct(w.shape, w.dtype), w, batch, cotangent
        ), None

    run.defvjp(forward, backward)
    return run


def _with_x(function: Function, params: Tensors, batch: Tensors, x: torch.Tensor) -> torch.Tensor:
    """The result of the function for other rows x."""
    return function(params, {**batch, "x": x})


def _of_params(
    function: Function, data: Tensors, dtype: torch.dtype
) -> Callable[[Tensors], torch.Tensor]:
    return lambda params: function(params, data).to(dtype)
