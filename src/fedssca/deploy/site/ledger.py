"""What a site's data have been used for, across all jobs: a file beside site.toml.

Every entry is written, and is on the disk, before the message that it is about leaves the site. So
a process that is killed at any moment has counted too much at most. A lock on a second file makes
the jobs of several processes wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedssca.deploy.site.refusal import LimitRefused
from fedssca.errors import UserError
from fedssca.privacy.noise.accountant import Release
from fedssca.privacy.noise.ledger import Spending, joint_epsilon
from fedssca.run.record import RunDirectory
from fedssca.run.schema import SiteFile

__all__ = ["DataLedger", "ledger_of", "source_digest"]

RESERVED = 16
"""The number of rounds that are counted at a time, before the first of them."""


def ledger_of(site_file: Path) -> Path:
    """Where the ledger of a site is: beside its site.toml."""
    return site_file.absolute().with_suffix(".ledger.json")


def source_digest(source: SiteFile) -> str:
    """Identifies the data set: the file or the query. Changed rows are still the same data set."""
    place = (
        str(Path(source.path).resolve()) if source.path else f"{source.database}\n{source.query}"
    )
    return hashlib.sha256(place.encode()).hexdigest()[:32]


class DataLedger:
    """The jobs, rounds, censuses and epsilon of one data set."""

    def __init__(self, file: Path, source: SiteFile) -> None:
        self._file, self._key, self._limits = file, source_digest(source), source.limits
        self._reserved: dict[str, int] = {}
        """For each run: the rounds that are counted already and not yet used."""
        self._spent: dict[str, set[Spending]] = {}
        """For each run: what this process has counted of its noisy releases."""

    def entry(self) -> dict[str, Any]:
        """What has been counted so far."""
        if not self._file.exists():
            return _unused()
        with self._locked():
            return self._read()[1]

    def add_job(self, run: str) -> None:
        """Count a job; one that goes on with a run is counted once."""
        with self._changed() as entry:
            if run not in entry["jobs"] and len(entry["jobs"]) >= self._limits.most_jobs:
                raise self._refused("most_jobs", "so many jobs have used its data")
            entry["jobs"].setdefault(run, _new_job())

    def add_census(self, rows: str, sites: str = "") -> None:
        """Count a census of a set of rows; where it is hidden in sums, also which sites add up.

        What was told one by one may be hidden in a sum as well, and the other way round.
        """
        with self._changed() as entry:
            for kind, new in (("rows", rows), ("sites", sites)):
                known = entry["censuses"][kind]
                if new and new not in known:
                    if len(known) >= self._limits.censuses:
                        why = f"another set of {kind} was counted before"
                        raise self._refused("censuses", why)
                    known.append(new)

    def add_round(self, run: str) -> None:
        """Count a message of a round; some are counted ahead, because writing takes time."""
        if not self._reserved.get(run):
            with self._changed() as entry:
                job = entry["jobs"][run]
                more = min(RESERVED, self._limits.most_rounds - job["rounds"])
                if more < 1:
                    raise self._refused("most_rounds", "this job has had so many rounds")
                job["rounds"] += more
            self._reserved[run] = more
        self._reserved[run] -= 1

    def spend(self, run: str, spending: Spending) -> None:
        """Count what a job releases in all of its rounds, together with all jobs before it.

        A job that goes on in another process is counted once more, because it may send all of its
        messages again, with fresh noise.
        """
        counted, most = self._spent.setdefault(run, set()), self._limits.most_epsilon
        if spending in counted:
            return
        with self._changed() as entry:
            job = entry["jobs"][run]
            job["spent"].append(spending)
            job["epsilon"] = joint_epsilon(_spendings(job))
            entry["epsilon"] = joint_epsilon(
                [each for one in entry["jobs"].values() for each in _spendings(one)]
            )
            if most and entry["epsilon"] > most:
                raise self._refused("most_epsilon", "this job would spend more of it than is left")
        counted.add(spending)

    def _refused(self, key: str, why: str) -> LimitRefused:
        return LimitRefused(f"limits.{key}", getattr(self._limits, key), why)

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        """The entry of this data set, which is written when the block ends without an error."""
        with self._locked():
            whole, entry = self._read()
            before = json.dumps(whole)
            yield entry
            if (text := json.dumps(whole, indent=1)) != before:
                self._write(text)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._file.with_suffix(".lock")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UserError(
                f"the ledger of this site cannot be locked ({error.strerror}): the folder of "
                "site.toml must be writable"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            whole: dict[str, Any] = json.loads(self._file.read_text())
            entry = whole.setdefault(self._key, _unused())
            for job in entry["jobs"].values():
                _spendings(job)
            assert isinstance(entry["epsilon"], int | float)
            assert set(entry["censuses"]) == {"rows", "sites"}
        except FileNotFoundError:
            whole = {self._key: _unused()}
        except (OSError, ValueError, KeyError, TypeError, AssertionError, AttributeError):
            raise UserError(
                "the ledger of this site cannot be read; its operator must repair or remove it"
            ) from None
        return whole, whole[self._key]

    def _write(self, text: str) -> None:
        folder = RunDirectory(self._file.parent)
        try:
            folder.write(self._file.name, lambda file: file.write(text.encode()))
        except UserError:
            raise UserError(
                "the ledger of this site cannot be written, so that nothing is sent: the folder of "
                "site.toml must be writable"
            ) from None


def _unused() -> dict[str, Any]:
    return {"jobs": {}, "censuses": {"rows": [], "sites": []}, "epsilon": 0.0}


def _new_job() -> dict[str, Any]:
    return {"rounds": 0, "epsilon": 0.0, "spent": [], "began": _now()}


def _spendings(job: dict[str, Any]) -> list[Spending]:
    """What was counted for a job, from the lists of a file."""
    return [
        Spending(str(unit), float(delta), tuple(_release(*each) for each in releases))
        for unit, delta, releases in job["spent"]
    ]


def _release(
    sigma: float, messages: int, rate: float, batch: list[int] | None, lost: float
) -> Release:
    drawn = (int(batch[0]), int(batch[1])) if batch else None
    return Release(float(sigma), int(messages), float(rate), drawn, float(lost))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
