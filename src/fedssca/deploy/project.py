"""The project file: the server, its port and the sites that take part."""

from __future__ import annotations

from pathlib import Path

from fedssca.errors import UserError
from fedssca.run.config import read, section
from fedssca.run.schema import ProjectFile, validate
from fedssca.run.schema.template import commented

__all__ = ["read_project", "site_names", "write_template"]

HEAD = """\
# The parties of a deployment. `fedssca deploy provision` makes a startup kit for each of them.

"""


def site_names(count: int) -> list[str]:
    """The names site-1, site-2, ..."""
    return [f"site-{i + 1}" for i in range(count)]


def write_template(file: Path, sites: int, server: str, port: int) -> None:
    """Write a commented project file to edit."""
    if file.exists():
        raise UserError(f"{file} exists already: edit it, or choose another name")
    content = {"server": server, "port": port, "sites": site_names(sites)}
    project = validate(ProjectFile, content)
    file.write_text(HEAD + commented(project))


def read_project(file: Path) -> ProjectFile:
    """Read and check project.toml."""
    return section(ProjectFile, read(file), str(file))
