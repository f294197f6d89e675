"""Traced programs, computed again step by step, so that single steps can be done otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

__all__ = ["Step", "bind", "bytes_of", "called", "shape_of", "walk"]

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
    """The bytes of all values that a program computes, as if none were forgotten."""
    return sum(
        sum(out.size * out.dtype.itemsize for out in map(shape_of, equation.outvars))
        + sum(bytes_of(inner) for inner in _inside(equation))
        for equation in program.eqns
    )


def _inside(equation: JaxprEqn) -> list[ClosedJaxpr]:
    found = jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr)
    )
    return [leaf for leaf in found if isinstance(leaf, ClosedJaxpr)]
