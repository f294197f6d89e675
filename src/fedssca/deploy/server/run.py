"""One run at the server, from the preparation to the result, whichever engine carries it."""

from __future__ import annotations

import gc
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.data import Rows
from fedssca.deploy.census import Census, blank
from fedssca.deploy.engine import Link, Patience
from fedssca.deploy.server.certify import SiteCalibration
from fedssca.deploy.server.column_rounds import ColumnRounds
from fedssca.deploy.server.evaluate import joint_scores, site_evaluator
from fedssca.deploy.server.log import RunLog
from fedssca.deploy.server.preparation import PREPARING, ServerPreparation
from fedssca.deploy.server.rounds import DeployedRounds, RecordRound
from fedssca.deploy.server.row_rounds import RowRounds
from fedssca.deploy.server.signing import signed_by_all
from fedssca.deploy.server.sites import Sites
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.staleness import answers_for
from fedssca.rounds.aggregate import Adder
from fedssca.rounds.loop import Runtime
from fedssca.rounds.robust import robust_sums
from fedssca.run.build import Job, build, check_promise
from fedssca.run.config import Config
from fedssca.run.execute import carry_out, load_config
from fedssca.run.more import extend
from fedssca.run.privacy import check_deployed, hides_sums, noisy, server_half, survivors
from fedssca.run.promise import CERTIFICATE
from fedssca.run.record import RunDirectory

__all__ = ["RunOrder", "RunServer"]

LOG = logging.getLogger(__name__)


class RunOrder(NamedTuple):
    """The run that a server carries out."""

    config: Config
    sites: Sequence[str]
    """The sites in the order in which their messages are added: site number 0 first."""
    run: bytes
    """The run's identifier, 16 bytes; a resumed run keeps it."""
    resume: bool = False
    more: bool = False
    """The run goes on in any case: `config` has more rounds than the one in its folder."""


class RunServer:
    """Carries out one run into a run directory."""

    def __init__(self, order: RunOrder, link: Link, out: Path) -> None:
        config = order.config
        data = replace(config.data, clients=len(order.sites))
        self._config, self._order, self._out = replace(config, data=data), order, out
        self._vertical = config.data.split == "feature"
        everyone = len(order.sites)
        needed = config.deploy.min_sites or everyone // 2 + 1
        self._log = RunLog(out)
        self.sites = Sites(
            link,
            order.sites,
            order.run,
            # A limit on every site's own loss cannot be evaluated without that site.
            needed=everyone
            if self._vertical or config.problem.per_client
            else min(needed, everyone),
            timeout=config.deploy.timeout,
            record_event=self._log.add_event,
            patience=self._patience(min(needed, everyone)),
        )
        self._preparation = ServerPreparation(
            self.sites, self._config, order.run, self._log.add_event
        )
        self._round, self._settled, self._resumes = 0, False, 0

    def _patience(self, needed: int) -> Patience | None:
        """The deadline of a training round, and how many answers are enough after it."""
        config = self._config
        if config.algorithm.staleness:
            enough = answers_for(config.algorithm.enough, len(self._order.sites))
            return Patience(config.deploy.deadline, enough)
        if not config.deploy.deadline:
            return None
        asked = config.algorithm.cohort
        enough = asked // 2 + 1 if asked else needed
        if hides_sums(config):
            enough = max(enough, survivors(config, len(self._order.sites)))
        return Patience(config.deploy.deadline, enough)

    def run(self, on_row: Callable[[dict[str, Any]], None] = lambda row: None) -> dict[str, Any]:
        """Prepare, calibrate, train and evaluate; `SitesMissing` if too few sites are left."""
        if self._config.data.collection == "open" and self._vertical:
            raise UserError(
                'data.collection = "open" would hand the parties\' data to the server: '
                'deployments use "exchange"'
            )
        check_deployed(self._config)
        finished = self._order.resume and not self._order.more
        if finished and (done := RunDirectory.open(self._out).result()) is not None:
            self._log.add_rows(*RunDirectory.open(self._out).rows())
            self._sign_if_missing(done)
            return done
        if not self._order.resume:
            RunDirectory.check_free(self._out)
        with jax.enable_x64(self._config.run.precision == "float64"):
            try:
                return self._run(on_row)
            finally:
                self._log.flush()

    def predict(self) -> dict[str, Any]:
        """The scores of the parties' new rows under this run's trained model, and their ids."""
        if not self._vertical:
            raise UserError("sites with rows have the whole model: fedssca deploy predict RUN FILE")
        folder = RunDirectory.open(self._out)
        if folder.result() is None:
            raise UserError("this run is not complete: resume it first")
        w = np.load(self._out / "model.npz")["w"]
        with jax.enable_x64(self._config.run.precision == "float64"):
            census = self._census()
            self._check_same_cells(census)
            job = self._preparation.prepare(self._config, census)
            rows, ids = self._preparation.new_rows()
            scores = joint_scores(self.sites, job, job.problem.extended(w), rows)
        return {"labels": census.labels, "scores": scores.tolist(), "ids": ids}

    def prepare(self) -> tuple[Job, Census]:
        """Ask all sites about their data and let them build the problem."""
        census = self._census()
        return self._preparation.prepare(self._config, census), census

    def _census(self) -> Census:
        """What all sites told of their data; a UserError if it does not fit together."""
        try:
            return self._preparation.census()
        except UserError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
            LOG.exception("the census failed")
            raise UserError(
                "what the sites told of their data does not fit together: the log of the server "
                "says where; run the same version of fedssca everywhere"
            ) from None

    def status(self, rows_from: int = 0) -> dict[str, Any]:
        """What the submitting side shows: rows it has not seen, sites, events, the round."""
        live = [self.sites.names[number] for number in self.sites.live]
        return self._log.since(rows_from) | {"round": self._round, "live": live}

    def _run(self, on_row: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        census = self._census()
        config, again = self._config, 0
        resume, more = self._order.resume, self._order.more
        if resume and not more and (noisy(config.privacy) or hides_sums(config)):
            # The probes before round 1 are not sent again: sites would draw other batches for them.
            config = load_config(self._out)
        if resume and noisy(config.privacy):
            again = self._messages_sent_again(config)
        first = self._preparation.prepare(config, census)
        adder = self._adder(config, census)

        def probing(problem: Any, clients: Any, algorithm: Algorithm, *_: Any) -> Runtime:
            del problem, clients
            return self._rounds("probe", first, algorithm, adder)

        job = build(config, *blank(census, config), engine=probing)
        if job.config != config:
            self._preparation.prepare(job.config, census)
        if (noise := job.noise) is not None and noise.ledger is not None:
            each = -(-again // config.run.evaluate_every) + 1 if again else 0
            ledger = noise.ledger.also(again, each, self._resumes)
            job = job._replace(noise=noise._replace(ledger=ledger))

        def training(problem: Any, clients: Any, algorithm: Algorithm, *_: Any) -> Runtime:
            del problem, clients
            return self._rounds("train", job, algorithm, adder, self._record_round)

        def seen(row: dict[str, Any]) -> None:
            self._log.add_rows(row)
            on_row(row)

        if census.calibration:
            exact = adder  # counts are added up also where a robust rule joins messages
            if config.deploy.robust != "none":
                exact = server_half(config, self._order.run, len(self.sites.names))
            promise = SiteCalibration(self.sites, job, census.calibration, exact)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                check_promise(job.config, job.problem, promise)
            for warning in said:
                self._preparation.record(str(warning.message))
            job = job._replace(calibration=promise)
        evaluator = site_evaluator(self.sites, job, census.held, adder)
        if more:
            folder = RunDirectory.open(self._out)
            with folder.locked():
                extend(folder, job.config)
        result = carry_out(
            job,
            self._out,
            resume,
            seen,
            runtime=training,
            evaluator=evaluator,
            test=None,
        )
        self._write(census)
        if job.calibration is not None:
            self._sign(job, result)
        return result

    def _sign_if_missing(self, result: dict[str, Any]) -> None:
        """Let the sites sign a run that ended before all of them had signed its certificate."""
        if self._config.problem.certified and not (self._out / CERTIFICATE).exists():
            with jax.enable_x64(self._config.run.precision == "float64"):
                job = self._preparation.prepare(load_config(self._out), self._census())
                self._sign(job, result)

    def _sign(self, job: Job, result: dict[str, Any]) -> None:
        """Let the sites sign the certificate of a finished run."""
        folder, committed = RunDirectory.open(self._out), self._preparation.commitments
        signed_by_all(self.sites, job, folder, result, committed, PREPARING)

    def _adder(self, config: Config, census: Census) -> Adder:
        """The server's half of the sums over sites with rows."""
        if config.deploy.robust != "none" and not census.columns:
            return robust_sums(config.deploy.robust, census.sizes).server()
        return server_half(config, self._order.run, len(self.sites.names))

    def _rounds(
        self,
        stage: str,
        job: Job,
        algorithm: Algorithm,
        adder: Adder,
        record: RecordRound | None = None,
    ) -> DeployedRounds:
        """The rounds of a stage; `job` as the sites know it."""
        parties: RowRounds | ColumnRounds
        if isinstance(job.clients, Rows):
            parties = RowRounds(self.sites, stage, job, adder)
        else:
            parties = ColumnRounds(self.sites, stage, job, algorithm.batch)
        return DeployedRounds(self.sites, parties, algorithm, record)

    def _check_same_cells(self, census: Census) -> None:
        """Refuse to predict if a party's training cells, to which it fits its encoder, changed."""
        held = json.loads((self._out / "census.json").read_text()).get("cells", census.cells)
        for name, before, now in zip(census.names, held, census.cells, strict=True):
            if before != now:
                raise UserError(
                    f"{name}: its training rows are not those of this run any more, so that it "
                    "would encode its columns otherwise; restore its file, or train again"
                )

    def _write(self, census: Census) -> None:
        text = json.dumps(asdict(census), indent=2)
        folder = RunDirectory.open(self._out)
        folder.write("census.json", lambda file: file.write(text.encode()))

    def _messages_sent_again(self, config: Config) -> int:
        """The number of messages that resumes so far may have sent twice, with fresh noise.

        Each resume repeats at most the rounds between two checkpoints or, without checkpoints, all.
        """
        file, every = self._out / "resumes.json", config.run.checkpoint_every
        times = self._resumes = 1 + (int(file.read_text()) if file.exists() else 0)
        RunDirectory(self._out).write(file.name, lambda out: out.write(str(times).encode()))
        rounds = config.algorithm.most_rounds - 1
        return times * (min(every, rounds) if every else rounds)

    def _record_round(
        self, round_: int, seconds: float, share: float, missing: Sequence[int]
    ) -> None:
        self._round = round_
        if not self._settled:
            # The engine leaves each round's messages in reference cycles. Freezing what stays for
            # the whole run makes collections cheap, so that they can happen often.
            gc.collect()
            gc.freeze()
            self._settled = True
            self._log.forget_costs_after(round_ - 1)
        names = self.sites.names
        costs = {names[number]: list(cost) for number, cost in self.sites.costs.items()}
        row = {"round": round_, "seconds": seconds, "share": share, "sites": costs}
        self._log.add_costs(row | {"missing": [names[number] for number in missing]})
