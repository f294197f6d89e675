"""Certificates and startup kits for all parties of a project."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fedssca.deploy.engines.nvflare.kit import SITES
from fedssca.deploy.instructions import write_instructions
from fedssca.deploy.roster import SITE, signed_roster
from fedssca.errors import UserError
from fedssca.run.schema import ProjectFile

__all__ = ["provision"]

SUBMITTER = "submit@fedssca.org"


def provision(project: ProjectFile, out: Path) -> dict[str, Path]:
    """Make the kits of all parties below `out`: server, the sites, submit, and ca.

    "ca" holds the key of the certificate authority, which must be kept offline.
    """
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
    listed = _roster(project, out)
    for party in parties:
        (out / party / SITES).write_text(listed)
    kits = {party: out / party for party in (*parties, "ca")}
    for folder in kits.values():
        for general in folder.rglob("readme.txt"):  # those of NVFlare say to run start.sh
            general.unlink()
        folder.chmod(0o700)
    write_instructions(project, kits, "NVFlare", "deploy", "client.key")
    return kits


def _roster(project: ProjectFile, out: Path) -> str:
    """The list of all parties, signed with the key of the CA: the only use of that key."""
    roles = {"server": "server", "submit": "submit"} | dict.fromkeys(project.sites, SITE)
    parties = {}
    for party, role in roles.items():
        file = "server.crt" if role == "server" else "client.crt"
        parties[party] = (role, (out / party / "startup" / file).read_bytes())
    authority = json.loads((out / "ca" / "cert.json").read_text())
    return signed_roster(project.name, parties, authority["root_pri_key"].encode())


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
