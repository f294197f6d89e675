"""The other two files that users write: `site.toml` of a site, and the project file."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, Strict, model_validator
from pydantic.dataclasses import dataclass

from fedssca.run.schema.limits import SiteLimits
from fedssca.run.schema.types import MODEL, Flag, Real, TextOrTexts, invalid, key

__all__ = ["ProjectFile", "SiteFile"]

PARTY = r"^[a-z0-9][a-z0-9-]{0,40}$"
HOST = r"^[A-Za-z0-9.-]+$"
RESERVED = frozenset({"ca", "server", "submit"})
"""Names of the kits that are no sites."""


def _party_name(name: str) -> str:
    if not re.fullmatch(PARTY, name):
        raise invalid("use small letters, digits and hyphens, at most 41", "", name)
    return name


def _host_name(name: str) -> str:
    if not re.fullmatch(HOST, name):
        raise invalid("it is not a host name: use letters, digits, dots and hyphens", "", name)
    return name


PartyName = Annotated[str, AfterValidator(_party_name), Field(json_schema_extra={"pattern": PARTY})]
HostName = Annotated[str, AfterValidator(_host_name), Field(json_schema_extra={"pattern": HOST})]


@dataclass(frozen=True, config=MODEL)
class SiteFile:
    """The rows or columns that one site contributes; site.toml never leaves the site."""

    path: str = key(
        "A text file such as .csv (also .gz), or an .npz or .parquet file. A relative path starts "
        "at the folder of site.toml.",
        default="",
    )
    test_path: str = key(
        "A file like `path` with the test rows. Without it the run sets some rows aside.",
        default="",
    )
    database: str = key(
        "A SQLAlchemy URL to be used in place of a file, or env:NAME to read the URL from an "
        "environment variable.",
        default="",
    )
    query: str = key("The SQL query that gives the rows of the database.", default="")
    label: TextOrTexts = key(
        "The label column. Without it the run's data.label is used, or else y. For several labels "
        "at once it is a list of columns, in the order of the run's data.label.",
        default="",
    )
    id: str = key(
        "The column that identifies rows. Parties that hold columns need it. It is not a feature.",
        default="",
    )
    ignore: list[str] = key("Columns to leave out.", default=[])
    columns: list[str] = key(
        "The names of the columns of `path`, if it has no line with names.", default=[]
    )
    missing: list[str] = key(
        "Cells that mean a missing value, beside empty cells, ?, NA, N/A, NaN and NULL.",
        default=[],
    )
    scale: Real = key(
        "The factor by which the array x of an NPZ file is multiplied. 0 means that numbers are "
        "standardised and bytes divided by their maximum.",
        default=0.0,
        ge=0,
    )
    predict: str = key(
        "New rows for `fedssca deploy predict`: a file like `path`, without labels.", default=""
    )
    share_ids: Flag = key(
        "The submitter of a joint prediction, and the server, may see the ids of the new rows.",
        default=False,
    )
    order: str = key(
        "A folder for rows.csv, test.csv and new.csv, which list the rows used when parties hold "
        "columns.",
        default="",
    )
    hidden: Flag = key(
        "The site takes part only in runs that hide its messages (privacy.secure_sum or "
        "privacy.homomorphic). It is short for limits.secure_sum = true.",
        default=False,
    )
    named: Flag = key(
        "If limits are certified at each site, the server may learn whether this site has passed. "
        "Otherwise it learns how many sites have.",
        default=False,
    )
    limits: SiteLimits = key("What this site takes part in.", default=SiteLimits())

    @model_validator(mode="after")
    def _names_one_source(self) -> SiteFile:
        if bool(self.path) == bool(self.query):
            raise invalid(
                "give either path = <file>, or database = <URL> and query = <SQL>", "path"
            )
        if self.query and not self.database:
            raise invalid("query needs database = <SQLAlchemy URL, or env:NAME>", "database")
        return self


@dataclass(frozen=True, config=MODEL)
class ProjectFile:
    """Who takes part in a deployment."""

    name: PartyName = key("The name of the project.", default="study")
    server: HostName = key(
        "The host name under which all sites reach the machine that runs `fedssca deploy server`.",
        default="localhost",
    )
    port: Annotated[int, Strict()] = key(
        "The one port that must be open on the server; sites need none.",
        default=8002,
        ge=1,
        le=65535,
    )
    sites: list[PartyName] = key(
        "The names of the sites, each once. Messages are added up in this order, and "
        "data.label_holder counts from 0 along it.",
        default=[],
    )

    @model_validator(mode="after")
    def _names_every_site_once(self) -> ProjectFile:
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise invalid("name every site once", "sites", self.sites)
        if taken := sorted(RESERVED.intersection(self.sites)):
            raise invalid(f"a site cannot be called {taken[0]!r}: choose another name", "sites")
        return self
