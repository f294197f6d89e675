"""Before round 1 at a site: it describes its data and builds the problem that all parties build.

ids, align/...   sites with columns find the rows that all of them have (`site.alignment`)
facts            the site describes its data
prepare          the site builds the problem and returns its fingerprint
offer            where the h_i are hidden: the site's public key for this run, signed
meet             the site receives the public keys of all sites and refuses forged ones; the first
                 site answers with the sealed secret of the checks, which the others receive
fresh            the site reads its new rows and tells how many there are
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from fedssca.deploy.census import Census, blank, fingerprint
from fedssca.deploy.engine import Post
from fedssca.deploy.site.alignment import SiteAlignment
from fedssca.deploy.site.identity import IdentityAmong
from fedssca.deploy.site.raw_table import RawTable, read_raw_table
from fedssca.deploy.site.rows import SiteRows
from fedssca.deploy.site.stages import Parts
from fedssca.errors import UserError
from fedssca.rounds.aggregate import Answerer
from fedssca.rounds.codec import Envelope, InvalidMessage, note, read_note
from fedssca.run.build import Job, plan
from fedssca.run.config import parse
from fedssca.run.privacy import answerer, hides_sums
from fedssca.run.schema import SiteFile

if TYPE_CHECKING:
    from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

__all__ = ["PREPARATION", "Prepared", "SitePreparation"]

PREPARATION = ("ids", "align", "facts", "prepare", "offer", "meet", "fresh")
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
    exchange_keys: ExchangeKeys | None = None
    """The site's keys for hidden h_i, once it has offered them."""


class SitePreparation:
    """The preparation of one site for one run."""

    def __init__(self, name: str, source: SiteFile, secure: bool, identity: IdentityAmong) -> None:
        self._name, self._source, self._secure, self._identity = name, source, secure, identity
        self._alignment: SiteAlignment | None = None
        self._rows: SiteRows | None = None
        self._encoded: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None = None
        self._sum_client: Answerer | None = None
        self.run = b""
        self.prepared: Prepared | None = None

    def receive(self, sender: str, envelope: Envelope) -> None:
        """Take a peer's envelope of the alignment."""
        self._started_alignment().receive(sender, envelope)

    def answer(self, envelope: Envelope, post: Post) -> dict[str, np.ndarray]:
        """Answer an envelope of the server."""
        kind = envelope.kind
        if kind == "ids" and read_note(envelope)["which"] == "rows":
            self.run = envelope.run
            self._alignment = SiteAlignment(self._name, self._source, self._secure)
        if kind == "facts":
            return note(self._facts(envelope.run, read_note(envelope)))
        self.check_run(envelope)
        if kind == "prepare":
            return note(self._prepare(read_note(envelope)))
        if kind in ("offer", "meet"):
            return self._agree_on_keys(envelope)
        if kind == "fresh":
            return note(self._new_rows())
        return self._started_alignment().answer(envelope, post)

    def check_run(self, envelope: Envelope) -> None:
        """Refuse an envelope of another run."""
        if envelope.run != self.run:
            raise InvalidMessage(f"an envelope of another run came to {self._name}")

    def after(self, kind: str) -> Prepared:
        """What was prepared; a InvalidMessage if an envelope of this kind came too early."""
        if self.prepared is None:
            raise InvalidMessage(f"{kind} came before prepare")
        return self.prepared

    def _facts(self, run: bytes, asked: dict[str, Any]) -> dict[str, Any]:
        self.run, self.prepared, self._encoded, self._sum_client = run, None, None, None
        self._rows = SiteRows(self._raw_table(asked), asked)
        return self._rows.facts()

    def _raw_table(self, asked: dict[str, Any]) -> RawTable:
        """All rows of this site or, where sites hold columns, those that all sites have."""
        if asked["columns"]:
            return self._started_alignment().table("rows")
        return read_raw_table(self._source, asked["label"])

    def _started_alignment(self) -> SiteAlignment:
        if self._alignment is None:
            raise InvalidMessage("parties with columns are asked for their ids first")
        return self._alignment

    def _prepare(self, told: dict[str, Any]) -> dict[str, Any]:
        if self._rows is None:
            raise InvalidMessage("prepare came before facts")
        census = Census(**told["census"])
        config = parse(told["config"], source="the run's config")
        if self._source.hidden and not (config.privacy.secure_sum or config.privacy.homomorphic):
            raise UserError(
                "this site takes part in hidden sums only (hidden in its site.toml): set "
                "privacy.secure_sum = true in the run"
            )
        with jax.enable_x64(config.run.precision == "float64"):
            job = plan(config, *blank(census, config))
            if self._encoded is None:
                self._encoded = self._rows.columns(census)
            number = census.names.index(self._name)
            if self._sum_client is None and not census.columns:  # one for all stages of a run
                identity = self._identity(census.names) if hides_sums(config) else None
                count = len(census.names)
                self._sum_client = answerer(config, self.run, count, number, identity)
            keys = self.prepared.exchange_keys if self.prepared else None
            parts = Parts(*self._encoded, self.prepared.parts.new if self.prepared else {})
            self.prepared = Prepared(census, job, number, parts, self._sum_client, keys)
            return {"fingerprint": fingerprint(job, census)}

    def _agree_on_keys(self, envelope: Envelope) -> dict[str, np.ndarray]:
        """Exchange keys with all peers, by way of the server."""
        from fedssca.privacy.sums.keys import as_array

        ready = self.after(envelope.kind)
        names = ready.census.names
        if envelope.kind == "offer":
            from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

            keys = ExchangeKeys(ready.number, len(names), self.run, self._identity(names))
            self.prepared = ready._replace(exchange_keys=keys)
            return keys.offer()
        if ready.exchange_keys is None:
            raise InvalidMessage("meet came before offer")
        offers = {
            i: {"key": envelope.arrays[f"key {i}"], "signature": envelope.arrays[f"signature {i}"]}
            for i in range(len(names))
            if {f"key {i}", f"signature {i}"} <= envelope.arrays.keys()
        }
        own = ready.exchange_keys
        own.agree(offers)
        if ready.number == 0:
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
