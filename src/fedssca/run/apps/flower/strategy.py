"""FedAvg with limits: Flower's own strategy on the Lagrangian, with steered multipliers.

    minimise  F_0(w)    subject to    F_m(w) <= limit_m,    m = 1..M

F_0 is the mean loss over all rows of all clients, F_m the mean of a client's function over those
rows that it counts. In round t the server publishes w(t), the weights a = (1, nu) / (1 + sum nu)
and the shares p_m of rows that count for m. Client k takes its local steps on

    a_0 mean f_0 + sum_m a_m / p_m mean [the row counts for m] f_m,

whose average over clients, weighted by their rows, is a_0 F_0 + sum_m a_m F_m. It also sends sums
and counts of the f_m at w(t), from which the server knows F_m(w(t)) over all rows. These values
move the multipliers nu as in the package's own steered methods (`methods.multipliers.steer`), and
of all w(t) the best one that keeps the limits is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from logging import INFO
from typing import Any, NamedTuple

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

FIRST = 0.3
"""The first multipliers."""

SPEED = 8.0
"""By how much log nu_m would move in a training if it moved at full speed in every round. The
package's own methods have 12 and hundreds of rounds; with few rounds of FedAvg, whose values jump,
the multipliers would overshoot."""

SHARP = 0.1
"""The part of a limit by which it is missed at full speed. The package's own methods measure on
batches and have 1; here values are those of all rows, without noise, and there are few rounds."""

EARLY = 0.5
"""The part of the rounds in which the multipliers stay as they are: at first every value is far
from its limit, because little is learnt yet, and this says nothing about where it will end."""


class LimitedFedAvg(FedAvg):
    """FedAvg that keeps limits; all settings of FedAvg are its settings too.

    `limits` are the largest values allowed, by the names that the clients' constraints have. Of
    the models after all rounds, `start` returns the one with the lowest loss among those that keep
    all limits, and the one that breaks them least if none does. Loss and limits are those that the
    clients measured on their training rows; the rows of evaluations play no part in the choice.
    Clients measure a model before they train it further, so one round is trained at the end whose
    model is thrown away. `certificate` says of the returned model what was measured.
    """

    def __init__(self, limits: Mapping[str, float], **settings: Any) -> None:
        super().__init__(**settings)
        if not limits or not all(np.isfinite(limit) for limit in limits.values()):
            raise UserError(f"limits = {dict(limits)}: give a number for each constraint's name")
        self.limits = dict(limits)
        self.certificate: dict[str, Any] = {}
        self._allowed = np.array(list(limits.values()))
        self._begin(1)

    def _begin(self, rounds: int) -> None:
        """Forget what an earlier training has left."""
        count, self._rounds = len(self.limits), rounds
        problem = custom_problem(
            lambda w, batch: jnp.zeros((count + 1, 1)),
            jnp.zeros(1),
            limits=(SHARP * self._allowed).tolist(),
            names=list(self.limits),
        )
        self._rule = steer(problem, rounds, speed=SPEED)
        first = self._rule.init(jnp.zeros(1))
        self._course = first._replace(log_multiplier=jnp.full(count, np.log(FIRST)))
        self._shares = np.zeros(count)
        self._sent: ArrayRecord | None = None
        self._best: _Measured | None = None
        self._evaluated: dict[int, _Values] = {}
        self.certificate = {}

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        *args: Any,
        **more: Any,
    ) -> Result:
        """Train as Flower does; the result holds the best model that keeps the limits."""
        self._begin(num_rounds)
        config = train_config if train_config is not None else ConfigRecord()
        result = super().start(grid, initial_arrays, num_rounds, timeout, config, *args, **more)
        if self._sent is None:
            return result
        log(INFO, "the clients measure the model of the last round")
        last = self.configure_train(num_rounds + 1, result.arrays, config, grid)
        _, metrics = self.aggregate_train(
            num_rounds + 1, grid.send_and_receive(messages=last, timeout=timeout)
        )
        if metrics is not None:
            result.train_metrics_clientapp[num_rounds + 1] = metrics
        if self._best is not None:
            result.arrays = self._best.arrays
            self.certificate = self._certificate(self._best)
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
        self._sent = arrays
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
        found = self._values(kept)
        self._shares = found.rows / max(1, found.all_rows)
        broken = found.values - self._allowed
        if self._sent is not None:
            now = _Measured(server_round - 1, self._sent, found, broken, self.multipliers)
            if self._best is None or now.rank < self._best.rank:
                self._best = now
        before = self._course.log_multiplier
        self._course = self._rule.step(self._course, jnp.asarray(server_round), jnp.asarray(broken))
        if server_round <= EARLY * self._rounds:
            self._course = self._course._replace(log_multiplier=before)
        return arrays, self._told(metrics, found)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """FedAvg's averages, and whether this round's model keeps the limits on these rows."""
        kept = list(replies)
        metrics = super().aggregate_evaluate(server_round, kept)
        if metrics is None:
            return metrics
        self._evaluated[server_round] = found = self._values(kept)
        return self._told(metrics, found)

    def _values(self, replies: Iterable[Message]) -> _Values:
        return _Values(replies, list(self.limits), self.weighted_by_key)

    def _told(self, metrics: MetricRecord, found: _Values) -> MetricRecord:
        """The metrics for Flower's history: values by limit and client instead of raw sums."""
        told = {k: v for k, v in metrics.items() if not k.startswith(("sum of ", "rows of "))}
        for m, name in enumerate(self.limits):
            told[name] = float(found.values[m])
            told[f"{name} by client"] = found.by_client[:, m].tolist()
            told[f"multiplier of {name}"] = self.multipliers[name]
        told["limits_kept"] = int((found.values <= self._allowed).all())
        return MetricRecord(told | {"clients": found.clients})

    def _certificate(self, best: _Measured) -> dict[str, Any]:
        held_out = self._evaluated.get(best.round)
        limits = [
            {
                "name": name,
                "limit": limit,
                "margin": limit - float(best.found.values[m]),
                "multiplier": best.multipliers[name],
                **best.found.about(m),
                "held_out": held_out.about(m) if held_out else None,
            }
            for m, (name, limit) in enumerate(self.limits.items())
        ]
        about = {"round": best.round, "loss": best.found.loss, "feasible": best.feasible}
        return about | {"clients": len(best.found.clients), "limits": limits}

    def _lines(self) -> list[str]:
        """The certificate as lines for the log."""
        if not self.certificate:
            return ["no limits were measured: no client answered"]
        head = "all limits are kept" if self.certificate["feasible"] else "a limit is BROKEN"
        lines = [f"model of round {self.certificate['round']}: {head} on the training rows"]
        for each in self.certificate["limits"]:
            lines.append(
                f"  {each['name']}: {each['value']:.4g}, limit {each['limit']:g}, "
                f"worst client {each['worst_client']:.4g}, {each['rows']} rows"
            )
            if held_out := each["held_out"]:
                lines.append(
                    f"    on evaluated rows, not used for the choice: {held_out['value']:.4g}, "
                    f"worst client {held_out['worst_client']:.4g}, {held_out['rows']} rows"
                )
        return lines


class _Measured(NamedTuple):
    """A model after some round, and what the clients measured of it on their training rows."""

    round: int
    arrays: ArrayRecord
    found: _Values
    broken: np.ndarray
    """F_m - limit_m."""
    multipliers: dict[str, float]

    @property
    def feasible(self) -> bool:
        """Whether all limits are kept."""
        return bool((self.broken <= 0).all())

    @property
    def rank(self) -> tuple[float, float]:
        """The lowest is the best model: the largest violation first, then the loss."""
        return max(0.0, float(self.broken.max())), self.found.loss


class _Values:
    """F_0..F_M over the rows of all clients that replied, and F_1..F_M of each of them."""

    def __init__(self, replies: Iterable[Message], names: list[str], weight: str) -> None:
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
        every = np.array([each[weight] for each in metrics], float)
        self.all_rows = float(every.sum())
        losses = np.array([each["objective"] for each in metrics], float)
        self.loss = float(losses @ every / max(1.0, self.all_rows))
        with np.errstate(invalid="ignore", divide="ignore"):
            self.values = np.where(self.rows > 0, sums.sum(axis=0) / self.rows, 0.0)
            self.by_client = sums / rows

    def about(self, m: int) -> dict[str, Any]:
        """Value, rows and worst client of limit m."""
        seen = self.by_client[:, m][~np.isnan(self.by_client[:, m])]
        worst = float(seen.max()) if len(seen) else 0.0
        value, rows = float(self.values[m]), int(self.rows[m])
        return {"value": value, "rows": rows, "worst_client": worst}
