"""Before round 1 at a site: it describes its data and builds the problem that all parties build.

terms            the site learns the run's config and the sites, and refuses what it may not do
offer            sites with columns: the site's public key for this session, signed
meet             the site receives the public keys of all sites and refuses forged ones; the first
                 site answers with the sealed secret of the checks, which the others receive
ids, align/...   sites with columns find the rows that all of them have (`site.alignment`)
facts            the site describes its data, as far as its limits allow
count            the site counts its labels and groups, if a constraint needs that
census/reply     the same under masks, where the run hides sums (`site.hidden_census`)
prepare          the site builds the problem and returns its fingerprint
fresh            the site reads its new rows and tells how many there are
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from fedssca.deploy.census import START, Census, fingerprint, job_of, question
from fedssca.deploy.engine import Post
from fedssca.deploy.site.alignment import SiteAlignment
from fedssca.deploy.site.calibration import CalibrationUse
from fedssca.deploy.site.hidden_census import HiddenCensus
from fedssca.deploy.site.identity import IdentityAmong
from fedssca.deploy.site.ledger import DataLedger
from fedssca.deploy.site.limits import refusals
from fedssca.deploy.site.raw_table import RawTable, read_raw_table
from fedssca.deploy.site.rows import SiteRows
from fedssca.deploy.site.sealed import SealedPeers
from fedssca.deploy.site.stages import Parts
from fedssca.deploy.stages import largest_h
from fedssca.deploy.sums import census_rules
from fedssca.rounds.aggregate import Answerer
from fedssca.rounds.codec import Envelope, InvalidMessage, note, read_note
from fedssca.run.build import Job
from fedssca.run.config import Config, parse
from fedssca.run.privacy import answerer, hides_sums
from fedssca.run.schema import SiteFile

if TYPE_CHECKING:
    from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

__all__ = ["PREPARATION", "Prepared", "SitePreparation"]

PREPARATION = (
    *("terms", "ids", "align", "facts", "count", "census", "prepare", "offer", "meet", "fresh"),
)
"""The kinds of envelopes that belong to the preparation; "align" stands for "align/..."."""


class Prepared(NamedTuple):
    """What a site knows once it has built the problem."""

    census: Census
    job: Job
    number: int
    """The place of this site in the census."""
    parts: Parts
    sum_client: Answerer | None
    """The site's half of the sums, for sites that hold rows."""
    largest_h: int = 0
    """The number of entries of the largest array that peers may send; 0 among sites with rows."""


class Terms(NamedTuple):
    """What a site has agreed to."""

    config: Config
    names: list[str]
    """All sites, in the order in which their messages are added."""


class SitePreparation:
    """The preparation of one site for one run."""

    def __init__(
        self,
        name: str,
        source: SiteFile,
        secure: bool,
        identity: IdentityAmong,
        ledger: DataLedger,
        folder: Path,
    ) -> None:
        """`folder` is for calibration rows and what was counted among them; personal parts of
        models are beside it."""
        self._name, self._source, self._secure, self._identity = name, source, secure, identity
        self._ledger, self._folder = ledger, folder
        self.calibration = CalibrationUse()
        self._terms: Terms | None = None
        self._alignment: SiteAlignment | None = None
        self._peers: SealedPeers | None = None
        self.exchange_keys: ExchangeKeys | None = None
        """The keys that this site shares with its peers, where sites hold columns."""
        self._rows: SiteRows | None = None
        self.hidden_census: HiddenCensus | None = None
        self._encoded: tuple[dict[str, np.ndarray], ...] | None = None
        self._sum_client: Answerer | None = None
        self.run = b""
        self.prepared: Prepared | None = None

    def receive(self, sender: str, envelope: Envelope) -> None:
        """Take a peer's envelope of the alignment."""
        self._started_alignment().receive(sender, envelope)

    def answer(self, envelope: Envelope, post: Post) -> dict[str, np.ndarray]:
        """Answer an envelope of the server."""
        kind = envelope.kind
        if kind == "terms":
            return note(self._agree(envelope.run, read_note(envelope)))
        self.check_run(envelope)
        if kind == "ids" and read_note(envelope)["which"] == "rows":
            self._alignment = SiteAlignment(self._name, self._source, self._secure)
        if kind == "facts":
            return note(self._facts())
        if kind == "count":
            return note(self._count(read_note(envelope)))
        if kind == "census/reply":
            if self.hidden_census is None:
                raise InvalidMessage("this run has no census under masks")
            return self.hidden_census.answer(envelope)
        if kind == "prepare":
            return note(self._prepare(read_note(envelope), envelope.arrays.get(START)))
        if kind in ("offer", "meet"):
            return self._agree_on_keys(envelope)
        if kind == "fresh":
            return note(self._new_rows())
        return self._started_alignment().answer(envelope, post)

    def seal(self, peer: str, data: bytes) -> bytes:
        """An envelope for a peer, sealed; without keys nothing can be sent to peers."""
        return self._sealed_peers().seal(peer, data)

    def opened(self, sender: str, data: Any) -> Envelope:
        """The envelope that a peer has sealed for this site."""
        return self._sealed_peers().opened(sender, data)

    def _sealed_peers(self) -> SealedPeers:
        if self._peers is None:
            raise InvalidMessage("the sites have not exchanged their keys yet")
        return self._peers

    def check_run(self, envelope: Envelope) -> None:
        """Refuse an envelope of another run."""
        if envelope.run != self.run:
            raise InvalidMessage(f"an envelope of another run came to {self._name}")

    def after(self, kind: str) -> Prepared:
        """What was prepared; a InvalidMessage if an envelope of this kind came too early."""
        if self.prepared is None:
            raise InvalidMessage(f"{kind} came before prepare")
        return self.prepared

    def _agree(self, run: bytes, told: dict[str, Any]) -> dict[str, Any]:
        """Take the terms of a run; nothing of the data is read before the limits are checked."""
        config, names = parse(told["config"], source="the run's config"), list(told["names"])
        if len(set(names)) < len(names) or self._name not in names:
            raise InvalidMessage(f"the run needs sites with different names, {self._name} included")
        self._check_limits(config, names)
        self._ledger.add_job(run.hex())
        self.run, self.prepared, self._encoded, self._sum_client = run, None, None, None
        self._terms, self._rows, self.hidden_census = Terms(config, names), None, None
        self._alignment = self._peers = self.exchange_keys = None
        self.calibration = CalibrationUse(self._folder, run, self._source.named)
        return {"package": version("fedssca")}

    def _check_limits(self, config: Config, names: Sequence[str]) -> None:
        for refusal in refusals(config, names, self._source):
            raise refusal

    def _agreed(self) -> Terms:
        if self._terms is None:
            raise InvalidMessage("the terms of a run come first")
        return self._terms

    def _facts(self) -> dict[str, Any]:
        config, names = self._agreed()
        asked = question(config, self.run.hex())
        rows = SiteRows(self._raw_table(asked), asked, self._source.limits)
        self._ledger.add_census(rows.set_of_rows(), " ".join(names) if hides_sums(config) else "")
        self._rows = rows
        if not hides_sums(config):
            return rows.facts() | rows.told()
        from fedssca.privacy.sums.masked_client import MaskedSumClient

        rules = census_rules(config, self.run, len(names))
        number = names.index(self._name)
        client = MaskedSumClient(number, self._identity(names), rules)
        self.hidden_census = HiddenCensus(rows, asked, self.run, client)
        return rows.facts() | self.hidden_census.facts()

    def _count(self, told: dict[str, Any]) -> dict[str, Any]:
        config, _ = self._agreed()
        if self._rows is None or not config.problem.counts or hides_sums(config):
            raise InvalidMessage("this run does not ask single sites for counts")
        if not self._rows.labels:
            return {"counts": []}
        self._rows.check_other_rows(told["labels"], told["groups"])
        return {"counts": self._rows.counts(told["labels"], told["groups"])}

    def _raw_table(self, asked: dict[str, Any]) -> RawTable:
        """All rows of this site or, where sites hold columns, those that all sites have."""
        if asked["columns"]:
            return self._started_alignment().table("rows")
        return read_raw_table(self._source, asked["label"])

    def _started_alignment(self) -> SiteAlignment:
        if self._alignment is None:
            raise InvalidMessage("parties with columns are asked for their ids first")
        return self._alignment

    def _prepare(self, told: dict[str, Any], start: np.ndarray | None) -> dict[str, Any]:
        if self._rows is None:
            raise InvalidMessage("prepare came before facts")
        census = Census(**told["census"])
        config = parse(told["config"], source="the run's config")
        self._check_terms(config, census)
        with jax.enable_x64(config.run.precision == "float64"):
            job = job_of(config, census, start)
            if self._encoded is None:
                self._encoded = self._rows.columns(census)
            number = census.names.index(self._name)
            if job.problem.personal is not None:
                file = self._folder.with_suffix(".personal") / f"{self.run.hex()}.npz"
                job.problem.personal.part(number).keep_in(file)
            if self._sum_client is None and not census.columns:  # one for all stages of a run
                identity = self._identity(census.names) if hides_sums(config) else None
                count = len(census.names)
                self._sum_client = answerer(config, self.run, count, number, identity)
            train, test, aside = self._encoded
            parts = Parts(train, test, self.prepared.parts.new if self.prepared else {}, aside)
            self.prepared = Prepared(census, job, number, parts, self._sum_client, largest_h(job))
            said = {"fingerprint": fingerprint(job, census)}
            if config.calibration_fraction:
                said["commitment"] = self.calibration.commit(self._name, aside)
            return said

    def _check_terms(self, config: Config, census: Census) -> None:
        """Is this the run that the site has agreed to, with the sites that it knows?"""
        agreed, names = self._agreed()
        same = [
            question(config, "") == question(agreed, ""),
            config.privacy == agreed.privacy,
            census.names == names,
            census.columns == (config.data.split == "feature"),
        ]
        if not all(same):
            raise InvalidMessage("what is to be prepared is not the run that the terms are about")
        self._check_limits(config, names)

    def _agree_on_keys(self, envelope: Envelope) -> dict[str, np.ndarray]:
        """Exchange keys with all peers, by way of the server."""
        from fedssca.privacy.sums.keys import as_array

        names = self._agreed().names
        if envelope.kind == "offer":
            from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

            number, identity = names.index(self._name), self._identity(names)
            self.exchange_keys = ExchangeKeys(number, len(names), self.run, identity)
            self._peers = SealedPeers(names, self.exchange_keys)
            return self.exchange_keys.offer()
        if self.exchange_keys is None:
            raise InvalidMessage("meet came before offer")
        offers = {
            i: {"key": envelope.arrays[f"key {i}"], "signature": envelope.arrays[f"signature {i}"]}
            for i in range(len(names))
            if {f"key {i}", f"signature {i}"} <= envelope.arrays.keys()
        }
        own = self.exchange_keys
        own.agree(offers)
        if own.number == 0:
            return {f"box {peer}": as_array(box) for peer, box in own.seal_check().items()}
        own.open_check(envelope.arrays.get("box", np.zeros(0, np.uint8)).tobytes())
        return {}

    def _new_rows(self) -> dict[str, Any]:
        ready = self.after("fresh")
        assert self._rows is not None
        table = self._started_alignment().table("new")
        new, said = self._rows.new(table, ready.census)
        self.prepared = ready._replace(parts=ready.parts._replace(new=new))
        if self._source.share_ids and table.ids is not None:
            said["told"] = {"column": self._source.id or "id", "cells": table.ids.tolist()}
        return said
