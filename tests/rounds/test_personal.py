"""Personal parts: clients whose labels mean different things, simulated and deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca import load_model
from fedssca.errors import UserError
from fedssca.rounds.codec import decode
from fedssca.rounds.personal import OwnPart
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.export import ModelTargets, export_model
from fedssca.run.model import predict_rows
from fedssca.run.record import RunDirectory
from tests.deploy.loopback import deployed

COMMON, OWN = 5 * 8 + 8, 2 * 8 + 2
"""The numbers of parameters of the first layer, and of the head."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clients: y = 1 where a b > 0 at the first, and where a b < 0 at the second."""
    made, rng = tmp_path_factory.mktemp("clients"), np.random.default_rng(0)
    for number in (1, 2):
        x = rng.normal(size=(150, 5))
        y = (x[:, 0] * x[:, 1] > 0) == (number == 1)
        lines = [
            ",".join([*(f"{v:.6f}" for v in row), str(int(c))]) for row, c in zip(x, y, strict=True)
        ]
        (made / f"site-{number}.csv").write_text("\n".join(["a,b,c,d,e,y", *lines]))
    return made


def config_of(folder: Path, *settings: str) -> Any:
    files = [str(folder / f"site-{number}.csv") for number in (1, 2)]
    base = [f"data.path={files}", "data.label=y", "model.hidden=[8]", "algorithm.batch=20"]
    rounds = ["algorithm.rounds=120", "run.evaluate_every=40", "run.checkpoint_every=40"]
    return parse("", [*base, *rounds, "data.test_fraction=0.2", *settings])


NAMES = ("site-1", "site-2")
PERSONAL = "model.personal=head"
LIMITS = "problem.constraint=[{kind='client_loss', limit=0.4}]"


@pytest.fixture(scope="module")
def simulated(folder: Path) -> Path:
    execute(config_of(folder, PERSONAL, LIMITS), folder / "simulated")
    return folder / "simulated"


def test_own_heads_reach_what_no_common_model_can(folder: Path, simulated: Path) -> None:
    """For every x the two clients want opposite answers, so a common model has half of them."""
    common = execute(config_of(folder), folder / "common")
    own = RunDirectory.open(simulated).result()
    assert own is not None
    assert common["train_accuracy"] < 0.65
    assert own["train_accuracy"] > 0.9
    assert own["test_accuracy"] > 0.8
    assert own["feasible"]
    assert max(own["constraints"]) <= 0
    assert all(each["train"]["cost"] <= 0.4 for each in own["per_client"])


def test_a_client_is_named_to_predict_and_to_export(folder: Path, simulated: Path) -> None:
    rights = []
    for name in NAMES:
        model = load_model(simulated, name)
        assert model.whose == f"that of {name} (head)"
        found = predict_rows(model, folder / "site-1.csv", "the rows")
        assert found.notes[0] == f"the personal part of the model is that of {name} (head)"
        assert found.evaluation is not None
        rights.append(found.evaluation["accuracy"])
    assert rights[0] > 0.9
    assert rights[1] < 0.2
    with pytest.warns(UserWarning, match="the personal part of the model is that of site-2"):
        export_model(simulated, ModelTargets(sklearn=folder / "model.pkl"), "site-2")
    assert "that of no client" in load_model(simulated).whose
    with pytest.raises(UserError, match="no personal part '7': its clients are site-1, site-2"):
        load_model(simulated, "7")
    with pytest.raises(UserError, match="is no personal part of the model"):
        load_model(simulated, folder / "site-1.csv")


def test_a_resumed_run_ends_with_the_same_bits(folder: Path, simulated: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 80:
            raise Stopped

    config = config_of(folder, PERSONAL, LIMITS)
    with pytest.raises(Stopped):
        execute(config, folder / "stopped", on_row=stop)
    execute(config, folder / "stopped", resume=True)
    for name in NAMES:
        one, two = (load_model(run, name).w for run in (simulated, folder / "stopped"))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("hidden", [False, True])
def test_sites_send_nothing_about_their_heads(
    folder: Path, simulated: Path, tmp_path: Path, hidden: bool
) -> None:
    """The deployed run is the simulated one; the server never has a head, and the sites keep it."""
    secure = f"privacy.secure_sum={str(hidden).lower()}"
    config = config_of(folder, PERSONAL, LIMITS, secure)
    ours, _, link = deployed(config, 2, tmp_path)
    assert ours["feasible"]
    w, theirs = (np.load(run / "model.npz")["w"] for run in (tmp_path / "run", simulated))
    parts = build(config).problem.personal
    assert len(parts.places) == OWN
    np.testing.assert_array_equal(w[parts.places], parts.whole.start[parts.places])
    assert np.linalg.norm(w - theirs) <= 0.01 * np.linalg.norm(theirs)
    for data in link.answers + link.envelopes:
        envelope = decode(data)
        if not envelope.kind.startswith(("train", "slope", "measure", "tally", "probe")):
            continue
        for array in envelope.arrays.values():
            assert not array.ndim or array.shape[-1] != COMMON + OWN
    kept = sorted(tmp_path.rglob("*.personal/*.npz"))
    assert len(kept) == 2
    for file, name in zip(kept, NAMES, strict=True):
        one, two = load_model(tmp_path / "run", file).w, load_model(simulated, name).w
        assert np.linalg.norm(one - two) <= 0.01 * np.linalg.norm(two)
    with pytest.raises(UserError, match="no personal part '7': its sites keep theirs"):
        load_model(tmp_path / "run", "7")


def test_a_site_goes_on_with_what_it_has_kept(tmp_path: Path) -> None:
    """A new process of a site begins with its last part, and has those of evaluated points."""
    file, points = tmp_path / "parts/run.npz", np.eye(2)
    part = OwnPart(np.zeros(3))
    part.keep_in(file)
    part.at(points[0])
    part.move(np.ones(3))
    part.at(points[1])
    part.move(np.full(3, 2.0))
    again = OwnPart(np.zeros(3))
    again.keep_in(file)
    np.testing.assert_array_equal(again.now, np.full(3, 2.0))
    np.testing.assert_array_equal([again.at(p)[0] for p in points], [0, 1])
    np.testing.assert_array_equal(again.at(points.sum(axis=0).astype(np.float32)), again.now)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.split=feature"], "model.personal: clients that hold columns"),
        (["privacy.epsilon=3.0", "privacy.clip=1.0"], "accounted for models that are released"),
        (["algorithm.cohort=1"], "need clients with one model"),
        (["algorithm.local_steps=3"], "ssca takes one local step"),
        ([LIMITS, "algorithm.name=primal-dual"], 'limits need algorithm.name = "ssca"'),
        (["model.train=head"], "leave one of the two out"),
        (["problem.objective=worst_client"], "compares groups under one model"),
        (["model.personal=top"], "the network has no part 'top'; its parts are layer1, head"),
        (["model.personal=['layer1', 'head']"], "names the whole network"),
    ],
)
def test_refused(settings: list[str], said: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        execute(config_of(folder, PERSONAL, *settings), tmp_path / "run")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
