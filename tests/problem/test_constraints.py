"""Constraints: values against sklearn and by hand, gradients of the proxy, reports, bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.methods.algorithm import Request
from fedssca.methods.multipliers import steered
from fedssca.methods.schedule import power
from fedssca.methods.ssca import ssca
from fedssca.methods.surrogate import gradients
from fedssca.problem import constraints as c
from fedssca.problem.models import classifier, linear, mlp
from fedssca.rounds.client import RowClient
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.run.build.calibrate import auto

pytestmark = pytest.mark.usefixtures("float64")

STEPS = {"rho": power(1.0, 0.55), "gamma": power(1.0, 0.9), "tau": 1.0}
SIZES = (20, 70, 110)
N, P = sum(SIZES), 6


def draw(classes: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, P))
    noisy = x[:, :classes] + 0.8 * rng.normal(size=(N, classes))
    sex = (rng.random(N) < 0.3 + 0.4 * (x[:, 0] > 0)).astype(np.int32)
    return {"x": x, "y": noisy.argmax(axis=1).astype(np.int32), "sex": sex}


def batch_of(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**columns, "client": np.repeat(np.arange(3), SIZES), "weight": np.full(N, 1 / N)}


def value(made: c.Constraint, scores: np.ndarray, columns: dict[str, np.ndarray]) -> float:
    """F_m: the weighted means of the terms less the limit."""
    batch = batch_of(columns)

    @jax.jit
    def total(outputs: jax.Array) -> jax.Array:
        return sum(weight * fn(outputs, batch).mean() for weight, fn in made.terms.values())

    return float(total(jnp.asarray(scores))) - made.limit


def reported(made: c.Constraint, scores: np.ndarray, columns: dict[str, np.ndarray]) -> float:
    assert made.rates is not None
    rates = made.rates(jnp.asarray(scores), batch_of(columns))
    return float(sum(a * top.sum() / bottom.sum() for a, top, bottom in rates))


def make(kind: str, limit: float, columns: dict[str, np.ndarray], **options) -> list[c.Constraint]:
    rows = rows_of(columns, int(columns["y"].max()) + 1)
    return c.from_config(kind, limit, options, rows)


def rows_of(columns: dict[str, np.ndarray], classes: int = 2, **known) -> c.TrainingRows:
    return c.TrainingRows(columns, range(classes), **{"sizes": SIZES, **known})


# Values ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("positive", [0, 1])
def test_rates_are_those_of_sklearn(classes: int, positive: int) -> None:
    columns = draw(classes)
    scores = np.random.default_rng(1).normal(size=(N, classes)) + 2 * np.eye(classes)[columns["y"]]
    truth, guess = columns["y"] == positive, scores.argmax(axis=1) == positive
    tn, fp, fn, tp = confusion_matrix(truth, guess).ravel()

    def check(kind: str, limit: float, expected: float, rate: float) -> None:
        (made,) = make(kind, limit, columns, positive=positive)
        assert value(made, scores, columns) == pytest.approx(expected, abs=1e-12)
        assert reported(made, scores, columns) == pytest.approx(rate, abs=1e-12)
        assert made.name == (kind if (classes, positive) == (2, 1) else f"{kind}_{positive}")

    check("fnr", 0.1, fn / (fn + tp) - 0.1, fn / (fn + tp))
    check("fpr", 0.1, fp / (fp + tn) - 0.1, fp / (fp + tn))
    recall, precision = recall_score(truth, guess), precision_score(truth, guess)
    check("recall", 0.9, 0.9 - recall, recall)
    check("precision", 0.8, (0.8 * fp - 0.2 * tp) / (fn + tp), precision)


@pytest.mark.parametrize("precision", [0.3, 0.9])
def test_the_sign_of_the_precision_constraint(precision: float) -> None:
    columns = draw(2)
    scores = np.random.default_rng(2).normal(size=(N, 2)) + np.eye(2)[columns["y"]]
    (made,) = make("precision", precision, columns)
    true = precision_score(columns["y"], scores.argmax(axis=1))
    assert (value(made, scores, columns) <= 0) == (true >= precision)


@pytest.mark.parametrize("kind", ["parity", "opportunity"])
@pytest.mark.parametrize("low_high", [(0, 1), (-3, 7)])
def test_gaps_by_hand_from_both_sides(kind: str, low_high: tuple[int, int]) -> None:
    columns = draw(2)
    columns["sex"] = np.asarray(low_high)[columns["sex"]]
    scores = np.random.default_rng(3).normal(size=(N, 2))
    guess, own = scores.argmax(axis=1) == 1, columns["y"] == 1
    among = own if kind == "opportunity" else np.ones(N, bool)
    low, high = ((columns["sex"] == group) & among for group in low_high)
    gap = guess[high].mean() - guess[low].mean()
    upper, lower = make(kind, 0.02, columns, column="sex")
    assert value(upper, scores, columns) == pytest.approx(gap - 0.02)
    assert value(lower, scores, columns) == pytest.approx(-gap - 0.02)
    assert reported(upper, scores, columns) == pytest.approx(gap)
    assert lower.rates is None
    assert (upper.name, lower.name) == (f"{kind}_sex", f"{kind}_sex_lower")


def test_both_sides_share_one_term() -> None:
    columns = draw(2)
    both = make("parity", 0.02, columns, column="sex")
    p = classifier(linear(P, 2), both)
    np.testing.assert_array_equal(p.combine, [[1, 0], [0, 1], [0, -1]])
    assert p.valued.tolist() == [1]
    # other settings are other terms; the same ones are shared, recall being 1 - fnr
    rates = [("fnr", {}), ("recall", {}), ("fnr", {"positive": 0}), ("fnr", {"sharpness": 3.0})]
    made = [m for kind, options in rates for m in make(kind, 0.5, columns, **options)]
    assert classifier(linear(P, 2), made).combine.shape == (5, 1 + 3)
    clients = make("client_loss", 0.5, columns) + make("client_loss_gap", 0.5, columns)
    assert classifier(linear(P, 2), clients).combine.shape == (1 + 6, 1 + 3)


@pytest.mark.parametrize("kind", ["client_loss", "client_loss_gap"])
def test_client_losses_by_hand(kind: str) -> None:
    columns = draw(3)
    scores = np.random.default_rng(4).normal(size=(N, 3))
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(N), columns["y"]]
    less = losses.mean() if kind == "client_loss_gap" else 0.0
    made = make(kind, 0.3, columns)
    assert [m.name for m in made] == [f"{kind}_{i}" for i in range(3)]
    for m, own in zip(made, np.split(losses, np.cumsum(SIZES)[:-1]), strict=True):
        assert value(m, scores, columns) == pytest.approx(own.mean() - less - 0.3)
        assert reported(m, scores, columns) == pytest.approx(own.mean() - less)


def test_a_function_of_your_own() -> None:
    columns = draw(2)
    scores = np.random.default_rng(5).normal(size=(N, 2))
    (made,) = c.custom("young", lambda s, batch: s[:, 1] ** 2 * batch["sex"], 0.5)
    expected = np.mean(scores[:, 1] ** 2 * columns["sex"])
    assert value(made, scores, columns) == pytest.approx(expected - 0.5)
    assert reported(made, scores, columns) == pytest.approx(expected)
    loss = c.custom("loss", lambda s, batch: s[:, 0], 1.0)  # does not replace the objective
    assert classifier(linear(P, 2), loss).combine.shape == (2, 2)


# Gradients ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("classes", "sharpness"), [(2, 3.0), (4, 1.0)])
def test_the_slope_is_the_proxys(classes: int, sharpness: float) -> None:
    columns = draw(classes)
    scores = jnp.asarray(np.random.default_rng(6).normal(size=(N, classes)))
    y, g = columns["y"] == 1, columns["sex"] == 1

    def chance(s):
        odds = jnp.exp(s)
        return 1 / (1 + ((odds.sum(axis=1) - odds[:, 1]) / odds[:, 1]) ** sharpness)

    def error(right):  # log(1 + e^-z) = -log sigmoid(z)
        return jnp.mean(jnp.log(1 - jnp.log(right))) / np.log(1 + np.log(2))

    proxies = {
        "fnr": lambda s: error(chance(s)[y]),
        "fpr": lambda s: error(1 - chance(s)[~y]),
        "recall": lambda s: error(chance(s)[y]),
        "precision": lambda s: jnp.sum(chance(s) * np.where(y, -0.5, 0.5)) / y.sum(),
        "parity": lambda s: jnp.mean(chance(s)[g]) - jnp.mean(chance(s)[~g]),
        "opportunity": lambda s: jnp.mean(chance(s)[g & y]) - jnp.mean(chance(s)[~g & y]),
    }
    for kind, proxy in proxies.items():
        column = {"column": "sex"} if kind in ("parity", "opportunity") else {}
        made = make(kind, 0.5, columns, positive=1, sharpness=sharpness, **column)[0]
        ((_, fn),) = made.terms.values()
        slope = jax.jit(jax.grad(lambda s, fn=fn: jnp.mean(fn(s, batch_of(columns)))))(scores)
        np.testing.assert_allclose(slope, jax.jit(jax.grad(proxy))(scores), atol=1e-14)


def test_straight_through_is_exact() -> None:
    x = jnp.asarray(np.random.default_rng(7).normal(size=1000), jnp.float32)
    hard = (x > 0).astype(x.dtype)
    np.testing.assert_array_equal(c.straight_through(hard, jax.nn.sigmoid(x)), hard)


def test_extreme_scores_keep_finite_slopes() -> None:
    columns, scores = draw(2), jnp.asarray([[-1e4, 1e4]] * (N // 2) + [[1e4, -1e4]] * (N // 2))
    for kind in ("fnr", "fpr", "precision"):
        ((_, fn),) = make(kind, 0.5, columns)[0].terms.values()
        slope = jax.grad(lambda s, fn=fn: jnp.mean(fn(s, batch_of(columns))))(scores)
        assert np.isfinite(slope).all()


# With clients ------------------------------------------------------------------------------------


def many(columns: dict[str, np.ndarray]) -> list[c.Constraint]:
    """Ten constraints at once."""
    return [
        *make("loss", 0.6, columns),
        *make("fnr", 0.3, columns),
        *make("precision", 0.6, columns),
        *make("parity", 0.3, columns, column="sex"),
        *make("opportunity", 0.3, columns, column="sex"),
        *make("client_loss", 0.8, columns),
    ]


@pytest.mark.long
def test_messages_of_unequal_clients_add_up() -> None:
    """Whole-data batches: the sum over clients is the mean over all rows."""
    columns = draw(2)
    made = make("parity", 0.1, columns, column="sex") + make("client_loss", 0.3, columns)
    p = classifier(linear(P, 2, dtype="float64"), made)
    batch = {k: jnp.asarray(v) for k, v in batch_of(columns).items()}
    whole = jax.jit(lambda w: gradients(p, p.terms, w, batch))(p.start)
    rows, total = Rows(columns, SIZES), None
    for i, size in enumerate(SIZES):
        algorithm = ssca(p, batch=size, **STEPS)
        client = RowClient(i, p, algorithm, rows.client(i), N, seed=0)
        (sent,) = client.handle("reply", Request(jnp.int32(1), p.start)).values()
        total = sent if total is None else jax.tree.map(jnp.add, total, sent)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), total, whole)


def test_reports_on_train_and_test_by_hand() -> None:
    columns, test = draw(2), draw(2, seed=9)
    p = classifier(mlp(P, 4, 2, dtype="float64"), many(columns), seed=3)
    row = evaluator_over(p, Rows(columns, SIZES), test).row(p.start)
    w0, w1 = (np.asarray(leaf) for leaf in p.unravel(p.start))
    for prefix, data in (("train", columns), ("test", test)):
        z = data["x"] @ w1.T
        guess = (z / (1 + np.exp(-z)) @ w0.T).argmax(axis=1)
        y, g = data["y"], data["sex"] == 1
        gap = guess[g].mean() - guess[~g].mean()
        own = guess[g & (y == 1)].mean() - guess[~g & (y == 1)].mean()
        assert row[f"{prefix}_fnr"] == pytest.approx(1 - recall_score(y, guess))
        assert row[f"{prefix}_precision"] == pytest.approx(precision_score(y, guess))
        assert row[f"{prefix}_parity_sex"] == pytest.approx(gap)
        assert row[f"{prefix}_opportunity_sex"] == pytest.approx(own)
        assert f"{prefix}_parity_sex_lower" not in row
        if prefix == "train":  # F_m itself is the same rate
            assert row["constraints"][3:5] == pytest.approx([gap - 0.3, -gap - 0.3])
    assert "train_client_loss_2" in row
    assert row["constraints"][9] == pytest.approx(row["train_client_loss_2"] - 0.8)
    assert not any(name.startswith("test_client") for name in row)


@pytest.mark.long
def test_parties_with_columns_have_the_same_values() -> None:
    columns, own = draw(2), (np.array([0, 2, 5]), np.array([1, 3, 4]))
    made = make("fnr", 0.3, columns) + make("parity", 0.3, columns, column="sex")
    p, whole = (
        classifier(mlp(P, 4, 2, dtype="float64"), made, features=split, seed=3)
        for split in (own, None)
    )
    parties = Columns(columns, own, label_holder=1)
    assert evaluator_over(p, parties, None).row(p.start)["constraints"] == pytest.approx(
        evaluator_over(whole, Rows(columns, (N,)), None).row(p.start)["constraints"]
    )
    algorithm = ssca(p, batch=30, **STEPS, dual=steered(p, 10))
    ends = [
        runtime(p, parties, algorithm, 0).advance(algorithm.init(p.start), 2)
        for runtime in (Local, Fused)
    ]
    np.testing.assert_allclose(ends[0].w, ends[1].w, atol=1e-9)


@pytest.mark.long
def test_training_keeps_ten_constraints() -> None:
    columns = draw(2)
    p = classifier(linear(P, 2, dtype="float64"), many(columns))
    assert p.constraints == 10
    rows, rounds = Rows(columns, SIZES), 300
    algorithm = auto(p, rows, batch=20, rounds=rounds)
    end = Fused(p, rows, algorithm, 0).advance(algorithm.init(p.start), rounds - 1)
    row = evaluator_over(p, rows, None).row(end.w)
    assert max(row["constraints"]) <= 0.02
    assert row["train_accuracy"] > 0.75


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "options", "says"),
    [
        ("pariti", 0.1, {}, "'pariti' is unknown: did you mean 'parity'?"),
        ("zzz", 0.1, {}, "'zzz' is unknown: known are beyond, bias, calibration, client_loss"),
        ("fnr", 0.1, {"colum": "sex"}, "no key 'colum': it takes kind, limit, bins, column"),
        ("client_loss", 0.1, {"column": "sex"}, "no key 'column': it takes kind, limit$"),
        ("loss", 0.1, {"positive": 1}, "no key 'positive': it takes kind, limit, bins, column"),
        ("loss", 0.0, {}, "limit = 0.0: it must be limit > 0"),
        ("loss", float("inf"), {}, "limit = inf"),
        ("client_loss", -1.0, {}, "limit > 0"),
        ("client_loss_gap", -0.1, {}, "limit >= 0"),
        ("fnr", 1.0, {}, "0 <= limit < 1"),
        ("fpr", -0.1, {}, "0 <= limit < 1"),
        ("fpr", float("nan"), {}, "limit = nan"),
        ("recall", 0.0, {}, "0 < limit <= 1"),
        ("precision", 1.1, {}, "0 < limit <= 1"),
        ("parity", -0.1, {"column": "sex"}, "limit >= 0"),
        ("opportunity", -0.1, {"column": "sex"}, "limit >= 0"),
        ("fnr", 0.1, {"positive": 2}, "positive = 2 is not a class: .* from 0 to 1"),
        ("fnr", 0.1, {"positive": -1}, "positive = -1"),
        ("fnr", 0.1, {"positive": True}, "positive = True"),
        ("fnr", 0.1, {"positive": "yes"}, "positive = 'yes'"),
        ("fnr", 0.1, {"sharpness": 0.0}, "sharpness = 0.0: it must be positive"),
        ("fnr", 0.1, {"sharpness": "steep"}, "sharpness = 'steep': it must be a number"),
        ("parity", 0.1, {}, "needs column = <name>; the data's are: age, none, one, race, sex"),
        ("parity", 0.1, {"column": "gender"}, "no column 'gender'; known: age, none, one, race"),
        ("parity", 0.1, {"column": "y"}, "no column 'y'"),
        (
            "parity",
            0.1,
            {"column": "one"},
            "'one' has 1 value .one = 1. in the training data; groups",
        ),
        ("parity", 0.1, {"column": "age"}, r"'age' has 200 values .*: set bins = \[\.\.\.\]"),
        ("opportunity", 0.1, {"column": "none"}, r"of class 1; there are: none = 1 \(0\)"),
    ],
)
def test_bad_input_is_one_clear_line(kind: str, limit: float, options: dict, says: str) -> None:
    columns = draw(2)
    columns |= {"one": np.ones(N, int), "race": np.arange(N) % 3, "age": np.arange(N)}
    columns["none"] = (columns["y"] == 0).astype(int)
    with pytest.raises(UserError, match=says.replace("?", r"\?")) as error:
        c.from_config(kind, limit, options, rows_of(columns))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["fnr", "fpr", "recall", "precision", "opportunity"])
@pytest.mark.parametrize("label", [0, 1])
def test_an_empty_class_is_named(kind: str, label: int) -> None:
    columns = draw(2) | {"y": np.full(N, label)}
    options = {"column": "sex"} if kind == "opportunity" else {}
    with pytest.raises(UserError, match=r"(no|every) training row is of class 1"):
        c.from_config(kind, 0.5, options, rows_of(columns))


def test_client_losses_need_clients_with_rows() -> None:
    with pytest.raises(UserError, match=r'they hold columns: use data\.split = "sample"'):
        c.from_config("client_loss", 0.5, {}, rows_of(draw(2), sizes=None))
    with pytest.raises(UserError, match="each needs a row"):
        c.client_loss_at_most(0.5, [])


def test_no_column_at_all_and_empty_options() -> None:
    columns = {k: v for k, v in draw(2).items() if k != "sex"}
    with pytest.raises(UserError, match=r"needs column = <name>$"):
        c.from_config("parity", 0.1, {}, rows_of(columns))
    empty = {"column": "", "sharpness": None, "columns": [], "per_client": False}
    assert len(c.from_config("fnr", 0.1, empty, rows_of(columns))) == 1


def test_a_class_that_the_model_lacks() -> None:
    (upper, _) = c.parity_gap_at_most(0.1, draw(2)["sex"], "sex", positive=4)
    ((_, fn),) = upper.terms.values()
    with pytest.raises(UserError, match="4 is not one of 2 classes"):
        fn(jnp.zeros((N, 2)), batch_of(draw(2)))


@pytest.mark.parametrize("name", ["cost", "accuracy", ""])
def test_reported_names_stay_free(name: str) -> None:
    with pytest.raises(UserError, match="choose another"):
        c.custom(name, lambda scores, batch: scores[:, 0], 0.1)
