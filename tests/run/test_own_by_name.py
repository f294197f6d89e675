"""Models of users by name: trained, saved, loaded again, and allowed by every site or refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fedssca import load_model
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.export.onnx_files import export_onnx
from fedssca.run.record import RunDirectory
from tests.deploy.loopback import RUN, Loopback, parties

PACKAGE = """
import jax
import jax.numpy as jnp
import numpy as np
import fedssca

def make(features, outputs, seed, width=4):
    rng = np.random.default_rng(seed)
    params = {"a": rng.normal(size=(features, width)) / 5, "b": rng.normal(size=(width, outputs))}
    return (lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"]), params

def network(features, outputs, seed):
    return fedssca.mlp(features, [5, 4], outputs)

def one_score(features, outputs, seed):
    return (lambda p, x: x @ p), np.zeros(features)

def wide(features, outputs, seed):
    return fedssca.mlp(features + 1, 3, outputs)

def broken(features, outputs, seed):
    raise KeyError("nothing here")

def centred(features, outputs, seed):
    return (lambda p, x: (x - x.mean(axis=0)) @ p), np.full((features, outputs), 0.1)

def number(features, outputs, seed):
    return 3

def squares(limit, power=2.0):
    size = lambda scores, batch: jnp.sum(jnp.abs(scores) ** power, axis=1)
    return fedssca.custom("squares", size, limit)

def nothing(limit):
    return None

def focal(scores, batch):
    p = jnp.take_along_axis(jax.nn.softmax(scores), batch["y"][:, None], axis=1)[:, 0]
    return -((1 - p) ** 2) * jnp.log(p)

def absolute(scores, batch):
    return jnp.sqrt(jnp.square(scores[:, 0] - batch["y"]) + 0.01)

def summed(scores, batch):
    return scores.sum()
"""
CONFIG = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "our_nets:make"
options = {width = 6}
[algorithm]
batch = 20
rounds = 12
rho = {a = 0.9, alpha = 0.3}
gamma = {a = 0.9, alpha = 0.6}
tau = 0.2
"""
NO_OPTIONS = CONFIG.replace("options = {width = 6}\n", "")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "our_nets.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "our_nets", raising=False)
    return tmp_path


def test_trained_saved_and_loaded_by_name(package: Path) -> None:
    result = execute(parse(CONFIG), package / "run")
    model = load_model(package / "run")
    assert model.network.options == {"width": 6}
    assert model.w.size == 30 * 6 + 6 * 2
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    rows = {str(name): raw.data[:, j] for j, name in enumerate(raw.feature_names)}
    right = np.mean(model.predict(rows) == 1 - raw.target)  # here class 1 is malignant
    assert right == pytest.approx(result["train_accuracy"], abs=0.05)
    with pytest.raises(UserError, match="the layers of 'our_nets:make' are not known"):
        export_onnx(model, package / "m.onnx")


def test_a_part_of_it_is_trained(package: Path) -> None:
    execute(parse(CONFIG, ["model.train=b"]), package / "run")
    w = np.load(package / "run/model.npz")["w"]
    start = np.random.default_rng(0).normal(size=(30, 6)) / 5
    np.testing.assert_allclose(w[:180], start.ravel(), rtol=1e-6)
    with pytest.raises(UserError, match=r"model.train: the network has no part 'c'; its parts are"):
        execute(parse(CONFIG, ["model.train=c"]), package / "other")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_package:make", "no_such_package cannot be imported (ModuleNotFoundError"),
        ("our_nets:mak", "our_nets has no function 'mak'; did you mean 'make'?"),
        ("our_nets:one_score", "gives shape (2,) for 2 rows: scores of shape (2, 2)"),
        ("our_nets:wide", "takes 31 features, the data have 30"),
        ("our_nets:broken", "failed: KeyError: 'nothing here'"),
        ("our_nets:centred", "gives another result for a row if another row of the batch changes"),
        ("our_nets:number", "returned int: it must return (apply, params)"),
        ("our_nets:", 'a function of yours is named "package.module:function"'),
    ],
)
def test_refused(name: str, said: str, package: Path) -> None:
    with pytest.raises(UserError) as caught:
        execute(parse(NO_OPTIONS, [f"model.name={name}"]), package / "run")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("kind='our_nets:nothing', limit=1", "returned NoneType: it must return a fedssca Constr"),
        ("kind='our_nets:square', limit=1", "no function 'square'; did you mean 'squares'?"),
        ("kind='our_nets:squares', limit=1, arguments={size=2}", "failed: TypeError: squares()"),
        ("kind='our_nets:squares', limit=1, positive=1", "takes kind, limit, arguments, column"),
        ("kind='loss', limit=1, arguments={power=2}", "arguments"),
    ],
)
def test_limits_refused(entry: str, said: str, package: Path) -> None:
    settings = ["model.name=linear", f"problem.constraint=[{{{entry}}}]"]
    with pytest.raises(UserError) as caught:
        execute(parse(NO_OPTIONS, settings), package / "run")
    assert said in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_a_loss_by_name(package: Path) -> None:
    """Its mean is the objective and the reported cost, for classes and for numbers."""
    few = ["model.name=linear", "problem.l2=0", "algorithm.rounds=30", "data.split=feature"]
    result = execute(parse(NO_OPTIONS, [*few, "problem.loss=our_nets:focal"]), package / "run")
    assert result["objective"] == pytest.approx(result["train_cost"], rel=1e-5)
    assert result["train_cost"] < 0.5 * 0.25 * np.log(2)  # half of what w = 0 costs
    settings = ["data.name=diabetes", "problem.task=regression", "problem.loss=our_nets:absolute"]
    numbers = execute(parse(NO_OPTIONS, [*few, *settings]), package / "numbers")
    assert numbers["objective"] == pytest.approx(numbers["train_cost"], rel=1e-5)
    assert numbers["train_mae"] < 60


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["problem.loss=our_nets:summed"], "gives shape () for"),
        (["problem.loss=our_nets:focl"], "our_nets has no function 'focl'; did you mean 'focal'?"),
        (["problem.loss=squared"], "function of yours, package.module:function"),
        (["problem.loss=our_nets:focal", "problem.confidence=0.9",
          "problem.constraint=[{kind='loss',limit=1}]"], "certified with a loss of yours"),
    ],
)  # fmt: skip
def test_losses_refused(settings: list[str], said: str, package: Path) -> None:
    with pytest.raises(UserError) as caught:
        execute(parse(NO_OPTIONS, ["model.name=linear", *settings]), package / "run")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_of_all_columns_cannot_be_divided(package: Path) -> None:
    with pytest.raises(UserError, match="one function of all columns"):
        execute(parse(CONFIG, ["data.split=feature"]), package / "run")


@pytest.mark.parametrize("split", ["sample", "feature"])
def test_a_site_refuses_packages_that_it_does_not_allow(split: str, package: Path) -> None:
    """Nothing is imported before every site allows it; then the run is that of the simulator."""
    limit = "problem.constraint=[{kind='our_nets:squares', limit=2.0, arguments={power=1.5}}]"
    named = ["model.name=our_nets:network", "problem.loss=our_nets:focal"]
    named = named if split == "sample" else ["model.name=mlp", limit]
    settings = [*named, f"data.split={split}", "algorithm.multipliers=exact"]
    config = parse(NO_OPTIONS, settings)
    files = write_site_files(config, 2, package / "data")
    order = RunOrder(config, site_names(2), RUN, False)
    texts = [file.read_text() for file in files]
    for allowed in ("", '"our_net", "our_nets.deeper"', '"our_nets"'):
        for file, text in zip(files, texts, strict=True):
            listed = re.sub(r"packages = \[[^]]*\]", f"packages = [{allowed}]", text)
            file.write_text(listed)
        server = RunServer(order, Loopback(parties(files)), package / "run")
        if allowed != '"our_nets"':
            with pytest.raises(UserError, match=r"refused by limits.packages = .*our_nets:"):
                server.run()
            assert "our_nets" not in sys.modules
    server.run()
    execute(config, package / "simulated")
    last = RunDirectory.open(package / "run").rows()[-1]
    assert len(last["constraints"]) == (0 if split == "sample" else 1)
    a, b = (np.load(package / run / "model.npz")["w_last"] for run in ("run", "simulated"))
    assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)
