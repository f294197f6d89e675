"""The table of commands; the module of a command is imported when the command is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fedssca.system import pip_install, starting_up

__all__ = ["COMMANDS", "root_command"]

COMMANDS = {
    "run": "Train a model as a TOML file says.",
    "tune": "Search settings for each method, with the same number of trials for all.",
    "predict": "Predict the rows of a file with the model of a finished run.",
    "report": "Write one HTML file about runs that opens in any browser, offline.",
    "certificate": "Check what a run promises for new rows, and watch whether it still holds.",
    "ui": "Watch, compare, start, stop and resume runs in a page on this machine.",
    "export": "Write the model of a run for other programs, or its rows for TensorBoard or MLflow.",
    "deploy": "Train across machines: each site keeps its data and starts one command.",
    "psi": "Find the rows that all parties have, without showing the other rows.",
    "audit": "Tell what each observer of a run could learn about its data.",
    "data": "Fetch, list and describe data sets.",
    "schema": "Print the JSON Schema of a run's TOML, for completion in editors.",
    "reproduce": "Draw the figures of the paper again and check its statements.",
    "bench": "Measure the time of a round.",
    "doctor": "Check this installation, and say what to do about what is wrong.",
}
"""Every command and its line in `fedssca --help`: the first line of the command's own help.

The module `fedssca.cli.<command>` holds a `typer.Typer` named `app`.
"""


class LazyCommands(TyperGroup):
    """A group that lists its commands from the table and imports a module when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Import and return the command that the arguments name."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and command(str(name)), rest


def command(name: str) -> Any:
    """Return a command of the table; this imports its module."""
    with starting_up():
        made = typer.main.get_command(import_module(f"fedssca.cli.{name}").app)
    made.name = name
    _hide_types_of_flags(made)
    return made


def root_command() -> Any:
    """Return the command `fedssca`."""
    app = typer.Typer(cls=LazyCommands, no_args_is_help=True, rich_markup_mode="rich")
    app.callback(invoke_without_command=True)(root)
    made: Any = typer.main.get_command(app)
    for name, line in COMMANDS.items():
        made.add_command(TyperCommand(name, short_help=line))
    _hide_types_of_flags(made)
    return made


def root(
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
) -> None:
    """Federated optimisation with constraints: train together, keep the limits you state."""
    if version:
        from fedssca.run.versions import extras, versions

        found = versions()
        for name in sorted(found, key=lambda name: name != "fedssca"):
            print(f"{name} {found[name]}")
        for extra, packages in extras().items():
            installed = ", ".join(" ".join(package) for package in packages.items())
            missing = f"not installed: {pip_install(extra)}"
            print(f"extra {extra}: {installed if all(packages.values()) else missing}")
        raise typer.Exit


def _hide_types_of_flags(made: Any) -> None:
    """Remove the word <bool> from the help of options that take no value."""
    for option in made.get_params(typer.Context(made)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for part in getattr(made, "commands", {}).values():
        _hide_types_of_flags(part)
