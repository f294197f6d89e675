"""PyTorch modules: the same values, gradients and runs as their JAX twins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedssca import (
    Fused,
    Local,
    Problem,
    Rows,
    UserError,
    classifier,
    from_scores,
    loss_at_most,
    mae_at_most,
    mlp,
    power,
    regression,
    simulate,
    ssca,
)
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.methods.curvature import diagonal
from fedssca.methods.multipliers import steered
from fedssca.methods.surrogate import gradients
from fedssca.problem.constraints import Constraint
from fedssca.system import pip_install

MISSING = """
import sys
sys.modules["torch"] = None
import fedssca
try:
    import fedssca.problem.torch
except fedssca.UserError as error:
    print(error)
"""


def test_without_torch_one_line_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert pip_install("torch") in done.stdout


try:
    import torch

    from fedssca.problem.torch import from_module, from_terms, load_into, replace_batch_norm
except (ImportError, UserError):
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

P, J, L = 7, 5, 3
ORDER = np.concatenate([L * J + np.arange(J * P), np.arange(L * J)])
"""Torch has the first layer first: w_torch = w_jax[ORDER]."""


def margin(scores: jax.Array, batch: Any) -> jax.Array:
    return jax.nn.relu(1 - scores[:, 0])


LIMITS = [*loss_at_most(0.9), Constraint("margin", {"margin": (2.0, margin)}, 3.0)]


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> Iterator[str]:
    with jax.enable_x64(request.param == "float64"):
        yield request.param


def network(dtype: str = "float32") -> Any:
    layers = torch.nn.Linear(P, J, bias=False), torch.nn.SiLU(), torch.nn.Linear(J, L, bias=False)
    return torch.nn.Sequential(*layers).to(getattr(torch, dtype))


def twins(dtype: str, limits: Any = LIMITS, **settings: Any) -> tuple[Problem, Problem]:
    ours = classifier(mlp(P, J, L, dtype=dtype), limits, **settings)
    module = load_into(network(dtype), np.asarray(ours.start)[ORDER])
    return ours, from_module(module, limits, **settings)


def clients(columns: dict[str, np.ndarray], dtype: str) -> Rows:
    return Rows({**columns, "x": columns["x"].astype(dtype)}, (25, 35))


def distance(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(a)).max())


@pytest.mark.long
@needs_torch
def test_values_and_gradients_are_the_twins(columns: dict[str, np.ndarray], dtype: str) -> None:
    jax_, torch_ = twins(dtype, l2=0.01)
    close = 1e-5 if dtype == "float32" else 1e-10
    rows = clients(columns, dtype)
    batch = {name: jnp.asarray(v) for name, v in rows.columns.items()}
    batch["weight"] = jnp.full(60, 1 / 60, dtype)
    assert torch_.start.dtype == dtype
    np.testing.assert_array_equal(torch_.start, jax_.start[ORDER])
    values = [jax.jit(p.terms)(p.start, batch) for p in (jax_, torch_)]
    assert values[1].dtype == dtype
    assert distance(*values) < close
    ours, theirs = (
        jax.jit(lambda w, p=p: gradients(p, p.terms, w, batch))(p.start) for p in (jax_, torch_)
    )
    assert distance(ours.vectors["gradient"][:, ORDER], theirs.vectors["gradient"]) < close
    ours, theirs = (evaluator_over(p, rows, None) for p in (jax_, torch_))
    slopes = ours.gradients(jax_.start)[:, ORDER], theirs.gradients(torch_.start)
    assert distance(*slopes) < close
    for name, value in ours.row(jax_.start).items():
        assert distance(value, theirs.row(torch_.start)[name]) < close


@pytest.mark.long
@needs_torch
def test_twenty_rounds_are_the_twins(columns: dict[str, np.ndarray], dtype: str) -> None:
    ends = []
    jax_, torch_ = twins(dtype, l2=0.01)
    for problem, runtime in [(jax_, Fused), (torch_, Fused), (torch_, Local)]:
        algorithm = ssca(
            problem,
            batch=8,
            rho=power(0.9, 0.3),
            gamma=power(0.5, 0.6),
            tau=0.2,
            dual=steered(problem, 20),
        )
        engine = runtime(problem, clients(columns, dtype), algorithm, 3)
        ends.append(engine.advance(algorithm.init(problem.start), 20).w)
    close = 1e-5 if dtype == "float32" else 1e-10
    assert distance(ends[0][ORDER], ends[1]) < close
    assert distance(ends[0][ORDER], ends[2]) < close
    assert distance(ends[0], jax_.start) > 0.1


@needs_torch
def test_vmap_over_samples_and_cotangents_at_once(columns: dict[str, np.ndarray]) -> None:
    """The diagonal surrogate asks for the Jacobian of single rows inside a vmap over rows."""
    rows = clients(columns, "float32")
    batch = {name: jnp.asarray(v[:6]) for name, v in rows.columns.items()}
    batch["weight"] = jnp.full(6, 1 / 6)
    jax_, torch_ = twins("float32")

    def fisher(problem: Problem) -> jax.Array:
        message = diagonal(problem, 0.1, chunk=4).message
        found = jax.jit(lambda w: message(problem.terms, w, batch))(problem.start)
        return found.vectors["fisher"]

    assert distance(fisher(jax_)[:, ORDER], fisher(torch_)) < 1e-5
    slope = jax.jit(jax.grad(lambda w: torch_.terms(w, batch).sum()))
    points = [torch_.start, 2 * torch_.start]
    both = jax.jit(jax.vmap(slope))(jnp.stack(points))
    np.testing.assert_allclose(both, [slope(w) for w in points], rtol=1e-5, atol=1e-6)


@needs_torch
def test_a_loss_in_torch(columns: dict[str, np.ndarray]) -> None:
    """Cross-entropy by torch, as objective and as constraint, is the ready-made problem."""

    def loss(scores: Any, batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(scores, batch["y"], reduction="none")

    ours = classifier(mlp(P, J, L), loss_at_most(0.9), l2=0.1)
    module = load_into(network(), np.asarray(ours.start)[ORDER])
    problem = from_terms(module, loss, limits=[0.9], combine=np.ones((2, 1)), known=0.1)
    rows = clients(columns, "float32")
    seen = [evaluator_over(p, rows, None).row(p.start) for p in (ours, problem)]
    assert distance(seen[0]["objective"], seen[1]["objective"]) < 1e-5
    assert distance(seen[0]["constraints"], seen[1]["constraints"]) < 1e-5
    assert problem.unravel(problem.start)["0.weight"].shape == (J, P)
    averaged = from_terms(module, lambda s, b: torch.nn.functional.cross_entropy(s, b["y"]))
    with pytest.raises(UserError, match="one result per row"):
        evaluator_over(averaged, rows, None).row(averaged.start)
    two = from_terms(module, loss, limits=[0.9])
    with pytest.raises(UserError, match=r'reduction="none"'):
        evaluator_over(two, rows, None).row(two.start)


@needs_torch
def test_bytes_frozen_parts_and_the_way_back(columns: dict[str, np.ndarray]) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(P, J), torch.nn.GroupNorm(1, J), network()[2])
    module[0].bias.requires_grad_(False)
    before = [p.detach().clone() for p in module.parameters()]
    problem = from_module(module, scale=1 / 255)
    assert problem.dimension == J * P + 2 * J + L * J
    pixels = np.random.default_rng(0).integers(0, 256, (60, P)).astype(np.uint8)
    rows = Rows({**columns, "x": pixels}, (25, 35))
    algorithm = ssca(problem, batch=8, rho=power(0.9, 0.3), gamma=power(0.5, 0.6), tau=0.2)
    result = simulate(problem, rows, algorithm, 5)
    for old, new in zip(before, module.parameters(), strict=True):
        np.testing.assert_array_equal(old, new.detach())  # training leaves the module alone
    assert load_into(module, result.w) is module
    np.testing.assert_array_equal(module[0].weight.detach(), result.params["0.weight"])
    np.testing.assert_array_equal(module[0].bias.detach(), before[1])
    with torch.no_grad():
        picked = module(torch.tensor(pixels, dtype=torch.float32) / 255).argmax(1).numpy()
    assert abs((picked == columns["y"]).mean() - result.final["train_accuracy"]) < 1e-6
    with pytest.raises(UserError, match="trainable parameters"):
        load_into(module, result.w[:-1])


@needs_torch
def test_what_is_refused(columns: dict[str, np.ndarray]) -> None:
    nn = torch.nn
    with pytest.raises(UserError, match=r"BatchNorm1d \(1\).*GroupNorm"):
        from_module(nn.Sequential(nn.Linear(P, L), nn.BatchNorm1d(L)))
    with pytest.raises(UserError, match=r"Dropout \(1\) is random"):
        from_module(nn.Sequential(nn.Linear(P, L), nn.Dropout()))
    frozen = nn.Sequential(nn.Linear(P, L), nn.BatchNorm1d(L), nn.Dropout()).eval()
    assert from_module(frozen).dimension == P * L + 3 * L
    with pytest.raises(UserError, match="jax_enable_x64"):
        from_module(network("float64"))
    with pytest.raises(UserError, match=r"torch\.float16"):
        from_module(network("float16"))
    with pytest.raises(UserError, match="are none"):
        from_module(nn.ReLU())
    wide = from_module(nn.Linear(P + 1, L))
    with pytest.raises(UserError, match=r"does not take x of shape \(rows, 7\)"):
        evaluator_over(wide, clients(columns, "float32"), None).row(wide.start)


@needs_torch
def test_rows_must_be_computed_by_themselves(columns: dict[str, np.ndarray]) -> None:
    nn, x = torch.nn, {"x": columns["x"][:5], "y": columns["y"][:5]}

    class Own(nn.Module):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.linear, self.function = nn.Linear(P, L), function

        def forward(self, rows: Any) -> Any:
            return self.function(self.linear, rows)

    for function, said in (
        (lambda own, rows: own(nn.functional.dropout(rows)), "called again on the same rows"),
        (lambda own, rows: own(rows - rows.mean(0)), "if another row of the batch changes"),
        (lambda own, rows: (own(rows), 1), "returned tuple: it must return one tensor"),
        (lambda own, rows: {}["a"], "KeyError: 'a'"),
    ):
        problem = from_module(Own(function))
        with pytest.raises(UserError, match=said):
            jax.eval_shape(problem.terms, problem.start, x)
    alone = nn.Sequential(nn.Unflatten(1, (1, P)), nn.InstanceNorm1d(1), nn.Flatten())
    fine = from_module(nn.Sequential(alone, nn.Linear(P, L)))
    assert jax.eval_shape(fine.terms, fine.start, x).shape == (1, 5)
    with pytest.raises(UserError, match=r"LazyLinear \(0\) has no shape yet"):
        from_module(nn.Sequential(nn.LazyLinear(L)))
    with pytest.raises(UserError, match=r"is no torch\.nn\.Module"):
        from_module(len)  # type: ignore[arg-type]


@needs_torch
def test_a_batch_norm_that_is_used_twice_is_replaced_twice() -> None:
    norm = torch.nn.BatchNorm1d(L)
    with pytest.warns(UserWarning, match="in 1, 2: its scores change"):
        made = replace_batch_norm(torch.nn.Sequential(torch.nn.Linear(P, L), norm, norm))
    assert made[1] is made[2]
    assert from_module(made).dimension == P * L + 3 * L


@needs_torch
def test_numbers_are_predicted_as_by_the_twin(columns: dict[str, np.ndarray]) -> None:
    task = regression("huber")
    module = torch.nn.Linear(P, 1)
    weights = {name: value.detach().numpy() for name, value in module.named_parameters()}
    start = ravel_pytree(weights)[0]  # in the order of names: bias, weight
    ours = from_module(module, mae_at_most(0.5), task=task)
    theirs = from_scores(
        lambda p, x: x @ p["weight"].T + p["bias"], weights, mae_at_most(0.5), task=task
    )
    rows = {"x": columns["x"][:9], "y": columns["x"][:9, 0]}
    want = theirs.terms(start, rows)
    np.testing.assert_allclose(ours.terms(ours.start, rows), want, atol=1e-6)
    assert "rmse" in ours.measure(ours.start, rows)


@needs_torch
def test_devices() -> None:
    batch = {"x": np.ones((2, P), np.float32), "y": np.zeros(2, np.int32)}
    one = from_module(network(), device="cpu")
    assert one.terms(one.start, batch).shape == (1, 2)
    with pytest.raises(UserError, match=r"device = 'meta' cannot be used here \(.*such as \"cpu\""):
        from_module(network(), device="meta")
    apart = torch.nn.Sequential(network()[0], torch.nn.Linear(J, L, device="meta"))
    with pytest.raises(UserError, match=r"on several devices \(cpu, meta\): move it to one"):
        from_module(apart)


def test_modules_that_take_only_some_numbers() -> None:
    """A module is tried on numbers that are codes rounded down, and have logarithms."""

    class Codes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(3, 2)

        def forward(self, x: Any) -> Any:
            if (x < 0).any():
                raise ValueError("no negative numbers")
            return self.table(x[:, 0].long()) + torch.log(x[:, 1:] + 1).sum(1, keepdim=True)

    problem = from_module(Codes())
    assert problem.scores is not None
    x = np.array([[2.0, 1.0], [0.0, 4.0]], np.float32)
    assert problem.scores(problem.start, {"x": x}).shape == (2, 2)
