"""Deployments on NVFlare: the one place that knows this engine.

provision   certificates and startup kits for all parties of a project
kit         a startup kit, and the process that runs from it (`python -m` this package)
session     the submitting side's connection to the server, and what a job's files hold
job         the classes that a job names at the server and at the sites, and how they call
recipe      a recipe for users of NVFlare, who start jobs from Python
"""

from __future__ import annotations

from importlib.util import find_spec

from fedssca.deploy.engines.nvflare.kit import NvflareKit, is_kit, open_kit
from fedssca.deploy.engines.nvflare.provision import provision
from fedssca.deploy.engines.nvflare.session import open_session
from fedssca.errors import UserError
from fedssca.run.schema import ProjectFile
from fedssca.system import pip_install

__all__ = [
    "NvflareKit",
    "app_files",
    "is_kit",
    "open_kit",
    "open_session",
    "provision",
    "require",
]


def require() -> None:
    """Raise a UserError that says what to install if NVFlare is missing."""
    if find_spec("nvflare") is None:
        raise UserError(f"deployment runs on NVFlare: {pip_install('deploy')}")


def app_files(project: ProjectFile, run: str, out: str) -> dict[str, str]:
    """No files: jobs of NVFlare are made by `fedssca deploy submit`."""
    del project, run, out
    return {}
