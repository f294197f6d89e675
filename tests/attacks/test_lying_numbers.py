"""One of five sites lies with well-formed numbers: it wants a model that breaks the limit.

It sends its gradients turned around and twenty times as long, and it tells that the limited loss is
far below its limit. Nothing in its messages is broken, so a plain sum takes them, and the model
breaks the limit on the honest sites' rows. What stops it: with `deploy.robust` the server takes a
middle of the sites' messages, entry by entry, for gradients and for the values of constraints.
"""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.errors import ConfigError
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.rounds.codec import decode, encode
from fedssca.rounds.robust import RULES, trimmed
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.deploy.loopback import deployed

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
CONFIG = """
[data]
name = "breast-cancer"
clients = 5
[model]
name = "linear"
[problem]
objective = "norm"
[[problem.constraint]]
kind = "loss"
limit = 0.3
[algorithm]
name = "ssca"
batch = 40
rounds = 60
rho = {a = 0.9, alpha = 0.3}
gamma = {a = 0.5, alpha = 0.6}
tau = 1.0
multipliers = "exact"
[run]
evaluate_every = 59
"""
LIAR = "site-5"


def lie(site: str, asked: bytes, answer: bytes) -> bytes:
    """Values ten below zero, all other numbers turned around and twenty times as large."""
    envelope = decode(answer)
    if site != LIAR or decode(asked).kind.split("/")[0] not in ("train", "measure", "slope"):
        return answer
    arrays = {
        name: np.full_like(array, -10.0 * len(array)) if "scalars" in name else -20 * array
        for name, array in envelope.arrays.items()
    }
    return encode(envelope._replace(arrays=arrays))


def true_value(folder: Path) -> float:
    """The limited loss minus its limit, on the rows of all sites, without the liar's words."""
    job = build(parse(CONFIG))
    row = evaluator_over(job.problem, job.clients, None).row(
        jnp.asarray(np.load(folder / "run/model.npz")["w"])
    )
    return float(row["constraints"][0])


def test_a_plain_sum_lets_the_liar_break_the_limit(tmp_path: Path) -> None:
    deployed(parse(CONFIG), 5, tmp_path, tamper=lie)
    assert true_value(tmp_path) > 0.1


@pytest.mark.parametrize("rule", ["trimmed-mean", "median"])
def test_a_robust_sum_keeps_the_limit(rule: str, tmp_path: Path) -> None:
    config = parse(CONFIG, [f"deploy.robust={rule}"])
    deployed(config, 5, tmp_path, tamper=lie)
    assert true_value(tmp_path) <= 0.02


def test_a_bound_on_lengths_halves_the_damage_and_does_not_keep_the_limit(tmp_path: Path) -> None:
    """The liar pulls no further than the others, but it pulls: nobody's direction is left out."""
    config = parse(CONFIG, ["deploy.robust=norm-bound"])
    deployed(config, 5, tmp_path / "bounded", tamper=lie)
    deployed(parse(CONFIG), 5, tmp_path / "plain", tamper=lie)
    bounded, plain = (true_value(tmp_path / name) for name in ("bounded", "plain"))
    assert 0.02 < bounded < 0.7 * plain


def test_honest_sites_lose_little(tmp_path: Path) -> None:
    """The simulator adds up by the same rules: what they cost can be seen before a deployment."""
    found = {}
    for rule in RULES:
        config = parse(CONFIG, [f"deploy.robust={rule}", "run.runtime=local"])
        found[rule] = execute(config, tmp_path / rule)
    for rule in RULES:
        assert found[rule]["constraints"][0] <= 0.02, rule
        assert found[rule]["objective"] == pytest.approx(found["none"]["objective"], rel=0.3), rule


def test_hidden_sums_cannot_be_robust() -> None:
    for hidden in ("secure_sum", "homomorphic"):
        with pytest.raises(ConfigError, match="cannot prove a bound on what they mask"):
            parse(CONFIG, ["deploy.robust=median", f"privacy.{hidden}=true"])
    with pytest.raises(ConfigError, match="sites that hold rows"):
        parse(CONFIG, ["deploy.robust=median", "data.split=feature"])


def test_the_rules_by_hand() -> None:
    means = np.array([[1.0, 5.0], [2.0, -90.0], [3.0, 6.0], [4.0, 7.0], [900.0, 8.0]])
    assert RULES["trimmed-mean"](means).tolist() == [3.0, 6.0]
    assert RULES["median"](means).tolist() == [3.0, 6.0]
    bounded = np.minimum(means, [3.0, 7.0])
    bounded[1, 1] = -7.0
    assert RULES["norm-bound"](means) == pytest.approx(bounded.mean(axis=0))
    long = np.array([[[3.0, 4.0]], [[30.0, 40.0]], [[0.0, 5.0]]])
    assert RULES["norm-bound"](long) == pytest.approx(np.array([[2.0, 13 / 3]]))
    assert [trimmed(n) for n in (1, 2, 3, 5, 9, 10, 30)] == [0, 0, 1, 1, 1, 2, 6]
