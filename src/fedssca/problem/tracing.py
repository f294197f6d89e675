"""Traced programs, computed again step by step, so that single steps can be done otherwise."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

__all__ = ["Step", "as_key", "bind", "bytes_of", "called", "form", "shape_of", "walk"]

DERIVATIVES = frozenset(["jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd"])
"""Parameters of a step that say how it is differentiated."""
OUTSIDE = 1000
"""How many times the bytes of its result a function outside JAX is taken to compute."""
CALLS = frozenset(["jit", "pjit", "closed_call", "core_call"])
Step: TypeAlias = Callable[[JaxprEqn, list[Any]], list[Any]]
"""(a step of a program, its inputs) -> its outputs."""


def walk(
    program: ClosedJaxpr,
    inputs: Sequence[Any],
    step: Step,
    constant: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """The outputs of a program whose steps are computed by `step`.

    Values may be of any type that `step` understands; `constant` makes one from a constant.
    """
    own = program.jaxpr
    known: dict[Any, Any] = dict(zip(own.constvars, map(constant, program.consts), strict=True))
    known |= dict(zip(own.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return constant(atom.val) if isinstance(atom, Literal) else known[atom]

    for equation in own.eqns:
        made = step(equation, [read(atom) for atom in equation.invars])
        known |= dict(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in own.outvars]


def called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The program that a step calls, if it does nothing else."""
    return equation.params["jaxpr"] if equation.primitive.name in CALLS else None


def bind(equation: JaxprEqn, given: Sequence[Any]) -> list[Any]:
    """The outputs of a step as JAX computes them."""
    params = equation.primitive.get_bind_params(equation.params)
    made = equation.primitive.bind(*given, **params)
    return list(made) if equation.primitive.multiple_results else [made]


def shape_of(atom: Any) -> jax.ShapeDtypeStruct:
    """The shape and number format of an input or output of a step."""
    return jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype)


def bytes_of(program: ClosedJaxpr) -> int:
    """The bytes of all values that a program computes, as if none were forgotten.

    What functions outside JAX compute cannot be seen; a network computes far more than its scores.
    """

    def computed(equation: JaxprEqn) -> int:
        own = sum(out.size * out.dtype.itemsize for out in map(shape_of, equation.outvars))
        if equation.primitive.name == "pure_callback":
            own *= OUTSIDE
        return own + sum(bytes_of(inner) for inner in _inside(equation))

    return sum(map(computed, program.eqns))


def _inside(equation: JaxprEqn) -> list[ClosedJaxpr]:
    found = jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr)
    )
    return [leaf for leaf in found if isinstance(leaf, ClosedJaxpr)]


def form(program: Jaxpr) -> Hashable:
    """What a traced program computes: equal for programs that differ in names only.

    How steps are differentiated does not count: that has been done. A function that a step calls
    outside JAX is equal to itself only.
    """
    known: dict[Any, int] = {}

    def made(variables: Sequence[Any]) -> tuple[Hashable, ...]:
        return tuple((known.setdefault(each, len(known)), each.aval) for each in variables)

    def read(atom: Any) -> Hashable:
        if isinstance(atom, Literal):
            return atom.aval, np.asarray(atom.val).tobytes()
        return known[atom]

    def step(equation: JaxprEqn) -> Hashable:
        options = {k: v for k, v in equation.params.items() if k not in DERIVATIVES}
        inputs = tuple(map(read, equation.invars))
        return equation.primitive, as_key(options), inputs, made(equation.outvars)

    given = made([*program.constvars, *program.invars])
    return given, tuple(map(step, program.eqns)), tuple(map(read, program.outvars))


class _Itself:
    """A key of an object that has none."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._value is other._value


def as_key(value: Any) -> Hashable:
    """A constant or a parameter of a step as a key: equal for objects of equal content."""
    if isinstance(value, Jaxpr):
        return form(value)
    if isinstance(value, ClosedJaxpr):
        return form(value.jaxpr), tuple(map(_Itself, value.consts))
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return type(value), tuple(map(as_key, value))
    if isinstance(value, dict):
        return tuple((name, as_key(each)) for name, each in sorted(value.items()))
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return type(value), value
