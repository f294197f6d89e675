"""`model.embed`: categories with many values become vectors, in the simulator and at sites."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca import load_model
from fedssca.errors import UserError
from fedssca.problem.layers import apply_stack
from fedssca.run.build import load_dataset, network_of
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.deploy.test_sites import by_rows, run, table

CONFIG = """
[data]
id = "id"
[model]
hidden = [6]
embed = 3
[algorithm]
batch = 8
rounds = 4
rho = {a=0.9,alpha=0.3}
gamma = {a=0.5,alpha=0.6}
tau = 1.0
multipliers = "exact"
[run]
evaluate_every = 3
precision = "float64"
"""


def rows() -> dict[str, list[str]]:
    """The rows of other tests, with a column of five categories."""
    kinds = ["oak", "elm", "fir", "yew", "ash"]
    return {**table(), "tree": [kinds[i % 5] for i in range(60)]}


def test_a_category_is_a_vector(tmp_path: Path) -> None:
    """Sites train what the simulator trains; scores are those of the formula."""
    files = by_rows(tmp_path, rows())
    found, _ = run(parse(CONFIG), files, tmp_path / "run")
    paths = [str(file.with_suffix(".csv")) for file in files]
    config = parse(CONFIG, [f"data.path={paths}"])
    execute(config, tmp_path / "simulated")
    simulated = json.loads((tmp_path / "simulated/result.json").read_text())
    for name in ("objective", "train_cost", "test_cost"):
        assert found[name] == pytest.approx(simulated[name], rel=1e-6), name

    dataset, model = load_dataset(config), load_model(tmp_path / "simulated")
    network = network_of(config, dataset)
    tree, rest = (list(own) for own in network.parties)
    assert [dataset.features[place].split("=")[0] for place in tree] == ["tree"] * 5
    assert network.bottom == [[3], [6]]
    with model.own_precision():
        stacks = model.network.stacks()
        _, bottoms = stacks.params(jnp.asarray(model.w))
        vectors = np.asarray(apply_stack(stacks.bottoms[0], bottoms[0], jnp.eye(5)))
        own = apply_stack(stacks.bottoms[0], bottoms[0], jnp.asarray(dataset.train["x"][:, tree]))
    kinds = dataset.train["x"][:, tree].argmax(axis=1)
    assert vectors.shape == (5, 3)
    np.testing.assert_allclose(own, vectors[kinds], atol=1e-12)
    assert len(rest) == dataset.train["x"].shape[1] - 5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.embed=9"], "no column has more than 9 categories"),
        (["model.name=linear"], "linear has no such layers"),
        (["model.bottom=[3]"], "embeddings belong to a mlp without bottom"),
        (["data.split=feature"], "model.embed is for clients that hold rows"),
    ],
)
def test_refused(settings: list[str], said: str, tmp_path: Path) -> None:
    files = by_rows(tmp_path, rows())
    path = files[0].with_suffix(".csv")
    with pytest.raises(UserError, match=said):
        execute(parse(CONFIG, [f"data.path={path}", *settings]), tmp_path / "run")
