"""Models of users by name, "package.module:function"."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError
from fedssca.problem.forms import AnyModel, JoinedModel, Model
from fedssca.problem.functions import (
    call_own,
    check_rows,
    failed,
    own_function,
    some_rows,
)
from fedssca.problem.problem import Array
from fedssca.problem.scores import trained_part, weights_by_path

__all__ = ["own_model", "own_parts", "own_state"]


def own_model(
    name: str,
    features: int,
    outputs: int,
    options: Mapping[str, Any],
    scale: float = 1.0,
    dtype: str = "float32",
    parties: Sequence[Sequence[int]] = (),
) -> AnyModel:
    """The model that a function makes: make(features, outputs, seed, **options).

    A class of torch modules is called with its own arguments only: Net(**options).
    It returns (apply, params) with apply(params, x) -> scores (rows, outputs), where x is scaled
    and params is any pytree, whose floating-point arrays are trained; or a `Model` or
    `JoinedModel`; or a torch module that gives scores; or, for `parties` with columns, a list with
    one torch module for each of them and the module of the head.
    """

    def made(seed: int) -> Any:
        return _make(name, features, outputs, seed, options)

    found = made(0)
    if is_torch(found):
        from fedssca.problem.torch_own import torch_model

        model: AnyModel = torch_model(name, made, features, scale, dtype, parties)
        _check_scores(name, model, features, outputs)  # torch's modules check their rows themselves
        return model
    if not isinstance(found, Model | JoinedModel):
        found = _applied(name, found, made, features, scale, dtype)
    _check_scores(name, found, features, outputs)
    _check_rows(name, found, features)
    return found


def own_parts(
    name: str, features: int, outputs: int, options: Mapping[str, Any]
) -> list[tuple[str, int]]:
    """The names of the parts of such a model and their sizes, in the order of the flat vector."""
    found = _make(name, features, outputs, 0, options)
    if isinstance(found, Model | JoinedModel):
        top, rest = found.init(0)
        bottoms = {"bottom": rest} if isinstance(found, Model) else _numbered_bottoms(rest)
        owned = {"head": top, **bottoms}
        return [(part, int(ravel_pytree(own)[0].size)) for part, own in owned.items()]
    if is_torch(found):
        from fedssca.problem.torch_own import torch_parts

        return torch_parts(found)
    return [(path, int(leaf.size)) for path, leaf in weights_by_path(found[1])]


def own_state(
    name: str, features: int, outputs: int, options: Mapping[str, Any], w: Any
) -> dict[str, Any]:
    """The arrays of a model by name, as `state_dict` of its torch module has them.

    A model that is no torch module is one array, the flat vector w, whose name is empty.
    """
    found = _make(name, features, outputs, 0, options)
    if not is_torch(found):
        return {"": w}
    from fedssca.problem.torch_own import torch_state

    return torch_state(lambda: _make(name, features, outputs, 0, options), w)


def _make(name: str, features: int, outputs: int, seed: int, options: Mapping[str, Any]) -> Any:
    """What the function `name` returns, or an instance of the class of torch modules `name`."""
    key = "model.name"
    made, torch = own_function(key, name), sys.modules.get("torch")
    if torch is not None and isinstance(made, type) and issubclass(made, torch.nn.Module):
        return call_own(key, name, **options)
    return call_own(key, name, features, outputs, seed, **options)


def is_torch(found: Any) -> bool:
    """Whether these are modules of torch: one, or a list of bottoms and a head."""
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        return bool(found[0]) and all(map(is_torch, (*found[0], found[1])))
    torch = sys.modules.get("torch")  # nothing else can have made a module
    return torch is not None and isinstance(found, torch.nn.Module)


def _numbered_bottoms(parts: Any) -> dict[str, Any]:
    return {f"bottom{number}": part for number, part in enumerate(parts, 1)}


def _applied(
    name: str, found: Any, made: Callable[[int], Any], features: int, scale: float, dtype: str
) -> JoinedModel:
    """A function of all columns as a model with one bottom, whose outputs are the scores."""
    if not isinstance(found, tuple) or len(found) != 2 or not callable(found[0]):
        raise UserError(
            f"model.name = {name!r} returned {type(found).__name__}: it must return "
            "(apply, params), a fedssca Model or JoinedModel, or a torch module"
        )
    apply, params = found
    _, whole = trained_part(params)

    def init(seed: int) -> tuple[Any, list[Array]]:
        return (), [trained_part(made(seed)[1])[0].astype(dtype)]

    def scores(w: Array, x: Array) -> Array:
        outputs: Array = apply(whole(w), x.astype(dtype) * scale)
        return outputs

    return JoinedModel(init, (scores,), lambda w0, hs: hs[0], (tuple(range(features)),))


def _check_scores(name: str, model: AnyModel, features: int, outputs: int) -> None:
    """Raise a UserError unless the model takes the features and gives the outputs."""
    params = model.init(0)
    if (width := model.width(params)) != features:
        raise UserError(f"model.name = {name!r} takes {width} features, the data have {features}")
    rows = jax.ShapeDtypeStruct((2, features), ravel_pytree(params)[0].dtype)
    try:
        shape = jax.eval_shape(lambda p, x: jnp.asarray(model.apply(p, x)), params, rows).shape
    except UserError:
        raise
    except Exception as error:
        raise failed("model.name", name, error) from error
    if shape != (2, outputs):
        raise UserError(
            f"model.name = {name!r} gives shape {shape} for 2 rows: scores of shape "
            f"(2, {outputs}) are needed, one for each class"
        )


def _check_rows(name: str, model: AnyModel, features: int) -> None:
    """Raise a UserError unless the scores of a row depend on this row only."""
    params, scores = model.init(0), cast(Any, model.apply)
    dtype = ravel_pytree(params)[0].dtype

    def call(x: np.ndarray) -> np.ndarray:
        return np.asarray(scores(params, jnp.asarray(x)))

    check_rows(f"model.name = {name!r}", call, some_rows(np.zeros((2, features), dtype)))
