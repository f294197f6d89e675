"""Counts, ranks, membership and inversion on small networks, against what is known by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.run.config import parse
from fedssca.studies.audit.audited_run import AuditedRun, NoiseSetting, set_up
from fedssca.studies.audit.count import count
from fedssca.studies.audit.inversion import invert
from fedssca.studies.audit.membership import auc, membership
from fedssca.studies.audit.message import clip_factors, median_gradient_norm, observe
from fedssca.studies.audit.observers import gradient_observations, intermediate_observations
from fedssca.studies.audit.score import matched, score
from fedssca.studies.audit.vocabulary import Level, Phase

pytestmark = pytest.mark.usefixtures("float64")

ALL = [0, 1, 2, 3]


def built(*settings: str) -> AuditedRun:
    return set_up(parse("", ["data.clients=4", "model.hidden=24", *settings]))


@pytest.fixture(scope="module")
def digits(float64: None) -> AuditedRun:
    """64-24-10, batches of four."""
    return built("algorithm.batch=4")


@pytest.mark.parametrize(
    "settings",
    [
        ["algorithm.batch=3"],
        ["algorithm.batch=3", "algorithm.name=sgd"],
        [
            "algorithm.batch=3",
            "problem.objective=norm",
            "problem.constraint=[{kind='loss',limit=1}]",
        ],
        [
            "algorithm.batch=3",
            "problem.constraint=[{kind='fnr',limit=0.2,positive=3}]",
            "algorithm.multipliers=exact",
        ],
        ["algorithm.batch=3", "data.split=feature", "model.name=linear"],
    ],
)
def test_what_an_observer_computes_for_the_true_rows_is_the_message(settings) -> None:
    seen = built(*settings)
    group = seen.batch_rows([0])
    top, first = seen.blocks(seen.message(group.batch))
    h = jnp.asarray(group.x @ seen.first.T)
    found = seen.gradients(h, jnp.eye(len(seen.kinds["y"]))[group.kind])
    ours = np.einsum("n,nmj,np->mjp", group.weight, found.delta, group.x)
    np.testing.assert_allclose(first, ours.reshape(first.shape), atol=1e-12)
    np.testing.assert_allclose(top, np.einsum("n,nmd->md", group.weight, found.top), atol=1e-12)


def test_unknowns_and_equations_by_hand(digits) -> None:
    alone, crowd = count(digits, observe(digits, [0])), built("algorithm.batch=7")
    summed = count(crowd, observe(crowd, ALL))
    assert (alone.rows, alone.unknowns, alone.equations) == (4, 4 * 74, 24 * 74)
    assert (summed.rows, summed.unknowns, summed.equations) == (28, 28 * 74, 24 * 74)
    assert alone.unique
    assert not alone.counted
    assert summed.counted  # B K > J K as soon as B > J
    assert not summed.unique


def test_the_rank_is_that_derived_by_hand(digits) -> None:
    """One row: all of it. The same row twice: sums see one row only. Both by both ways."""
    view = observe(digits, [0])
    one = view._replace(group=digits.rows({k: v[:1] for k, v in view.group.batch.items()}))
    assert count(digits, one).rank == 64 + 10 - 1
    twice = {k: np.repeat(v[:1], 2, axis=0) for k, v in view.group.batch.items()}
    found = count(digits, view._replace(group=digits.rows(twice)))
    assert found.rank == 64 + 10 - 1
    assert found.exact
    assert not found.unique


def test_the_rank_by_structure_is_the_rank_of_the_whole(digits, monkeypatch) -> None:
    view = observe(digits, [0])
    whole = count(digits, view)
    monkeypatch.setattr("fedssca.studies.audit.count.DENSE", 4 * (4 + 9))
    parts = count(digits, view)
    assert whole.rank == parts.rank == 4 * 73
    assert parts.exact
    assert "structure" in parts.how


def test_auc_by_hand() -> None:
    assert auc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1
    assert auc(np.array([1.0]), np.array([0.0, 1.0, 2.0, 3.0])) == pytest.approx(0.375)


def test_members_are_told_below_the_hidden_units_and_hidden_by_a_crowd_and_noise(digits) -> None:
    nonmembers = digits.nonmembers(300)
    alone = membership(digits, [observe(digits, [0])], nonmembers)
    assert alone.span == alone.auc == 1.0
    crowd = built("algorithm.batch=150")
    summed = membership(crowd, [observe(crowd, ALL)], nonmembers)
    assert summed.auc < 0.6
    noise = NoiseSetting(median_gradient_norm(digits), 4.0)
    views = [observe(digits, ALL, noise, t) for t in range(1, 7)]
    assert membership(digits, views, nonmembers).auc < 0.65


def test_the_attack_solves_for_every_row_of_a_small_batch(digits) -> None:
    view = observe(digits, [0])
    found = score(digits, view, invert(digits, view))
    assert found.solved == 4
    assert found.correlation > 0.9999
    assert found.labels == 1
    assert found.control < 0.8
    np.testing.assert_allclose(found.x, view.group.x, atol=1e-4)


def test_the_attack_sees_nothing_under_noise(digits) -> None:
    view = observe(digits, [0], NoiseSetting(median_gradient_norm(digits), 1.0))
    found = score(digits, view, invert(digits, view))
    assert found.solved == 0
    assert found.correlation < found.control
    assert found.correlation < found.chance + 0.15


def test_one_row_has_a_closed_form() -> None:
    """Softmax regression with a bias: x = (row of dW) / (entry of db), clipped or not."""
    seen = built("model.name=linear", "algorithm.batch=1")
    view = observe(seen, [0], NoiseSetting(0.1, 0.0))
    top, row = view.top[0], view.first
    closed = row[np.argmax(np.abs(top))] / top[np.argmax(np.abs(top))]
    np.testing.assert_allclose(closed, view.group.x[0], atol=1e-5)
    np.testing.assert_allclose(invert(seen, view).x, view.group.x, atol=1e-4)


def test_matching_is_one_to_one() -> None:
    x = np.random.default_rng(0).normal(size=(5, 20))
    each, order = matched(x, 3 * x[::-1] + 1)
    np.testing.assert_allclose(each, 1)
    assert order.tolist() == [4, 3, 2, 1, 0]


def test_noise_is_what_the_setting_says(digits) -> None:
    """Standard deviation a C sigma on what is sent, a = N_i / (B N)."""
    clipped, noised = (observe(digits, [0], NoiseSetting(0.5, z)) for z in (0.0, 2.0))
    weight = digits.batch_rows([0]).weight[0]
    spread = np.std(noised.first - clipped.first)
    assert spread == pytest.approx(weight * 0.5 * 2.0, rel=0.05)
    length = np.sqrt((clipped.first**2).sum() + (clipped.top**2).sum())
    assert length <= 4 * weight * 0.5 * (1 + 1e-6)


def test_a_client_as_the_unit_is_clipped_as_a_whole(digits) -> None:
    view = observe(digits, [0], NoiseSetting(0.01, 0.0, "client"))
    share = digits.batch_rows([0]).weight.sum()
    length = np.sqrt((view.first**2).sum() + (view.top**2).sum())
    assert length == pytest.approx(0.01 * share, rel=1e-5)


def test_observers_of_rows() -> None:
    seen = built("algorithm.batch=2", "privacy.secure_sum=true", "algorithm.cohort=3")
    found = gradient_observations(seen, NoiseSetting(1.0, 1.0))
    used = [observation for observation in found if observation.used]
    assert [(s.observer, len(s.clients)) for s in used] == [("server", 3), ("peer", 2)]
    others = {observation.name for observation in found if not observation.used}
    assert others == {"alone", "alone, noise 1", "sum of 3 clients, noise 1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], [("every peer", Phase.SHARE, Level.AT_RISK)]),
        (["data.collection=open"], [("server", Phase.OPEN_REPLY, Level.OPEN)]),
        (["privacy.secure_sum=true"], [("every peer", Phase.MASKED_SHARE, Level.PROTECTED)]),
        (
            ["privacy.secure_sum=true", "data.clients=2"],
            [("every peer", Phase.SHARE, Level.AT_RISK)],
        ),
        (
            ["data.label_holder=1"],
            [
                ("party 1", Phase.SHARE, Level.AT_RISK),
                ("parties other than 1", Phase.HEAD, Level.OPEN),
            ],
        ),
    ],
)
def test_observers_of_columns(settings, expected) -> None:
    seen = built("data.split=feature", "algorithm.batch=8", *settings)
    found = intermediate_observations(seen)
    assert [(s.observer, s.phase, s.level) for s in found] == expected
    assert len(gradient_observations(seen, NoiseSetting(1.0, 1.0))) == (
        0 if "open" in str(settings) else 2
    )
    if not settings:  # 32 columns in four blocks of 16, 24 hidden units
        assert (found[0].unknowns, found[0].equations, found[0].rank) == (8 * 16, 8 * 24, 8 * 16)
    if found[-1].phase is Phase.HEAD:
        assert found[-1].labels is not None
        assert found[-1].labels > 0.9


def test_local_steps_show_all_their_rows() -> None:
    seen = built("algorithm.name=sgd", "algorithm.local_steps=3", "algorithm.batch=2")
    view = observe(seen, [0])
    assert len(view.group.x) == 6
    assert membership(seen, [view], seen.nonmembers(200)).span == 1.0


def test_noise_as_a_config_asks_for_it(digits) -> None:
    assert digits.noise is None
    said = ["privacy.clip=2.0", "privacy.noise_multiplier=1.5", 'privacy.unit="client"']
    assert built("algorithm.batch=4", *said).noise == NoiseSetting(2.0, 1.5, "client")


def test_an_observer_knows_the_clipping_too(digits) -> None:
    """What he computes for the true rows is what clipped clients send."""
    view = observe(digits, [0], NoiseSetting(0.5, 0.0))
    group = view.group
    h = jnp.asarray(group.x @ digits.first.T)
    found = digits.gradients(h, jnp.eye(10)[group.kind])
    share = group.weight * np.asarray(clip_factors(digits, found, jnp.asarray(group.x), 0.5))
    ours = np.einsum("n,nmj,np->mjp", share, found.delta, group.x)
    np.testing.assert_allclose(view.first, ours.reshape(view.first.shape), atol=1e-7)
