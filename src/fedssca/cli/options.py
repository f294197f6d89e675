"""Options that several commands share, and small things that every command needs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedssca.errors import UserError

if TYPE_CHECKING:
    from fedssca.run.config import Config

__all__ = [
    "Json",
    "MLflow",
    "More",
    "Personal",
    "Quiet",
    "Settings",
    "TensorBoard",
    "check_more",
    "data_name",
    "new_app",
    "progress_console",
    "read_config",
    "separated",
    "timestamp",
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a key of the TOML file: section.key=value."),
]
TensorBoard = Annotated[
    Path | None, typer.Option("--tensorboard", help="A folder for the event files of TensorBoard.")
]
MLflow = Annotated[
    str | None,
    typer.Option("--mlflow", help="The tracking URI of MLflow, such as sqlite:///mlflow.db."),
]
More = Annotated[
    int | None, typer.Option("--more", help="With --resume: train for so many more rounds.")
]
Personal = Annotated[
    str,
    typer.Option(
        help="Whose parts of the network are used, if the run has model.personal: a client, or the "
        "file of a site."
    ),
]


def new_app(help: str | None = None) -> typer.Typer:
    """Return a `typer.Typer` for the command, or group of commands, of one module."""
    return typer.Typer(
        help=help,
        no_args_is_help=help is not None,
        add_completion=False,
        rich_markup_mode="rich",
    )


def progress_console(quiet: bool, as_json: bool) -> Console:
    """Return the console for progress and notes: stderr, or nothing."""
    return Console(stderr=True, quiet=quiet or as_json)


def separated(names: str) -> list[str]:
    """Return the names in a text that separates them by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def read_config(file: Path | None, settings: list[str] | None) -> Config:
    """Read the TOML file of a run, or the embedded default, and apply the settings."""
    from fedssca.run.config import embedded_default, parse, read

    text = read(file) if file else embedded_default()
    return parse(text, settings or (), source=str(file or "the embedded default"))


def check_more(more: int | None, resume: Path | None) -> None:
    """Raise a UserError if more rounds are asked for without a run that would get them."""
    if more is not None and resume is None:
        raise UserError(f"--more {more} continues a run: name its directory with --resume")


def data_name(config: Config) -> str:
    """Return a short name of the data of a run, for the name of its folder."""
    data = config.data
    if data.query:
        return "query"
    return Path(data.paths[0]).stem.strip("*?") or "files" if data.paths else data.name


def timestamp() -> str:
    """Return the present time as a part of a folder's name."""
    return datetime.now().strftime("%Y%m%d-%H%M%S")
