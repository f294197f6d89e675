"""The recipe for NVFlare: what becomes of its arguments, and what it refuses.

It is run in NVFlare's simulator by the page docs/nvflare.md, which `tests/test_docs.py` carries
out, and in a provisioned deployment by `test_real.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedssca.errors import UserError
from fedssca.run.schema import ProjectFile

pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")

from nvflare.recipe import ProdEnv, SimEnv

import fedssca.nvflare
from fedssca.deploy.engines import nvflare
from fedssca.deploy.engines.nvflare.kit import ALLOWED, ALLOWED_AT_SERVER
from fedssca.nvflare import ConstrainedRecipe, run_directory

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CANCER = {"data": {"name": "breast-cancer"}}
NETS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.width, self.layer = width, nn.Linear(30, 2)

class Forgetful(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(30, 2)
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    (tmp_path / "recipe_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recipe_nets", raising=False)
    return __import__("recipe_nets")


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    project = ProjectFile("study", "localhost", 8002, ["bonn", "ulm"])
    return nvflare.provision(project, tmp_path_factory.mktemp("kits") / "made")


def exported(recipe: ConstrainedRecipe, folder: Path, env: Any = None) -> dict[str, Any]:
    """The settings of an exported job's server, and the files that it brings."""
    recipe.export(str(folder), env=env)
    app = folder / "fedssca" / "app"
    server, site = (
        json.loads((app / "config" / f"config_fed_{party}.json").read_text())
        for party in ("server", "client")
    )
    parts = {part["id"]: part for part in server["components"]}
    classes = [part["path"] for part in (*server["components"], *server["workflows"])]
    classes_of_sites = [part["path"] for part in site["components"]]
    classes_of_sites += [part["executor"]["path"] for part in site["executors"]]
    return {
        "server": parts["_server"]["args"],
        "classes": classes,
        "classes of sites": classes_of_sites,
        "custom": sorted(file.name for file in (app / "custom").rglob("*")),
        "meta": json.loads((folder / "fedssca" / "meta.json").read_text()),
    }


def test_both_imports_give_the_recipe() -> None:
    from fedssca import nvflare as ours

    assert ours.ConstrainedRecipe is fedssca.nvflare.ConstrainedRecipe is ConstrainedRecipe


def test_the_pieces_replace_what_stands_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        '[data]\nname = "breast-cancer"\n[algorithm]\nrounds = 7\nbatch = 9\n'
    )
    recipe = ConstrainedRecipe(
        config=tmp_path / "run.toml",
        model="linear",
        constraints=[{"kind": "fnr", "limit": 0.02}],
        num_rounds=30,
    )
    config = recipe.config
    assert (config.model.name, config.algorithm.rounds, config.algorithm.batch) == ("linear", 30, 9)
    assert [(entry.kind, entry.limit) for entry in config.problem.constraint] == [("fnr", 0.02)]
    with pytest.raises(UserError, match=r"unknown key 'knd' in \[problem\.constraint"):
        ConstrainedRecipe(config=CANCER, constraints=[{"knd": "fnr", "limit": 0.02}])
    with pytest.raises(UserError, match=r"cannot read .*none\.toml"):
        ConstrainedRecipe(config=tmp_path / "none.toml")


def test_a_job_for_our_kits_names_only_what_they_allow(
    kits: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    from nvflare.recipe import add_experiment_tracking

    recipe = ConstrainedRecipe(config=CANCER, model="linear")
    add_experiment_tracking(recipe, "tensorboard")
    submit = nvflare.open_kit(kits["submit"])
    env = ProdEnv(startup_kit_location=str(submit.path), username=submit.name)
    job = exported(recipe, tmp_path, env)
    assert job["server"]["sites"] == ["bonn", "ulm"]
    assert "run" not in job["server"]  # each submission of the exported job is another run
    assert job["custom"] == []
    assert job["meta"]["min_clients"] == 2
    for name, allowed in (
        ("classes", [*ALLOWED, *ALLOWED_AT_SERVER]),
        ("classes of sites", ALLOWED),
    ):
        assert [path for path in job[name] if not path.startswith(tuple(allowed))] == []


def test_code_travels_except_to_our_kits(kits: dict[str, Path], nets: Any, tmp_path: Path) -> None:
    recipe = ConstrainedRecipe(config=CANCER, model=nets.Net(width=4))
    job = exported(recipe, tmp_path / "a", SimEnv(clients=["north", "south"]))
    assert job["custom"] == ["fedssca.txt", "recipe_nets.py"]
    assert job["server"]["sites"] == ["north", "south"]
    settings = tomllib.loads(job["server"]["config"])["model"]
    assert (settings["name"], settings["options"]) == ("recipe_nets:Net", {"width": 4})
    submit = nvflare.open_kit(kits["submit"])
    env = ProdEnv(startup_kit_location=str(submit.path), username=submit.name)
    with pytest.raises(UserError, match=r"recipe_nets\.py: kits of fedssca take no code"):
        exported(recipe, tmp_path / "b", env)


def test_a_site_finds_its_data_by_the_environment(tmp_path: Path) -> None:
    recipe = ConstrainedRecipe(config=CANCER | {"privacy": {"secure_sum": True}}, model="linear")
    before = dict(os.environ)
    with recipe._sites.described(["north", "south"]):
        file = Path(os.environ["FEDSSCA_SITE"].replace("{site}", "south"))
        told = tomllib.loads(file.read_text())
        header, *rows = (file.parent / told["path"]).read_text().splitlines()
        assert (Path(os.environ["FEDSSCA_KIT"].replace("{site}", "north")) / "sites.json").exists()
    assert {name for name in os.environ if name.startswith("FEDSSCA")} == {
        name for name in before if name.startswith("FEDSSCA")
    }
    assert (header.count(","), told["label"] in header) == (30, True)
    assert len(rows) == 228  # half of the 456 training rows
    assert file.exists()  # POC mode reads it later
    del recipe
    assert not file.exists()


def test_sites_may_be_described_one_by_one(kits: dict[str, Path], tmp_path: Path) -> None:
    own = {site: {"path": f"{site}.csv", "label": "ill"} for site in ("north", "south")}
    recipe = ConstrainedRecipe(config=CANCER, model="linear", per_site_config=own)
    assert recipe.configured_sites() == ["north", "south"]
    with recipe._sites.described(["south", "north"]):
        file = Path(os.environ["FEDSSCA_SITE"].replace("{site}", "south"))
        told = tomllib.loads(file.read_text())
    assert told["path"] == str(Path("south.csv").absolute())
    assert (told["label"], told["limits"]["least_rows"]) == ("ill", 1)
    with (
        pytest.raises(UserError, match="says nothing of east"),
        recipe._sites.described(["north", "east"]),
    ):
        pass
    submit = nvflare.open_kit(kits["submit"])
    env = ProdEnv(startup_kit_location=str(submit.path), username=submit.name)
    with pytest.raises(UserError, match="each site describes its data itself"):
        recipe.run(env)
    with pytest.raises(UserError, match=r"per_site_config\['north'\].*pth"):
        ConstrainedRecipe(config=CANCER, per_site_config={"north": {"pth": "a.csv"}})


def test_sites_that_take_turns_are_refused(tmp_path: Path) -> None:
    recipe = ConstrainedRecipe(config=CANCER, model="linear")
    with pytest.raises(UserError, match="leave out num_threads"):
        recipe.run(SimEnv(num_clients=3, num_threads=1, workspace_root=str(tmp_path)))


def test_only_a_server_that_stays_continues_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"resume = 'mine': give the identifier of a run"):
        ConstrainedRecipe(config=CANCER, model="linear", resume="mine")
    recipe = ConstrainedRecipe(config=CANCER, model="linear", resume="6" * 32)
    with pytest.raises(UserError, match="SimEnv makes a new server for every run"):
        recipe.run(SimEnv(num_clients=2, workspace_root=str(tmp_path)))


def test_models_that_cannot_be_made_again(nets: Any) -> None:
    import torch

    given = {"class_path": "recipe_nets.Net", "args": {"width": 3}}
    model = ConstrainedRecipe(config=CANCER, model=given).config.model
    assert (model.name, model.options) == ("recipe_nets:Net", {"width": 3})
    for wrong, words in (
        (nets.Forgetful(3), r"keeps no attribute 'width'.*recipe_nets\.Forgetful"),
        (torch.nn.Linear(30, 2), "a Linear of torch cannot be made again"),
        (3, "model is a int: give a name"),
        ({"args": {}}, "give {"),
    ):
        with pytest.raises(UserError, match=words):
            ConstrainedRecipe(config=CANCER, model=wrong)
    local = type("Local", (nets.Net,), {"__module__": "__main__"})
    with pytest.raises(UserError, match="stands in the script itself"):
        ConstrainedRecipe(config=CANCER, model=local())


def test_results_without_a_run(tmp_path: Path) -> None:
    for result in (None, tmp_path):
        with pytest.raises(UserError, match="has no results of a fedssca run"):
            run_directory(result)
    place = tmp_path / "workspace" / "fedssca"
    place.mkdir(parents=True)
    (place / "outcome.json").write_text('{"state": "away", "message": "ulm is not connected"}')
    with pytest.raises(UserError, match=r"^ulm is not connected$"):
        run_directory(tmp_path)
    (place / "outcome.json").write_text('{"state": "done"}')
    assert run_directory(str(tmp_path)) == place
