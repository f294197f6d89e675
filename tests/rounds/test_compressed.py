"""Messages of few bits: what is lost, what is carried over, and what does not change."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.sampling import uniforms
from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.evaluate.traffic import traffic_in
from fedssca.methods.algorithm import Message
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.participation import participation
from fedssca.methods.schedule import power
from fedssca.problem.models import classifier, mlp
from fedssca.rounds.compressed import compressed
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.rounds.rounding import (
    EXACT,
    as_integers,
    exponent,
    from_integers,
    integer_form,
    moved,
    on_grid,
    packed_way,
)
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
STEPS: dict[str, Any] = {"rho": power(0.9, 0.55), "gamma": power(0.5, 0.6), "tau": 0.3}
SIZES, SEED, ROUNDS = (12, 31, 17), 3, 9


@pytest.mark.parametrize("bits", [4, 8])
def test_a_way_is_rebuilt_to_the_last_bit(bits: int) -> None:
    rng = np.random.default_rng(bits)
    w, way = (jnp.asarray(rng.normal(size=101), jnp.float32) for _ in range(2))
    e = exponent(jnp.abs(way).max(), bits)
    near = on_grid(way, e, bits, 0.5)
    assert float(jnp.abs(near - way).max()) <= 2.0 ** float(e) / 2
    sent = packed_way(near, e, bits)
    assert sent.steps.nbytes == (101 if bits == 8 else 51)
    np.testing.assert_array_equal(moved(w, jax.device_get(sent)), w + near)


def test_rounding_at_random_is_right_on_average() -> None:
    values, e = jnp.asarray([0.3, -1.7, 2.0, 0.0]), jnp.asarray(0)
    draws = jax.vmap(lambda t: uniforms(7, t, jnp.asarray(2), 0, 4))(jnp.arange(1, 4001))
    found = np.asarray(jax.vmap(lambda u: on_grid(values, e, 8, u))(draws))
    assert set(np.unique(found[:, 1])) == {-2.0, -1.0}
    np.testing.assert_allclose(found.mean(0), values, atol=0.03)
    np.testing.assert_array_equal(found[:, 2:], np.broadcast_to([2.0, 0.0], (4000, 2)))
    again = uniforms(7, 5, jnp.asarray(2), 0, 4)
    np.testing.assert_array_equal(again, draws[4])
    assert not np.array_equal(uniforms(7, 5, jnp.asarray(3), 0, 4), again)


def test_integers_and_back() -> None:
    e = {"g": np.array([-3, 2], np.int32)}
    vectors = {"g": np.ldexp(np.array([[5.0, -127.0], [0.0, 127.0]]), e["g"][:, None])}
    message = Message((1.5,), vectors)
    sent = as_integers(message, e, 8)
    assert sent.vectors["g"].dtype == np.int8
    like = jax.tree.map(np.asarray, message)
    assert integer_form(like, e, 16).vectors["g"].dtype == np.int16
    three = sent._replace(vectors={"g": 3 * sent.vectors["g"].astype(np.int32)})
    back = from_integers(three, e, like)
    np.testing.assert_array_equal(back.vectors["g"], 3 * vectors["g"])
    none = {"g": np.full(2, EXACT, np.int32)}
    assert as_integers(message, none, 8) is message


def problem() -> Any:
    return classifier(mlp(7, 5, 3, dtype="float64"), l2=0.02)


@pytest.mark.usefixtures("float64")
def test_what_rounding_leaves_out_is_sent_later(columns: dict[str, np.ndarray]) -> None:
    """w plus the rest is the point without rounding of broadcasts, as long as replies agree."""
    p, rows = problem(), Rows(columns, SIZES)
    plain = local_ssca(p, batch=4, steps=3, rounds=ROUNDS + 1, **STEPS)
    few = compressed(plain, p, rows, bits=8)
    one = Fused(p, rows, few, SEED).advance(few.init(p.start), 1)
    whole = Fused(p, rows, plain, SEED).advance(plain.init(p.start), 1)
    np.testing.assert_allclose(one.w + one.memory.rest, whole.w, rtol=1e-12)
    assert float(jnp.abs(one.memory.rest).max()) > 0


@pytest.mark.usefixtures("float64")
def test_cohorts_and_stops(columns: dict[str, np.ndarray]) -> None:
    p, rows = problem(), Rows(columns, SIZES)
    few = compressed(
        local_ssca(p, batch=4, steps=3, rounds=ROUNDS + 1, **STEPS), p, rows, bits=8, seed=SEED
    )
    algorithm = participation(few, clients=3, cohort=2, seed=SEED, dropout=0.3)
    local, start = Local(p, rows, algorithm, SEED), algorithm.init(p.start)
    fused = Fused(p, rows, algorithm, SEED).advance(start, ROUNDS)
    halfway = local.advance(start, 4)
    sent = local.advance(halfway, ROUNDS)
    np.testing.assert_allclose(sent.w, fused.w, rtol=1e-9, atol=1e-12)
    assert local.bytes_down == traffic_in(p, rows, algorithm)(ROUNDS).down
    other = Local(p, rows, algorithm, SEED).advance(halfway, ROUNDS)  # resumed elsewhere
    np.testing.assert_allclose(other.w, fused.w, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_limits_are_kept_in_8_bits() -> None:
    text = """
    [data]
    name = "digits"
    [model]
    hidden = 32
    [problem]
    objective = "norm"
    constraint = [{kind = "loss", limit = 0.25}]
    [algorithm]
    batch = 10
    local_steps = 5
    rounds = 150
    [run]
    evaluate_every = 10
    """
    exact, few = (train(build(parse(text, [f"algorithm.bits={bits}"]))) for bits in (32, 8))
    assert few.feasible
    assert few.final["norm_sq"] < 1.05 * exact.final["norm_sq"]
    sent = [sum(run.rows[-1][f"bytes_{way}"] for way in ("up", "down")) for run in (exact, few)]
    assert sent[1] < 0.25 * sent[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.split=feature"], "parties that hold columns send 32 bits"),
        (["privacy.clip=1.0", "privacy.noise_multiplier=1.0"], "clipped or noised have 32 bits"),
        (["privacy.homomorphic=true"], "encrypted numbers have a size of their own"),
        (["model.hidden=[4, 3]", "model.personal=head"], "leave bits out, or model.personal"),
        (["algorithm.bits=12"], r"algorithm.bits = 12: it must be 32, 16 or 8"),
    ],
)
def test_what_few_bits_cannot_do(settings: list[str], message: str) -> None:
    text = "[data]\nname = 'digits'\n[algorithm]\nbits = 8\nrho = 0.5\ngamma = 0.5\ntau = 1.0\n"
    with pytest.raises(UserError, match=message):
        build(parse(text, settings))
