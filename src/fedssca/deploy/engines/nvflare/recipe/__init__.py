"""A recipe for users of NVFlare, `fedssca.nvflare.ConstrainedRecipe`.

constrained   the recipe: its settings, and the job that NVFlare makes of it
model         what its argument `model` means
code          the user's modules that travel with the job
sites         the data of sites that are processes on this machine
server        the server's object of the job, which leaves the results in NVFlare's places
"""

from __future__ import annotations

from fedssca.deploy.engines.nvflare.recipe.constrained import ConstrainedRecipe, run_directory

__all__ = ["ConstrainedRecipe", "run_directory"]
