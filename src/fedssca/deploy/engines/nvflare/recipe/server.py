"""The server's object of a job that a recipe made: results go where NVFlare's users look for them.

metrics       NVFlare's analytics events, one number each, for the receivers of the job
the model     the job's model persistor
all else      the folder `fedssca` among the job's results: the files of the run directory, and
              outcome.json, which says how the run ended
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.analytix import AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.np.constants import NPConstants
from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.collab import collab

from fedssca.deploy.engine import JobOrder
from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.engines.nvflare.kit import TOPIC
from fedssca.deploy.engines.nvflare.link import collab_call
from fedssca.deploy.outcome import OUTCOME, RESULTS, RUN_FILES
from fedssca.deploy.server.job import ServerJob
from fedssca.errors import UserError
from fedssca.problem.own import own_state
from fedssca.run.export.trackers import returned_numbers, row_numbers
from fedssca.run.model import load_model
from fedssca.run.record import RunDirectory
from fedssca.system import end_with_parent

__all__ = ["RecipeServer"]


class RecipeServer:
    """Carries out a run, and leaves its results in the places of NVFlare.

    NVFlare writes the arguments of the constructor into the job's files, from the attributes that
    have their names.
    """

    def __init__(
        self,
        config: str,
        sites: list[str] | None = None,
        run: str = "",
        resume: bool = False,
        persistor_id: str = "",
    ) -> None:
        """`config` is a TOML; without `sites`, all that are connected take part, by name.

        `run` is the identifier of the run, with hyphens or without; the server chooses one if it
        is empty. `persistor_id` names the component of the job that saves the model.
        """
        self.config, self.sites, self.run = config, sites, run
        self.resume, self.persistor_id = resume, persistor_id

    @collab.main
    def main(self) -> None:
        """Carry out the run; a UserError ends the job if the run fails."""
        end_with_parent()
        engine, workspace = collab.fl_ctx.get_engine(), collab.workspace
        connected = sorted(proxy.name for proxy in collab.clients)
        run = self.run or str(uuid.uuid4())
        order = JobOrder(run.replace("-", ""), self.sites or connected, self.config, self.resume)
        job = ServerJob(order)
        engine.register_app_command(TOPIC, lambda topic, asked, fl_ctx: job.command(asked))
        runs = Path(workspace.get_root_dir()) / "runs"
        tell = _Analytics(engine)

        def on_row(row: dict[str, Any]) -> None:
            assert job.folder is not None
            tell.numbers(row_numbers(job.folder, row), row["round"])

        outcome: dict[str, Any]
        if self.resume and not (runs / order.run / "config.toml").is_file():
            known = f"resume = {run!r}: the server has no run of this identifier"
            outcome = {"state": "failed", "message": f"{known}: start it again without resume"}
        else:
            outcome = job.finish(CallLink(collab_call), set(connected), runs, on_row)
        results = Path(workspace.get_result_root(collab.fl_ctx.get_job_id())) / RESULTS
        _copy(job.folder, results)
        if outcome["state"] == "away":
            outcome |= {"message": f"{outcome['message']}; continue with resume = {run!r}"}
        told = outcome | {"run": run}
        (results / OUTCOME).write_text(json.dumps(told, indent=2))
        if outcome["state"] != "done":
            raise UserError(outcome["message"])
        assert job.folder is not None
        final = RunDirectory.open(job.folder).result() or {}
        tell.numbers(returned_numbers(job.folder, final), final["round"])
        self._persist(job.folder, engine)

    def _persist(self, folder: Path, engine: Any) -> None:
        """Save the model: a torch module by the names of its parameters, others as one array."""
        model = load_model(folder)
        network, weights = model.network, {"": model.w}
        if ":" in network.name:
            made = network.name, network.features, network.classes, network.options
            weights = own_state(*made, model.w)
        with engine.new_context() as fl_ctx:
            saver = engine.get_component(self.persistor_id) if self.persistor_id else None
            if saver is None:
                saver = _default_persistor(weights)
                saver.handle_event(EventType.START_RUN, fl_ctx)
            named = {name or NPConstants.NUMPY_KEY: array for name, array in weights.items()}
            saver.save(make_model_learnable(named, {}), fl_ctx)


def _default_persistor(weights: dict[str, np.ndarray]) -> Any:
    """NVFlare's persistor of torch models (FL_global_model.pt) or of arrays (models/server.npy)."""
    if "" in weights:
        return NPModelPersistor()
    from nvflare.app_opt.pt.file_model_persistor import PTFileModelPersistor

    return PTFileModelPersistor()


def _copy(run: Path | None, results: Path) -> None:
    """Copy the files of a run directory, as far as there are any, to the results of the job."""
    results.mkdir(parents=True, exist_ok=True)
    for name in RUN_FILES:
        if run is not None and (run / name).is_file():
            (results / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(run / name, results / name)


class _Analytics:
    """Fires NVFlare's analytics events at the server."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._sender = engine, FLComponent()

    def numbers(self, numbers: dict[str, Any], step: int) -> None:
        """One event for each number; other values are left out."""
        for tag, value in numbers.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                scalar = AnalyticsDataType.SCALAR
                said = create_analytic_dxo(tag, float(value), scalar, global_step=step)
                with self._engine.new_context() as fl_ctx:
                    send_analytic_dxo(self._sender, said, fl_ctx)
