"""A recipe for NVFlare: training with limits, used as NVFlare's own recipes are.

The job of the recipe names classes that are installed with this package, and holds the settings of
the run. It does not say where data are: every site describes its own, in a site.toml. Where all
sites are processes on this machine (SimEnv, PocEnv), the recipe writes these files for them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.executor import CollabExecutor
from nvflare.job_config.api import FedJob
from nvflare.recipe import PocEnv, ProdEnv, SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fedssca.deploy.engines.nvflare.job import JobSite
from fedssca.deploy.engines.nvflare.kit import SITES, NvflareKit
from fedssca.deploy.engines.nvflare.recipe.code import JobCode
from fedssca.deploy.engines.nvflare.recipe.model import model_section
from fedssca.deploy.engines.nvflare.recipe.server import RecipeServer
from fedssca.deploy.engines.nvflare.recipe.sites import LocalSites
from fedssca.deploy.outcome import OUTCOME, RESULTS
from fedssca.errors import UserError
from fedssca.run.config import Config, absolute, from_tree, read, render, tree_of_toml

__all__ = ["ConstrainedRecipe", "run_directory"]


class ConstrainedRecipe(Recipe):  # type: ignore[misc]
    """A run with limits as a recipe of NVFlare.

    >>> recipe = ConstrainedRecipe(                              # doctest: +SKIP
    ...     name="cancer",
    ...     config={"data": {"name": "breast-cancer"}},
    ...     model="linear",
    ...     constraints=[{"kind": "fnr", "limit": 0.02}],
    ...     num_rounds=200,
    ... )
    >>> run = recipe.execute(SimEnv(num_clients=3))              # doctest: +SKIP
    >>> folder = run_directory(run.get_result())                 # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        name: str = "fedssca",
        config: str | Path | Mapping[str, Any] | None = None,
        model: Any = None,
        constraints: Sequence[Mapping[str, Any]] | None = None,
        num_rounds: int | None = None,
        min_clients: int = 2,
        per_site_config: Mapping[str, Mapping[str, Any]] | None = None,
        model_persistor: Any = None,
        resume: str = "",
    ) -> None:
        """The pieces of a run; all but `config` replace what stands there.

        config           the TOML file of a run, or its sections, see docs/config.md
        model            a network by name ("linear", "mlp", "cnn", "package.module:function"), a
                         torch module, or {"class_path": "net.Net", "args": {...}} as in NVFlare
        constraints      the limits, each with its `kind` and `limit`
        num_rounds       the number of rounds
        min_clients      how many sites must be connected where the recipe cannot know all of them
        per_site_config  site -> keys of its site.toml (path, label, ...), in SimEnv and PocEnv
        model_persistor  saves the trained model; NVFlare's own for torch or arrays by default
        resume           the identifier of an interrupted run to continue, at the same server
                         (ProdEnv: the other environments make a new server for every run)
        """
        tree = _sections(config)
        section, files = model_section(model)
        if section:
            tree["model"] = {**tree.get("model", {}), **section}
        if constraints is not None:
            limits = [dict(entry) for entry in constraints]
            tree["problem"] = {**tree.get("problem", {}), "constraint": limits}
        if num_rounds is not None:
            tree["algorithm"] = {**tree.get("algorithm", {}), "rounds": num_rounds}
        self.config: Config = absolute(from_tree(tree))
        self.run_id = ""
        """The identifier of the run that was started last, for `resume`."""
        self._resume, self._min_clients = _identifier(resume), min_clients
        self._server = RecipeServer(render(self.config), run=resume, resume=bool(resume))
        self._code = JobCode(self.config.functions, files)
        self._sites = LocalSites(self.config)
        job = FedJob(name=name, min_clients=min_clients)
        job.set_app_packages(["fedssca"])
        if model_persistor is not None:
            self._server.persistor_id = job.to_server(model_persistor, id="persistor")
        job.to_server(self._server, id="_server")
        job.to_server(CollabController(server_obj_id="_server", sync_task_timeout=120))
        super().__init__(job)
        if per_site_config is not None:
            self.set_per_site_config({site: dict(own) for site, own in per_site_config.items()})

    def _apply_per_site_config(self, config: dict[str, dict[str, Any]]) -> None:
        self._sites.describe(config)

    def _prepare_client_apps(self) -> None:
        self._job.to_clients(JobSite(), id="_client")
        executor = CollabExecutor(client_obj_id="_client")
        self._job.to_clients(executor, id="executor", tasks=["*"])

    def process_env(self, env: ExecEnv) -> None:
        """Fit the job to where it will run: who takes part, and whether it may bring code."""
        if self._resume and not isinstance(env, ProdEnv):
            raise UserError(
                f"resume: {type(env).__name__} makes a new server for every run, which has no "
                "earlier run: leave it out; only a server of ProdEnv continues a run"
            )
        sites = self._sites_in(env)
        bare = isinstance(env, ProdEnv) and _own_kit(env) is not None
        self._code.put(self._job, bare)
        self._server.sites = sites or None
        self._job.job.min_clients = len(sites) or self._min_clients

    def run(
        self,
        env: ExecEnv,
        server_exec_params: dict[str, Any] | None = None,
        client_exec_params: dict[str, Any] | None = None,
    ) -> Any:
        """Run the recipe; a UserError says in one line why a simulated run failed."""
        self.run_id = self._server.run = self._resume or str(uuid.uuid4())
        local = isinstance(env, SimEnv | PocEnv)
        with self._sites.described(self._sites_in(env) if local else []):
            try:
                return super().run(env, server_exec_params, client_exec_params)
            except RuntimeError as error:
                if isinstance(env, SimEnv) and env.last_run_failed:
                    run_directory(Path(env.workspace_root) / self.name, error)
                raise
            finally:
                self._server.run = self._resume

    def _sites_in(self, env: ExecEnv) -> list[str]:
        """The sites in their order; empty if only the server knows who is connected."""
        if isinstance(env, SimEnv | PocEnv):
            names = list(env.clients or [f"site-{i + 1}" for i in range(env.num_clients)])
            if isinstance(env, SimEnv) and (env.num_threads < len(names) or env.gpu_config):
                raise UserError(
                    f"SimEnv: all {len(names)} sites of a run answer at the same time: leave out "
                    "num_threads and gpu_config"
                )
            return names
        self._sites.check_elsewhere()
        kit = _own_kit(env)
        return kit.sites if kit is not None else []


def run_directory(result: str | Path | None, cause: BaseException | None = None) -> Path:
    """The run directory among the results of a job: result.json, metrics.jsonl, model.npz and more.

    `result` is what `get_result` of NVFlare's run returns. A UserError says in one line why the run
    failed, or that there is none.
    """
    found = sorted(Path(result).rglob(f"{RESULTS}/{OUTCOME}")) if result is not None else []
    if not found:
        raise UserError(
            f"{result} has no results of a fedssca run: the log of the job's server says why; in "
            "PocEnv keep the files with get_result(clean_up=False)"
        ) from cause
    outcome = json.loads(found[0].read_text())
    if outcome["state"] != "done":
        raise UserError(outcome["message"]) from cause
    return found[0].parent


def _identifier(resume: str) -> str:
    """What `resume` names, as a recipe's run_id is written."""
    try:
        return str(uuid.UUID(resume)) if resume else ""
    except (ValueError, AttributeError):
        raise UserError(
            f"resume = {resume!r}: give the identifier of a run, as in recipe.run_id"
        ) from None


def _sections(config: str | Path | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(config, str | Path):
        return tree_of_toml(read(Path(config)), str(config))
    return dict(config or {})


def _own_kit(env: ExecEnv) -> NvflareKit | None:
    """The kit of `fedssca deploy provision` that an environment submits with, if it is one."""
    place = Path(getattr(env, "startup_kit_location", ""))
    return NvflareKit(place) if (place / SITES).is_file() else None
