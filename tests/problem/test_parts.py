"""Parts of networks by name, and problems in which only some of them are trained."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedssca.data import Columns, Rows
from fedssca.errors import UserError
from fedssca.problem.parts import named_parts, narrowed, places_of
from fedssca.run.build import load_dataset, network_of, problem_of, share_out
from fedssca.run.config import parse

DIGITS = '[data]\nname = "digits"\nclients = 2\n[problem]\nl2 = 0.01\n'


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (["model.hidden=3"], "head layer1"),
        (["model.name=linear"], "head layer1"),
        (["model.hidden=[4, 3]", "model.layer_norm=true"], "layer1 layer2 head layer1"),
        (["model.name=cnn", "model.channels=[2, 2]", "model.hidden=[3]"], "layer3 head l1 l2"),
        (["model.bottom=[4, 3]", "model.parties=2", "model.hidden=[3]"], "join layer1 head b1 b2"),
    ],
)
def test_the_parts_are_in_the_order_of_the_flat_vector(settings: list[str], names: str) -> None:
    config = parse(DIGITS, settings)
    dataset = load_dataset(config)
    network = network_of(config, dataset)
    parts = named_parts(network)
    made = problem_of(config, dataset, share_out(config.data, dataset, 0))
    assert sum(size for _, size in parts) == made.dimension
    short = {"l1": "layer1", "l2": "layer2", "b1": "bottom1.layer1 bottom1.layer2"}
    short["b2"] = "bottom2.layer1 bottom2.layer2"
    whole = " ".join(short.get(name, name) for name in names.split()).split()
    assert list(dict.fromkeys(name for name, size in parts if size)) == list(dict.fromkeys(whole))
    with pytest.raises(
        UserError, match=r"key: the network has no part 'top'; its parts are .*head"
    ):
        places_of("key", network, ["top"])


@pytest.mark.parametrize(
    ("split", "objective"), [("sample", "loss"), ("sample", "worst_client"), ("feature", "loss")]
)
def test_values_and_gradients_are_those_of_the_whole(split: str, objective: str) -> None:
    settings = ["model.hidden=[4, 3]", f"data.split={split}", f"problem.objective={objective}"]
    config = parse(DIGITS, settings)
    dataset = load_dataset(config)
    clients: Rows | Columns = share_out(config.data, dataset, 0)
    whole = problem_of(config, dataset, clients)
    network = network_of(config, dataset, getattr(clients, "blocks", None))
    places = places_of("key", network, ["layer1", "head"])
    part = narrowed(whole, places)
    assert part.dimension == len(places) + bool(whole.worst) < whole.dimension
    np.testing.assert_array_equal(part.model(part.start), whole.model(whole.start))
    w = part.start + 0.1
    full = np.array(whole.start)
    every = np.append(places, whole.dimension - 1) if whole.worst else places
    full[every] += 0.1
    batch = {key: column[:20] for key, column in dataset.train.items()}
    batch["client"] = np.zeros(20, np.int32)
    np.testing.assert_array_equal(part.terms(w, batch), whole.terms(full, batch))
    slopes = (
        jax.jacrev(lambda v, p=p: p.terms(v, batch))(v) for p, v in ((part, w), (whole, full))
    )
    mine, theirs = slopes
    np.testing.assert_allclose(mine, theirs[..., every], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(part.extended(part.model(w))[: len(places)], w[: len(places)])
    if split == "feature":
        one = part.vertical
        assert one is not None
        hs = [
            h(w[block], batch["x"][:, own])
            for h, block, own in zip(one.locals, one.blocks[1:], one.features, strict=True)
        ]
        apart = one.head(w[one.blocks[0]], hs, batch)
        np.testing.assert_allclose(apart, part.terms(w, batch), rtol=1e-4, atol=1e-5)
