"""PyTorch modules by name: in a TOML, in the simulator and at sites, with rows and with columns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedssca import load_model
from fedssca.errors import UserError
from fedssca.problem.own import own_parts, own_state
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.deploy.loopback import deployed

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

PACKAGE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = torch.nn.Linear(30, width), torch.nn.Linear(width, 2)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))

from torch import nn
from fedssca import replace_batch_norm

def make(features, outputs, seed, width=6):
    return nn.Sequential(nn.Linear(features, width), nn.SiLU(), nn.Linear(width, outputs))

def normed(features, outputs, seed):
    layers = nn.Linear(features, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, outputs)
    return nn.Sequential(*layers)

def grouped(features, outputs, seed):
    return replace_batch_norm(normed(features, outputs, seed))

def parties(features, outputs, seed, widths=(15, 15)):
    bottoms = [nn.Sequential(nn.Linear(width, 5), nn.Tanh()) for width in widths]
    return bottoms, nn.Linear(5 * len(widths), outputs)

def one_score(features, outputs, seed):
    return nn.Linear(features, 1)
"""
CONFIG = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "torch_nets:make"
[algorithm]
batch = 20
rounds = 12
rho = {a = 0.9, alpha = 0.3}
gamma = {a = 0.9, alpha = 0.6}
tau = 0.2
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "torch_nets.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_nets", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "settings",
    [
        ["model.options={width=4}", "run.precision=float64", "model.train='2'"],
        ["model.name=torch_nets:parties", "data.split=feature"],
    ],
)
def test_deployed_is_simulated(settings: list[str], package: Path) -> None:
    config = parse(CONFIG, settings)
    theirs = execute(config, package / "simulated")
    ours, _, _ = deployed(config, 2, package)
    a, b = (np.load(package / run / "model.npz")["w"] for run in ("simulated", "run"))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert ours["train_cost"] == pytest.approx(theirs["train_cost"], rel=1e-4)
    model = load_model(package / "run")
    assert model.scores(np.zeros((3, 30), np.float32)).shape == (3, 2)
    if "parties" not in model.network.name:
        torch.manual_seed(0)  # all but the part "2" stays at what torch draws
        layer = torch.nn.Linear(30, 4)
        np.testing.assert_allclose(a[:120], layer.weight.detach().numpy().ravel(), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.name=torch_nets:normed"], "use fedssca.replace_batch_norm(module)"),
        (["model.name=torch_nets:one_score"], "scores of shape (2, 2) are needed"),
        (["model.name=torch_nets:parties"], 'set data.split = "feature", or return one module'),
        (["data.split=feature"], "one function of all columns"),
        (
            ["data.split=feature", "model.name=torch_nets:parties", "model.options={widths=[15]}"],
            "1 bottoms for 2 parties",
        ),
        (
            [
                *("data.split=feature", "model.name=torch_nets:parties"),
                "model.options={widths=[15, 14]}",
            ],
            "bottom 1 does not take the 15 columns of its party: RuntimeError: mat1 and mat2",
        ),
    ],
)
def test_refused(settings: list[str], said: str, package: Path) -> None:
    with pytest.raises(UserError) as caught:
        execute(parse(CONFIG, settings), package / "run")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_group_norm_in_place_of_batch_norm(package: Path) -> None:
    with pytest.warns(UserWarning, match="GroupNorm takes the place of BatchNorm in 1: its scores"):
        result = execute(parse(CONFIG, ["model.name=torch_nets:grouped"]), package / "run")
    assert result["train_accuracy"] > 0.8


def test_a_class_and_the_arrays_by_name(package: Path) -> None:
    """A class is called with its options; the flat vector is divided as in state_dict."""
    options = {"torch_nets:Net": {"width": 3}, "torch_nets:parties": {}}
    for name, own in options.items():
        parts = own_parts(name, 30, 2, own)
        w = np.arange(sum(size for _, size in parts), dtype=np.float32)
        state = own_state(name, 30, 2, own, w)
        assert list(state) == [part for part, _ in parts]
        assert np.concatenate([array.ravel() for array in state.values()]).tolist() == w.tolist()
    assert list(state)[:3] == ["head.weight", "head.bias", "bottom1.0.weight"]
