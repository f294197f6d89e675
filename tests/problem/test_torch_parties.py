"""PyTorch modules of parties: values and gradients are those of the same network in JAX."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest

from fedssca import (
    UserError,
    by_feature,
    classifier,
    loss_at_most,
    mlp,
    party_mlp,
    power,
    simulate,
    ssca,
)

torch = pytest.importorskip("torch")
from fedssca import from_module, from_modules, load_into  # noqa: E402
from fedssca.problem.torch_parties import one_module  # noqa: E402

pytestmark = pytest.mark.usefixtures("float64")

rng = np.random.default_rng(4)
ROWS = {"x": rng.normal(size=(60, 5)), "y": rng.integers(0, 2, 60).astype(np.int32)}
PARTIES = by_feature(ROWS, clients=2)


def layers(*widths: int, first: bool = False) -> Any:
    """Dense layers without biases, with SiLU between them, and before them if `first`."""
    made: list[Any] = []
    for inputs, outputs in pairwise(widths):
        made += [torch.nn.SiLU()] if made or first else []
        made.append(torch.nn.Linear(inputs, outputs, bias=False))
    return torch.nn.Sequential(*made).double()


@pytest.mark.parametrize("join", ["sum", "concatenate"])
def test_torch_and_jax_twins(join: str) -> None:
    """Terms and gradients agree to 1e-10; with the sum, so do a few rounds with a limit."""
    limit, widths = loss_at_most(0.8), [len(own) for own in PARTIES.blocks]
    model = party_mlp(
        PARTIES.blocks,
        [4, 3],
        [6],
        2,
        join=join,
        biases=False,
        dtype="float64",  # type: ignore[arg-type]
    )
    twin = classifier(model, limit, l2=0.1, features=PARTIES.blocks, seed=1)
    assert twin.vertical is not None
    starts = [twin.start[block] for block in twin.vertical.blocks]
    head = load_into(layers(3 if join == "sum" else 6, 6, 2, first=True), starts[0])
    bottoms = [load_into(layers(n, 4, 3), w) for n, w in zip(widths, starts[1:], strict=True)]
    made = from_modules(bottoms, head, PARTIES.blocks, limit, l2=0.1, join=join)  # type: ignore[arg-type]
    np.testing.assert_array_equal(made.start, twin.start)
    batch = {name: column[:7] for name, column in ROWS.items()}
    np.testing.assert_allclose(
        made.terms(made.start, batch), twin.terms(twin.start, batch), atol=1e-10
    )
    ours, theirs = (jax.jacrev(p.terms)(p.start, batch) for p in (made, twin))
    np.testing.assert_allclose(ours, theirs, atol=1e-10)
    results = []
    for problem in (made, twin) if join == "sum" else ():
        steps = ssca(problem, batch=20, rho=power(0.9, 0.3), gamma=power(0.9, 0.6), tau=0.2)
        results.append(simulate(problem, PARTIES, steps, rounds=3, seed=2).w)
    if results:
        np.testing.assert_allclose(*results, atol=1e-8)


def test_refused() -> None:
    def said(*modules: Any, **settings: Any) -> str:
        with pytest.raises(UserError) as caught:
            from_modules(*modules, PARTIES.blocks, **settings)
        return str(caught.value)

    widths = [len(own) for own in PARTIES.blocks]
    good = [layers(n, 3) for n in widths]
    assert "1 bottoms for 2 parties" in said(good[:1], layers(3, 2))
    assert "does not take h of shape (rows, 6)" in said(good, layers(5, 2))
    assert "outputs of the widths 3, 4" in said(
        [good[0], layers(widths[1], 4)], layers(3, 2), join="sum"
    )
    norm = torch.nn.Sequential(layers(widths[0], 3), torch.nn.BatchNorm1d(3).double())
    assert "GroupNorm there, or freeze it with module.eval()" in said([norm, good[1]], layers(6, 2))
    assert "bottom 0 does not take x of shape" in said([layers(9, 3), good[1]], layers(6, 2))
    assert "join = 'add' is unknown" in said(good, layers(6, 2), join="add")
    assert "different dtypes" in said(good, layers(6, 2).float())


def test_calibrated_steps_know_the_depth_of_modules() -> None:
    """The curvature of deep networks grows, whichever library they are made with."""
    deep, shallow = layers(4, 5, 5, 2), layers(4, 5, 2)
    expected = classifier(mlp(4, [5, 5], 2)).growth
    assert expected > 1
    for module, growth in ((deep, expected), (shallow, 1.0)):
        assert from_module(module).growth == growth
        assert classifier(one_module(module, 4)).growth == growth
    parties = [[0, 1], [2, 3]]
    bottoms = [layers(2, 3, 3), layers(2, 3)]
    assert from_modules(bottoms, layers(6, 2), parties).growth == expected
