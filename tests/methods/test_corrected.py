"""The default method: exact on small problems, the same in every runtime and unit, never NaN."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.methods.corrected import corrected_ssca
from fedssca.methods.dual_ascent import ascend
from fedssca.methods.schedule import Schedule


def halfspaces(
    objective: float = 1.0, constraint: float = 1.0, length: float = 1.0
) -> tuple[Any, Any]:
    """min |w - c|^2 s.t. w_1 + noise <= 1, w_2 + noise <= 5: the solution (1, 2), prices (2, 0)."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.3, (200, 2)).astype(np.float32)
    noise -= noise.mean(0)

    def terms(w: Any, batch: Any) -> Any:
        z, v = batch["x"], w / length
        far = objective * jnp.square(v - jnp.array([2.0, 2.0])).sum()
        return jnp.stack([far + 0 * z[:, 0], constraint * (v[0] + z[:, 0]), v[1] + z[:, 1]])

    problem = fedssca.custom_problem(
        terms, length * jnp.array([0.5, -1.0]), limits=[constraint * 1.0, 5.0]
    )
    columns = {"x": noise, "y": np.zeros(200, np.int32)}
    return problem, fedssca.by_sample(columns, 4, "iid", seed=0)


def trained(*settings: float) -> Any:
    problem, clients = halfspaces(*settings)
    algorithm = fedssca.auto(problem, clients, batch=10, rounds=200)
    return fedssca.simulate(problem, clients, algorithm, 200)


def test_solution_price_and_certificate() -> None:
    result = trained()
    assert result.feasible
    np.testing.assert_allclose(result.w, [1, 2], atol=5e-3)
    active, idle = result.certificate["constraints"]
    assert active["multiplier"] == pytest.approx(2, rel=0.02)
    assert idle["multiplier"] == 0
    assert result.certificate["converged"] is True
    assert result.kkt_residual < 0.01


@pytest.mark.parametrize("units", [(1000.0, 1.0, 1.0), (1.0, 1000.0, 1.0), (1.0, 1.0, 1000.0)])
def test_units_do_not_matter(units: tuple[float, float, float]) -> None:
    plain, scaled = trained(), trained(*units)
    np.testing.assert_allclose(scaled.last / units[2], plain.last, rtol=0.02)
    assert scaled.kkt_residual < 0.01


def test_messages_and_one_program_agree() -> None:
    problem, clients = halfspaces()
    algorithm = fedssca.auto(problem, clients, batch=10, rounds=30)
    one = fedssca.Fused(problem, clients, algorithm, 0).advance(algorithm.init(problem.start), 29)
    two = fedssca.Local(problem, clients, algorithm, 0).advance(algorithm.init(problem.start), 29)
    np.testing.assert_allclose(one.w, two.w, rtol=1e-4)


def test_parties_with_columns() -> None:
    data = fedssca.load("breast-cancer")
    clients = fedssca.by_feature(data.train, 3, "contiguous", seed=0)
    model = fedssca.linear(data.train["x"].shape[1], 2)
    problem = fedssca.classifier(
        model, fedssca.loss_at_most(0.2), objective="norm", features=clients.blocks
    )
    algorithm = fedssca.auto(problem, clients, batch=50, rounds=100)
    start = algorithm.init(problem.start)
    one = fedssca.Fused(problem, clients, algorithm, 0).advance(start, 5)
    two = fedssca.Local(problem, clients, algorithm, 0).advance(start, 5)
    np.testing.assert_allclose(one.w, two.w, rtol=1e-3, atol=1e-6)
    assert fedssca.simulate(problem, clients, algorithm, 100).feasible


def steps() -> dict[str, Any]:
    return {"rho": Schedule(0.15), "gamma": Schedule(0.1, cool=0.8, horizon=100), "rounds": 100}


def test_a_message_that_is_not_finite_is_not_used() -> None:
    def terms(w: Any, batch: Any) -> Any:
        bad = jnp.where(jnp.abs(w).max() > 3, jnp.nan, 1.0)
        return (jnp.square(w[0] - 2.9) * bad + 0 * batch["x"][:, 0])[None]

    problem = fedssca.custom_problem(terms, jnp.array([1.0]))
    columns = {"x": np.zeros((20, 1), np.float32), "y": np.zeros(20, np.int32)}
    algorithm = corrected_ssca(problem, batch=5, tau=0.02, balance=(), **steps())
    result = fedssca.simulate(problem, fedssca.by_sample(columns, 2, "iid", seed=0), algorithm, 100)
    assert np.isfinite(result.w).all()
    assert abs(float(result.w[0]) - 2.9) < 0.2
    if int(result.state.memory.returns):
        assert "diverged" in result.notes[0]


def test_dual_matches_a_grid() -> None:
    gram = np.array([[1.0, -0.5], [-0.5, 2.0]])
    bends, f = np.array([0.3, 0.7]), np.array([0.4])
    v = ascend(*map(jnp.asarray, (f, gram, bends, np.array([50.0]), np.zeros(1))))
    grid = np.linspace(0, 50, 500_001)
    u = np.stack([np.ones_like(grid), grid])
    value = grid * f[0] - np.einsum("im,ij,jm->m", u, gram, u) / (4 * bends @ u)
    assert float(v[0]) == pytest.approx(grid[value.argmax()], rel=1e-3)
