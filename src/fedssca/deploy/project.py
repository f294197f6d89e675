"""Who takes part: a project file, and from it one startup kit a party and the CA's key apart."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fedssca.deploy import require_engine
from fedssca.errors import UserError
from fedssca.run.config import read, section
from fedssca.run.schema import ProjectFile

__all__ = ["provision", "read_project", "write_template"]

SUBMITTER = "submit@fedssca.org"
TEMPLATE = """\
# A deployment: who takes part. `fedssca deploy provision` makes a startup kit for each party.

# The project's name.
name = "study"

# The machine that runs `fedssca deploy server`, by the name under which all sites reach it,
# and the one port that must be open there. Sites open none.
server = "{server}"
port = {port}

# One entry a site. The order counts: messages are added in it, and data.label_holder counts
# from 0 along it.
sites = [{sites}]
"""


def write_template(file: Path, sites: int, server: str, port: int) -> None:
    """A commented project file to edit."""
    if file.exists():
        raise UserError(f"{file} exists already: edit it, or choose another name")
    names = ", ".join(f'"site-{i + 1}"' for i in range(sites))
    file.write_text(TEMPLATE.format(server=server, port=port, sites=names))


def read_project(file: Path) -> ProjectFile:
    """project.toml, checked."""
    return section(ProjectFile, read(file), str(file))


def provision(project: ProjectFile, out: Path) -> dict[str, Path]:
    """Kits for all parties below `out`: server, the sites, submit; and ca, to be locked away."""
    require_engine()
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty: kits are made once; choose another --out")
    plan = _plan(project)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            prepared = prepare_project(plan)
            Provisioner(scratch, prepare_builders(plan)).provision(prepared)
        made = Path(scratch) / project.name
        if not (made / "prod_00").is_dir():
            raise UserError(f"the kits could not be made: {' '.join(said.getvalue().split())}")
        parties = {"server": project.server, "submit": SUBMITTER} | {s: s for s in project.sites}
        for party, name in parties.items():
            shutil.move(made / "prod_00" / name, out / party)
        shutil.move(made / "state", out / "ca")
    (out / "submit" / "sites.json").write_text(json.dumps(project.sites))
    for folder in (*parties, "ca"):
        (out / folder).chmod(0o700)
    return {party: out / party for party in (*parties, "ca")}


def _plan(project: ProjectFile) -> dict[str, Any]:
    organisation = "fedssca"
    server = {
        "name": project.server,
        "type": "server",
        "org": organisation,
        "fed_learn_port": project.port,
        "admin_port": project.port,
    }
    sites = [{"name": name, "type": "client", "org": organisation} for name in project.sites]
    person = {"name": SUBMITTER, "type": "admin", "org": organisation, "role": "project_admin"}
    return {
        "api_version": 3,
        "name": project.name,
        "description": "fedssca",
        "participants": [server, *sites, person],
        "builders": [
            {
                "path": "nvflare.lighter.impl.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
        ],
    }
