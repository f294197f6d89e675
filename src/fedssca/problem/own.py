"""Models and limits of users by name, "package.module:function".

The function is imported from an installed package. Whatever goes wrong inside it is one line for
the user that names the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError, nearest
from fedssca.problem.forms import AnyModel, JoinedModel, Model
from fedssca.problem.problem import Array
from fedssca.problem.scores import trained_part

__all__ = ["call_own", "own_model"]


def own_model(
    name: str,
    features: int,
    outputs: int,
    options: Mapping[str, Any],
    scale: float = 1.0,
    dtype: str = "float32",
) -> AnyModel:
    """The model that a function makes: make(features, outputs, seed, **options).

    It returns (apply, params) with apply(params, x) -> scores (rows, outputs), where x is scaled
    and params is any pytree, or a `Model` or `JoinedModel`. The floating-point arrays of params are
    trained.
    """
    key = "model.name"

    def made(seed: int) -> Any:
        return call_own(key, name, features, outputs, seed, **options)

    found = made(0)
    if not isinstance(found, Model | JoinedModel):
        found = _applied(name, found, made, features, scale, dtype)
    _check_scores(name, found, features, outputs)
    return found


def _applied(
    name: str, found: Any, made: Callable[[int], Any], features: int, scale: float, dtype: str
) -> JoinedModel:
    """A function of all columns as a model with one bottom, whose outputs are the scores."""
    if not isinstance(found, tuple) or len(found) != 2 or not callable(found[0]):
        raise UserError(
            f"model.name = {name!r} returned {type(found).__name__}: it must return "
            "(apply, params), or a fedssca Model or JoinedModel"
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
        raise _failed("model.name", name, error) from error
    if shape != (2, outputs):
        raise UserError(
            f"model.name = {name!r} gives shape {shape} for 2 rows: scores of shape "
            f"(2, {outputs}) are needed, one for each class"
        )


def call_own(key: str, name: str, *given: Any, **options: Any) -> Any:
    """What the function of this name returns; `key` is where the name stands in the config."""
    function = _imported(key, name)
    try:
        return function(*given, **options)
    except UserError:
        raise
    except Exception as error:
        raise _failed(key, name, error) from error


def _imported(key: str, name: str) -> Callable[..., Any]:
    """The function "package.module:function"; a UserError if there is none."""
    module, _, attribute = name.partition(":")
    try:
        home = import_module(module)
    except Exception as error:
        raise UserError(
            f"{key} = {name!r}: {module} cannot be imported ({_line(error)}); install its package, "
            "or put its folder on PYTHONPATH"
        ) from error
    function = getattr(home, attribute, None)
    if not callable(function):
        public = [each for each, value in vars(home).items() if callable(value) and each[0] != "_"]
        known = nearest(attribute, public)
        raise UserError(f"{key} = {name!r}: {module} has no function {attribute!r}; {known}")
    made: Callable[..., Any] = function
    return made


def _failed(key: str, name: str, error: Exception) -> UserError:
    return UserError(f"{key} = {name!r} failed: {_line(error)}")


def _line(error: Exception) -> str:
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
