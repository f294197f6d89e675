"""`model.embed`: categories with many values become vectors, in the simulator and at sites."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca import load_model
from fedssca.data import Columns, Rows
from fedssca.errors import UserError
from fedssca.problem.layers import apply_stack
from fedssca.run.build import build, load_dataset, network_of, problem_of
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.export.onnx_files import export_onnx
from fedssca.run.model import TrainedModel
from tests.deploy.test_sites import by_rows, run, table, write

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


def by_parties(folder: Path) -> list[Path]:
    """Two parties with columns, each with a column of categories; the first has the labels."""
    files = []
    for number, names in enumerate((["id", "age", "tree", "y"], ["id", "town", "size"])):
        write(folder / f"{number}.csv", {name: rows()[name] for name in names})
        files.append(folder / f"{number}.toml")
        files[-1].write_text(f'path = "{number}.csv"\nid = "id"\n')
    return files


def test_parties_with_columns_embed_their_own_categories(tmp_path: Path) -> None:
    """h_i has the embeddings of party i; what parties compute is the network on pooled columns."""
    files = by_parties(tmp_path)
    given = ["data.split=feature", "data.label_holder=0", "model.embed=2"]
    paths = [str(file.with_suffix(".csv")) for file in files]
    config = parse(CONFIG, [*given, f"data.path={paths}"])
    with jax.enable_x64(True):
        job = build(config)
        split, batch = job.problem.vertical, job.dataset.train
        assert split is not None
        assert isinstance(job.clients, Columns)
        network = network_of(config, job.dataset, job.clients.blocks)
        assert network.bottom == [[2], [6], [2], [6]]  # tree and age; town and size
        w = np.random.default_rng(0).normal(size=job.problem.dimension)

        def apart(w: jax.Array) -> jax.Array:
            hs = [
                h(w[block], batch["x"][:, own])
                for h, block, own in zip(
                    split.locals, split.blocks[1:], split.features, strict=True
                )
            ]
            assert [h.shape[1] for h in hs] == [8, 8]
            return split.head(w[split.blocks[0]], hs, batch)[0].mean()

        whole = problem_of(
            parse(CONFIG, ["model.embed=2"]), job.dataset, _pooled(batch), None, network
        )
        assert whole.vertical is None
        pooled = jax.value_and_grad(lambda w: whole.terms(w, batch)[0].mean())(jnp.asarray(w))
        parted = jax.value_and_grad(apart)(jnp.asarray(w))
        for one, other in zip(pooled, parted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)

    execute(config, tmp_path / "simulated")
    found, _ = run(parse(CONFIG, given), files, tmp_path / "run")
    simulated = json.loads((tmp_path / "simulated/result.json").read_text())
    for name in ("objective", "train_cost"):
        assert found[name] == pytest.approx(simulated[name], rel=1e-6), name
    one, other = (load_model(tmp_path / name) for name in ("run", "simulated"))
    assert one.network.bottom == other.network.bottom
    assert one.w == pytest.approx(other.w, abs=1e-6)
    _check_onnx(other, paths, tmp_path)


def _pooled(batch: dict[str, np.ndarray]) -> Rows:
    return Rows(batch, (len(batch["y"]),))


def _check_onnx(model: TrainedModel, paths: list[str], folder: Path) -> None:
    """A file for each party and one for the head give the probabilities of the model."""
    runtime = pytest.importorskip("onnxruntime")
    *parties, head = map(runtime.InferenceSession, export_onnx(model, folder / "m.onnx"))
    cells = {name: np.array(values) for name, values in rows().items()}
    hs = {}
    for number, party in enumerate(parties, 1):
        inputs = {
            each.name: cells[each.name].astype(float if "double" in each.type else object)
            for each in party.get_inputs()
        }
        (hs[f"h_{number}"],) = party.run(["h"], inputs)
    (chances,) = head.run(["probabilities"], hs)
    np.testing.assert_allclose(chances, model.predict_proba(paths), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.embed=9"], "no column has more than 9 categories"),
        (["model.name=linear"], "model.embed = 3: name = .linear. has no embed"),
        (["model.bottom=[3]"], "only name = .mlp. without bottom has embeddings"),
    ],
)
def test_refused(settings: list[str], said: str, tmp_path: Path) -> None:
    files = by_rows(tmp_path, rows())
    path = files[0].with_suffix(".csv")
    with pytest.raises(UserError, match=said):
        execute(parse(CONFIG, [f"data.path={path}", *settings]), tmp_path / "run")
