"""pfl-research: `FederatedAveraging` on its `SimulatedBackend`, PyTorch model, ten users a cohort.

A user's data set is the batch that it drew for this round, so that pfl need not walk through the
6000 rows of a user to use ten of them. Evaluation is off after the first round.
"""

from __future__ import annotations

import itertools
import time

import common
import common_torch
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

given = common.settings()
data = common.load(given)
x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)


class Network(torch.nn.Module):
    """The task's network, with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        own = [torch.nn.Parameter(torch.from_numpy(each.copy())) for each in data.w]
        self.w = torch.nn.ParameterList(own)

    def loss(self, rows: torch.Tensor, labels: torch.Tensor, **_: bool) -> torch.Tensor:
        """What a user minimises."""
        return common_torch.loss(list(self.w), rows, labels)

    def metrics(self, rows: torch.Tensor, labels: torch.Tensor, **_: bool) -> dict[str, Weighted]:
        """What pfl reports in the first round."""
        return {"loss": Weighted(self.loss(rows, labels).item() * len(rows), len(rows))}


class Clock(TrainingProcessCallback):
    """Marks the end of every round, takes the loss at round `rounds`, ends when enough is timed."""

    def __init__(self, rounds: int, seconds: float) -> None:
        self.marks = [time.perf_counter()]
        self.final, self._paused, self._rounds, self._seconds = 0.0, 0.0, rounds, seconds

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Called by pfl."""
        self.marks.append(time.perf_counter() - self._paused)
        done = len(self.marks) - 1
        if done == given.rounds:
            w = model.pytorch_model.w
            self.final = common.loss(given, [each.detach().numpy() for each in w])
            self._paused = time.perf_counter() - self.marks[-1]
        timed = self.marks[-1] - self.marks[min(given.warmup, done)]
        return done >= self._rounds and timed >= self._seconds, Metrics()


def train(rounds: int, seconds: float) -> Clock:
    rng = np.random.default_rng(given.seed)
    users = itertools.cycle(range(given.clients))

    def user(number: int) -> Dataset:
        index = torch.from_numpy(rng.integers(given.rows, size=given.batch) + number * given.rows)
        return Dataset(raw_data=[x[index], y[index]], user_id=str(number))

    network, clock = Network(), Clock(rounds, seconds)
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    crowd = FederatedDataset(user, lambda: next(users))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=given.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=crowd, val_data=crowd),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=given.rate, local_batch_size=given.batch
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return clock


def main() -> None:
    ready, tried = common.since_launch(given), {}
    for threads in sorted({1, given.threads}):
        torch.set_num_threads(threads)
        tried[f"{threads} threads"] = float(np.median(np.diff(train(given.warmup, 0.0).marks)))
    best = min(tried, key=tried.get)
    torch.set_num_threads(int(best.split()[0]))
    clock = train(given.rounds, given.seconds)
    seconds = np.diff(clock.marks)
    more = {"variant": best, "variants": tried}
    packages = ["pfl", "torch", "numpy"]
    common.emit(seconds[given.warmup :], ready + seconds[0], clock.final, packages, **more)


if __name__ == "__main__":
    main()
