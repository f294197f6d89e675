"""The project file: the server, its port and the sites that take part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedssca.errors import UserError
from fedssca.run.config import read, section
from fedssca.run.schema import ProjectFile, validate
from fedssca.run.schema.template import commented

__all__ = ["new_project", "read_project", "site_names", "write_app", "write_template"]

HEAD = """\
# The parties of a deployment. `fedssca deploy provision` makes a startup kit for each of them.

"""


def site_names(count: int) -> list[str]:
    """The names site-1, site-2, ..."""
    return [f"site-{i + 1}" for i in range(count)]


def new_project(sites: int, server: str, port: int) -> ProjectFile:
    """A project with the sites site-1, site-2, ..."""
    content = {"server": server, "port": port, "sites": site_names(sites)}
    return validate(ProjectFile, content)


def write_template(file: Path, project: ProjectFile) -> None:
    """Write a commented project file to edit."""
    if file.exists():
        raise UserError(f"{file} exists already: edit it, or choose another name")
    file.write_text(HEAD + commented(project))


def write_app(folder: Path, project: ProjectFile, files: Mapping[str, str]) -> None:
    """Write the files of an engine's app and the project file into a new folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already: choose another name")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "project.toml").write_text(HEAD + commented(project))


def read_project(file: Path) -> ProjectFile:
    """Read and check project.toml."""
    return section(ProjectFile, read(file), str(file))
