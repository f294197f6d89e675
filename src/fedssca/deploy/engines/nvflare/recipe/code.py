"""The code that a recipe's job brings: the user's own modules, and a note for NVFlare.

NVFlare lets a job name classes that a site lists (`class_allow_list` in its resources), or any
class if the job brings code and its submitter has the right "byoc". The classes of this package are
in no such list of NVFlare's own kits, so the job there brings a note, and asks for that right. The
kits of `fedssca deploy provision` list them, and take no code at all.
"""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedssca.errors import UserError

__all__ = ["JobCode"]

NOTE = """\
This job names classes of the package fedssca, which is installed at the server and at every site.
The folder of this note makes NVFlare ask for the right "byoc" instead of looking them up in a list.
"""


class JobCode:
    """The source files that the functions of a run come from, unless they are installed."""

    def __init__(self, functions: Sequence[str], files: Sequence[Path]) -> None:
        homes = [name.partition(":")[0] for name in functions]
        found = [*files, *(file for home in homes if (file := _source(home)) is not None)]
        self._files = [str(file.resolve()) for file in dict.fromkeys(found) if not _installed(file)]
        self._note = Path(tempfile.mkdtemp(prefix="fedssca-recipe-")) / "fedssca.txt"
        self._note.write_text(NOTE)
        weakref.finalize(self, shutil.rmtree, self._note.parent, True)

    def put(self, job: Any, bare: bool) -> None:
        """Add the code to a job, or take it out again if it is to be `bare`."""
        if bare and self._files:
            raise UserError(
                f"{', '.join(Path(file).name for file in self._files)}: kits of fedssca take no "
                "code with a job; install it as a package at the server and at every site"
            )
        app = job._deploy_map["server"].app_config
        note = (str(self._note), None, "custom")
        for held, own in ((app.ext_scripts, self._files), (app.file_sources, [note])):
            held[:] = [each for each in held if each not in own] + ([] if bare else list(own))


def _source(module: str) -> Path | None:
    """The file of a module; None if it is not on this machine."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def _installed(file: Path) -> bool:
    """Whether a file belongs to an installed package, which sites install too."""
    paths = sysconfig.get_paths()
    roots = [Path(paths[name]).resolve() for name in ("purelib", "platlib", "stdlib")]
    return any(file.resolve().is_relative_to(root) for root in roots)
