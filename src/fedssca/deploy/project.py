"""The project file: the server, its port and the sites that take part."""

from __future__ import annotations

from pathlib import Path

from fedssca.errors import UserError
from fedssca.run.config import read, section
from fedssca.run.schema import ProjectFile

__all__ = ["read_project", "write_template"]

TEMPLATE = """\
# The parties of a deployment. `fedssca deploy provision` makes a startup kit for each of them.

# The project's name.
name = "study"

# The machine that runs `fedssca deploy server`, by the name under which all sites reach it,
# and the one port that must be open there. Sites need no open port.
server = "{server}"
port = {port}

# One entry per site. Messages are added in this order, and data.label_holder counts from 0
# along it.
sites = [{sites}]
"""


def write_template(file: Path, sites: int, server: str, port: int) -> None:
    """Write a commented project file to edit."""
    if file.exists():
        raise UserError(f"{file} exists already: edit it, or choose another name")
    names = ", ".join(f'"site-{i + 1}"' for i in range(sites))
    file.write_text(TEMPLATE.format(server=server, port=port, sites=names))


def read_project(file: Path) -> ProjectFile:
    """Read and check project.toml."""
    return section(ProjectFile, read(file), str(file))
