"""FedAvg with limits: Flower's own strategy on the Lagrangian, with steered multipliers.

    minimise  F_0(w)    subject to    F_m(w) <= limit_m,    m = 1..M

F_0 is the mean loss over all rows of all clients, F_m the mean of a client's function over those
rows that it counts. In round t the server publishes w(t), the weights a = (1, nu) / (1 + sum nu)
and the shares p_m of rows that count for m. Client k takes its local steps on

    a_0 mean f_0 + sum_m a_m / p_m mean [the row counts for m] f_m,

whose average over clients, weighted by their rows, is a_0 F_0 + sum_m a_m F_m. It also sends sums
and counts of the f_m at w(t), from which the server knows F_m(w(t)) over all rows. These values
move the multipliers nu as in the package's own steered methods (`methods.multipliers.steer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from logging import INFO
from typing import Any

import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from fedssca.errors import UserError
from fedssca.methods.multipliers import steer
from fedssca.problem.custom import custom_problem

__all__ = ["LimitedFedAvg"]

FIRST = 0.1
"""The first multipliers."""


class LimitedFedAvg(FedAvg):
    """FedAvg that keeps limits; all settings of FedAvg are its settings too.

    `limits` are the largest values allowed, by the names that the clients' constraints have. After
    `start`, `certificate` says of the returned model what the clients measured in evaluations: the
    model is the one with the lowest loss among those that kept all limits, and the last one if
    none did.
    """

    def __init__(self, limits: Mapping[str, float], **settings: Any) -> None:
        super().__init__(**settings)
        if not limits or not all(np.isfinite(limit) for limit in limits.values()):
            raise UserError(f"limits = {dict(limits)}: give a number for each constraint's name")
        self.limits = dict(limits)
        self.certificate: dict[str, Any] = {}
        self._shares = np.zeros(len(limits))
        self._arrays: ArrayRecord | None = None
        self._best: tuple[float, ArrayRecord] | None = None

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **more: Any
    ) -> Result:
        """Train as Flower does; the result holds the best model that keeps the limits."""
        count = len(self.limits)
        problem = custom_problem(
            lambda w, batch: jnp.zeros((count + 1, 1)),
            jnp.zeros(1),
            limits=list(self.limits.values()),
            names=list(self.limits),
        )
        self._rule = steer(problem, num_rounds)
        first = self._rule.init(jnp.zeros(1))
        self._course = first._replace(log_multiplier=jnp.full(count, np.log(FIRST)))
        self._best, self.certificate, self._shares = None, {}, np.zeros(count)
        result = super().start(grid, initial_arrays, num_rounds, *args, **more)
        if self._best is not None:
            result.arrays = self._best[1]
        for line in self._lines():
            log(INFO, line)
        return result

    @property
    def multipliers(self) -> dict[str, float]:
        """nu_m by the names of the limits."""
        return dict(zip(self.limits, np.exp(self._course.log_multiplier).tolist(), strict=True))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, with the weights of this round."""
        nu = np.array(list(self.multipliers.values()))
        # Before the first values are there, no share is known and the loss is trained alone.
        nu = np.where(self._shares > 0, nu, 0.0)
        config["limits"] = list(self.limits)
        config["weights"] = (np.array([1.0, *nu]) / (1 + nu.sum())).tolist()
        config["shares"] = np.where(self._shares > 0, self._shares, 1.0).tolist()
        return super().configure_train(server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, with the names of the limits."""
        config["limits"] = list(self.limits)
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """FedAvg's average; the values that came with it move the multipliers."""
        kept = list(replies)
        arrays, metrics = super().aggregate_train(server_round, kept)
        if arrays is None or metrics is None:
            return arrays, metrics
        self._arrays = arrays
        found = _Values(kept, list(self.limits))
        self._shares = found.rows / max(1, found.all_rows)
        broken = jnp.asarray(found.values - np.array(list(self.limits.values())))
        self._course = self._rule.step(self._course, jnp.asarray(server_round), broken)
        return arrays, self._told(metrics, found)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """FedAvg's averages, and whether this round's model keeps the limits."""
        kept = list(replies)
        metrics = super().aggregate_evaluate(server_round, kept)
        if metrics is None or self._arrays is None:
            return metrics
        found = _Values(kept, list(self.limits))
        holds = bool((found.values <= np.array(list(self.limits.values()))).all())
        loss = float(metrics["objective"])  # type: ignore[arg-type]
        better = self._best is None or loss < self._best[0]
        if holds and better:
            self._best = loss, self._arrays
        if (holds and better) or self._best is None:
            self.certificate = self._certificate(server_round, loss, holds, found)
        metrics["limits_kept"] = int(holds)
        return self._told(metrics, found)

    def _told(self, metrics: MetricRecord, found: _Values) -> MetricRecord:
        """The metrics for Flower's history: values by limit and client instead of raw sums."""
        told = {k: v for k, v in metrics.items() if not k.startswith(("sum of ", "rows of "))}
        for m, name in enumerate(self.limits):
            told[name] = float(found.values[m])
            told[f"{name} by client"] = found.by_client[:, m].tolist()
            told[f"multiplier of {name}"] = self.multipliers[name]
        return MetricRecord(told | {"clients": found.clients})

    def _certificate(self, round: int, loss: float, holds: bool, found: _Values) -> dict[str, Any]:
        limits = [
            {
                "name": name,
                "limit": limit,
                "value": float(found.values[m]),
                "margin": limit - float(found.values[m]),
                "multiplier": self.multipliers[name],
                "rows": int(found.rows[m]),
                "worst_client": float(np.nanmax(found.by_client[:, m])),
            }
            for m, (name, limit) in enumerate(self.limits.items())
        ]
        about = {"round": round, "loss": loss, "feasible": holds, "clients": len(found.clients)}
        return about | {"limits": limits}

    def _lines(self) -> list[str]:
        """The certificate as lines for the log."""
        if not self.certificate:
            return ["no limits were measured: set fraction_evaluate above 0"]
        head = "all limits are kept" if self.certificate["feasible"] else "a limit is BROKEN"
        lines = [f"model of round {self.certificate['round']}: {head} on the evaluated rows"]
        return lines + [
            f"  {each['name']}: {each['value']:.4g} <= {each['limit']:g}, "
            f"worst client {each['worst_client']:.4g}, {each['rows']} rows"
            for each in self.certificate["limits"]
        ]


class _Values:
    """F_1..F_M over the rows of all clients that replied, and of each of them."""

    def __init__(self, replies: Iterable[Message], names: list[str]) -> None:
        good = sorted(
            (reply for reply in replies if not reply.has_error()),
            key=lambda reply: reply.metadata.src_node_id,
        )
        metrics = [next(iter(reply.content.metric_records.values())) for reply in good]
        missing = [n for n in names if any(f"sum of {n}" not in each for each in metrics)]
        if missing:
            raise UserError(
                f"no values of {', '.join(missing)} came: name the clients' constraints like the "
                "limits of the strategy"
            )
        self.clients = [reply.metadata.src_node_id for reply in good]
        sums = np.array([[each[f"sum of {n}"] for n in names] for each in metrics], float)
        rows = np.array([[each[f"rows of {n}"] for n in names] for each in metrics], float)
        self.rows = rows.sum(axis=0)
        self.all_rows = float(np.sum([each["num-examples"] for each in metrics]))
        with np.errstate(invalid="ignore", divide="ignore"):
            self.values = np.where(self.rows > 0, sums.sum(axis=0) / self.rows, 0.0)
            self.by_client = sums / rows
