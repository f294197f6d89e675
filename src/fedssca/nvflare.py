"""Training with limits for users of NVFlare.

ConstrainedRecipe   a recipe, used as NVFlare's own are: in SimEnv, PocEnv and ProdEnv
run_directory       the files of the run (result.json, model.npz, ...) in the results of its job
"""

from __future__ import annotations

from fedssca.deploy.engines.nvflare import require

require()

from fedssca.deploy.engines.nvflare.recipe import ConstrainedRecipe, run_directory  # noqa: E402

__all__ = ["ConstrainedRecipe", "run_directory"]
