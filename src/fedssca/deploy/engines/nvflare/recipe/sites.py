"""The data of sites that are processes on this machine, in NVFlare's simulator and POC mode.

Each site gets a site.toml: with what the recipe says of it, or with the share of the run's own data
that this client has in `fedssca run`. The sites find it by the environment that they inherit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from fedssca.deploy.engines.nvflare.kit import SETTINGS, SITE_FILE, SITE_KIT
from fedssca.deploy.engines.nvflare.provision import provision
from fedssca.deploy.local import one_place_limits, write_site_files
from fedssca.errors import UserError
from fedssca.run.config import Config
from fedssca.run.privacy import hides_sums
from fedssca.run.schema import ProjectFile, SiteFile, validate
from fedssca.system import keep_compiled_programs

__all__ = ["LocalSites"]

FILES = ("path", "test_path", "predict", "order")
"""The keys of a site.toml that are paths."""


class LocalSites:
    """The site files of one recipe, in a folder that lasts as long as the recipe."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._given: dict[str, dict[str, Any]] = {}

    def describe(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the keys of each site's site.toml; a UserError if one is wrong."""
        for site, keys in given.items():
            validate(SiteFile, keys, f"per_site_config[{site!r}]")
        self._given = {site: dict(keys) for site, keys in given.items()}

    def check_elsewhere(self) -> None:
        """Raise a UserError if the recipe describes data of sites that are on other machines."""
        if self._given:
            raise UserError(
                "per_site_config is for SimEnv and PocEnv, where all data are on this machine: in "
                "ProdEnv each site describes its data itself, in its site.toml"
            )

    @contextmanager
    def described(self, sites: Sequence[str]) -> Iterator[None]:
        """In this block, processes that are started as these sites find their data."""
        if not sites:
            yield
            return
        folder = Path(tempfile.mkdtemp(prefix="fedssca-recipe-"))
        weakref.finalize(self, shutil.rmtree, folder, True)
        if self._given:
            self._write_given(sites, folder)
        else:
            write_site_files(self._config, len(sites), folder, sites)
        keep_compiled_programs()  # once for all sites
        new = {name: value for name, value in SETTINGS.items() if name not in os.environ}
        new[SITE_FILE] = str(folder / "{site}.toml")
        if self._signs():
            provision(ProjectFile("local", "localhost", 8002, list(sites)), folder / "kits")
            new[SITE_KIT] = str(folder / "kits" / "{site}")
        with _environment(new), warnings.catch_warnings():
            # JAX warns of forks that go on; the simulator's process begins with another program.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            yield

    def _write_given(self, sites: Sequence[str], folder: Path) -> None:
        if missing := [site for site in sites if site not in self._given]:
            raise UserError(
                f"per_site_config says nothing of {', '.join(missing)}: describe the data of every "
                "site, or of none"
            )
        for site in sites:
            keys = {"limits": one_place_limits(self._config)} | self._given[site]
            for name in FILES:
                if keys.get(name):
                    keys[name] = str(Path(keys[name]).expanduser().absolute())
            (folder / f"{site}.toml").write_text(tomli_w.dumps(keys))

    def _signs(self) -> bool:
        """Whether the sites sign what they send each other, so that they need certificates."""
        config = self._config
        columns = config.data.split == "feature"
        return columns or hides_sums(config) or config.problem.certified


@contextmanager
def _environment(new: Mapping[str, str]) -> Iterator[None]:
    """In this block, the variables of the environment have these values."""
    before = {name: os.environ.pop(name, None) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
