"""FedAvg with limits: Flower's own strategy on the Lagrangian of the constrained problem.

    minimise  F_0(w)    subject to    F_m(w) <= limit_m,    m = 1..M

F_0 is the mean loss over all rows of all clients, F_m the mean of a client's function over those
rows that it counts. In round t the server publishes w(t), the weights a_0..a_M (`weights`) and the
shares p_m of rows that count for m. Client k takes its local steps on

    a_0 mean f_0 + sum_m a_m / p_m mean [the row counts for m] f_m,

whose average over clients, weighted by their rows, is a_0 F_0 + sum_m a_m F_m. It also sends sums
and counts of the f_m at w(t), from which the server knows F_m(w(t)) over all rows. These values
move the weights. With few rounds they jump, so the last models are also averaged, and points
between a model that keeps the limits and a better one that does not are tried (`candidates`). The
best model that keeps the limits is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from fedssca.errors import UserError
from fedssca.run.apps.flower.candidates import Candidates, MeasuredModel
from fedssca.run.apps.flower.replies import usable
from fedssca.run.apps.flower.values import Values
from fedssca.run.apps.flower.weights import Weights

__all__ = ["LimitedFedAvg"]


class LimitedFedAvg(FedAvg):
    """FedAvg that keeps limits; all settings of FedAvg are its settings too.

    `limits` are the largest values allowed, by the names that the clients' constraints have.
    `start` returns the model with the lowest loss among those that keep all limits, and the one
    that breaks them least if none does. Loss and limits are those that the clients measured on
    their training rows; the rows of evaluations play no part in the choice. Clients measure a model
    before they train it further, so one round is trained at the end whose model is thrown away.
    If a limit was active, up to `more_models` further rounds measure averages of the last models
    and points between models in the same way. `certificate` says of the returned model what was
    measured.
    """

    def __init__(self, limits: Mapping[str, float], *, more_models: int = 3, **given: Any) -> None:
        super().__init__(**given)
        if not limits or not all(np.isfinite(limit) for limit in limits.values()):
            raise UserError(f"limits = {dict(limits)}: give a number for each constraint's name")
        if more_models < 0:
            raise UserError(f"more_models = {more_models}: give 0 or a positive number")
        self.limits, self.more_models = dict(limits), more_models
        self.certificate: dict[str, Any] = {}
        self._allowed = np.array(list(limits.values()))
        self._begin(1)

    def _begin(self, rounds: int) -> None:
        """Forget what an earlier training has left."""
        self._weights = Weights(self._allowed, rounds)
        self._models = Candidates(rounds)
        self._shares = np.zeros(len(self.limits))
        self._sent: ArrayRecord | None = None
        self._evaluated: dict[int, Values] = {}
        self.certificate = {}

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train as Flower does; the result holds the best model that keeps the limits."""
        self._begin(num_rounds)
        train = train_config if train_config is not None else ConfigRecord()
        evaluate = evaluate_config if evaluate_config is not None else ConfigRecord()
        result = super().start(
            grid, initial_arrays, num_rounds, timeout, train, evaluate, evaluate_fn
        )
        if not result.arrays:  # no client has trained a model
            log(WARNING, self._lines()[0])
            return result

        def measure(name: str, arrays: ArrayRecord, of: int | None) -> bool:
            """Let the clients measure a model; what they train with it is thrown away."""
            if len(list(grid.get_node_ids())) < max(self.min_train_nodes, self.min_available_nodes):
                log(WARNING, "too few clients are left to measure the %s", name)
                return False
            log(INFO, "the clients measure the %s", name)
            asked = self.configure_train(num_rounds + 1, arrays, train, grid)
            replies = self._usable(grid.send_and_receive(messages=asked, timeout=timeout), arrays)
            _, metrics = super(LimitedFedAvg, self).aggregate_train(num_rounds + 1, replies)
            if metrics is None:
                return False
            found = self._values(replies)
            self._keep(name, of, found)
            if of is not None:
                result.train_metrics_clientapp[of + 1] = self._told(metrics, found)
            return True

        answered = measure(f"model of round {num_rounds}", result.arrays, num_rounds)
        if self._weights.active or self._models.broken:
            for _ in range(self.more_models):
                candidate = self._models.candidate()
                if not answered or candidate is None:
                    break
                answered = measure(*candidate, None)
        best = self._models.best
        if best is not None:
            result.arrays = best.arrays
            of = num_rounds + 1 if best.round is None else best.round
            if best.round is None:  # no round has evaluated it yet
                asked = self.configure_evaluate(of, best.arrays, evaluate, grid)
                replies = grid.send_and_receive(messages=asked, timeout=timeout)
                if metrics := self.aggregate_evaluate(of, replies):
                    result.evaluate_metrics_clientapp[of] = metrics
                if evaluate_fn and (metrics := evaluate_fn(of, best.arrays)):
                    result.evaluate_metrics_serverapp[of] = metrics
            self.certificate = self._certificate(best, self._evaluated.get(of))
            if metrics := result.evaluate_metrics_serverapp.get(of):
                self.certificate["server"] = dict(metrics)
        for line in self._lines():
            log(INFO, line)
        return result

    @property
    def multipliers(self) -> dict[str, float]:
        """nu_m by the names of the limits."""
        return dict(zip(self.limits, self._weights.multipliers.tolist(), strict=True))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, with the weights of this round."""
        self._sent = arrays
        config["limits"] = list(self.limits)
        config["weights"] = self._weights.sent().tolist()
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
        """FedAvg's average; the values that came with it move the weights."""
        kept = self._usable(replies, self._sent)
        arrays, metrics = super().aggregate_train(server_round, kept)
        if arrays is None or metrics is None:
            return arrays, metrics
        found = self._values(kept)
        self._shares = found.rows / max(1, found.all_rows)
        self._weights.move(found.values, found.ratios)
        self._keep(f"model of round {server_round - 1}", server_round - 1, found)
        return arrays, self._told(metrics, found)

    def _keep(self, name: str, of: int | None, found: Values) -> None:
        """Remember what was measured of the model that was sent last."""
        if self._sent is not None:
            unit = np.where(self._weights.units > 0, self._weights.units, 1.0)
            excess = float(((found.values - self._allowed) / unit).max())
            self._models.add(MeasuredModel(name, of, self._sent, found, excess, self.multipliers))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """FedAvg's averages, and whether this round's model keeps the limits on these rows."""
        kept = self._usable(replies, None)
        metrics = super().aggregate_evaluate(server_round, kept)
        if metrics is None:
            return metrics
        self._evaluated[server_round] = found = self._values(kept)
        return self._told(metrics, found)

    def _usable(self, replies: Iterable[Message], sent: ArrayRecord | None) -> list[Message]:
        return usable(replies, list(self.limits), self.weighted_by_key, sent)

    def _values(self, replies: Iterable[Message]) -> Values:
        return Values(replies, list(self.limits), self.weighted_by_key)

    def _told(self, metrics: MetricRecord, found: Values) -> MetricRecord:
        """The metrics for Flower's history: values by limit and client instead of raw sums."""
        told = {
            k: v
            for k, v in metrics.items()
            if not k.startswith(("sum of ", "rows of ", "slope of "))
        }
        for m, name in enumerate(self.limits):
            told[name] = float(found.values[m])
            told[f"{name} by client"] = found.by_client[:, m].tolist()
            told[f"multiplier of {name}"] = self.multipliers[name]
        told["limits_kept"] = int((found.values <= self._allowed).all())
        return MetricRecord(told | {"clients": found.clients})

    def _certificate(self, best: MeasuredModel, held_out: Values | None) -> dict[str, Any]:
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
        about = {
            "model": best.name,
            "round": best.round,
            "loss": best.found.loss,
            "feasible": best.feasible and all(each["rows"] for each in limits),
        }
        return about | {"clients": len(best.found.clients), "limits": limits}

    def _lines(self) -> list[str]:
        """The certificate as lines for the log."""
        if not self.certificate:
            return ["no limits were measured: no client sent a model and values that can be used"]
        head = "all limits are kept" if self.certificate["feasible"] else "a limit is BROKEN"
        if not all(each["rows"] for each in self.certificate["limits"]):
            head = "a limit is NOT MEASURED, because no row counts for it,"
        lines = [f"{self.certificate['model']}: {head} on the training rows"]
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
        if server := self.certificate.get("server"):
            lines.append(f"  the server's evaluation of this model: {server}")
        return lines
