"""Clients of a Flower app that fail, lie or leave: the others train on, and the log says who."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

REASON = "needs the extras flower and torch: pip install 'fedssca[flower,torch]'"
pytest.importorskip("flwr", reason=REASON)
torch = pytest.importorskip("torch", reason=REASON)

from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402

from fedssca import UserError  # noqa: E402
from fedssca.flower import LimitedFedAvg, LimitedLoss  # noqa: E402
from fedssca.run.apps.flower import replies, strategy  # noqa: E402
from fedssca.run.apps.flower.replies import usable  # noqa: E402
from tests.run.apps.flower_apps import AppGrid  # noqa: E402


def rows_of(scores: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(scores, y, reduction="none")


def new_client(counted: Callable[[Any], Any] = lambda y: y >= 0) -> ClientApp:
    """Clients with ten rows, a linear model and one limit."""
    app = ClientApp()

    def replied(message: Message, context: Any) -> Message:
        draw = torch.Generator().manual_seed(context.node_id)
        x = torch.randn(10, 2, generator=draw)
        y = (x[:, 0] > 0).long()
        net = torch.nn.Linear(2, 2)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        constraints = {"loss": lambda scores, y: rows_of(scores, y)[counted(y)]}
        limited = LimitedLoss(message, rows_of, constraints)
        metrics = {"num-examples": 10} | limited.measure(net, [(x, y)])
        limited(net(x), y).backward()
        with torch.no_grad():
            for part in net.parameters():
                part -= part.grad
        record = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}
        return Message(RecordDict(record), reply_to=message)

    app.train()(replied)
    app.evaluate()(replied)
    return app


class FaultyGrid(AppGrid):
    """Three nodes; what node 3 replies is changed by `fault`."""

    def __init__(self, fault: Callable[[Message], Message], client: ClientApp | None = None):
        super().__init__(client or new_client(), 3)
        self._fault = fault

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        third = [reply.metadata.src_node_id == 3 for reply in replies]
        pairs = zip(replies, third, strict=True)
        return [self._fault(reply) if bad else reply for reply, bad in pairs]


def metric(name: str, value: Any) -> Callable[[Message], Message]:
    """Node 3 sends this value of a metric; None for none."""

    def fault(reply: Message) -> Message:
        record = reply.content.metric_records["metrics"]
        record.pop(name)
        if value is not None:
            record[name] = value
        return reply

    return fault


def array(name: str, value: Any) -> Callable[[Message], Message]:
    """Node 3 sends this array in its model."""

    def fault(reply: Message) -> Message:
        if "arrays" in reply.content.array_records:
            reply.content.array_records["arrays"][name] = Array(torch.tensor(value).numpy())
        return reply

    return fault


def failed(reply: Message) -> Message:
    return Message(Error(code=1, reason="lost"), reply_to=reply)


def trained(grid: AppGrid) -> tuple[LimitedFedAvg, Any]:
    torch.manual_seed(0)
    random.seed(0)  # Flower draws the order of the clients
    made = LimitedFedAvg({"loss": 0.4}, fraction_evaluate=1.0)
    start = ArrayRecord(torch.nn.Linear(2, 2).state_dict())
    return made, made.start(grid, start, num_rounds=3)


def values_of(result: Any) -> list[Any]:
    return list(result.arrays.to_numpy_ndarrays())


def message_with(**metrics: float) -> Message:
    AppGrid(new_client(), 1)  # sets who sends
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), 1, "train")


FAULTS = [
    (metric("sum of loss", float("nan")), "its 'sum of loss' is nan"),
    (metric("sum of loss", None), "its 'sum of loss' is missing"),
    (metric("rows of loss", -5), "its 'rows of loss' is negative"),
    (metric("num-examples", 0), "its 'num-examples' is 0"),
    (metric("num-examples", -10), "its 'num-examples' is negative"),
    (metric("num-examples", float("inf")), "its 'num-examples' is inf"),
    (metric("objective", [1.0, 2.0]), "its 'objective' is [1.0, 2.0]"),
    (array("bias", [float("nan"), 0.0]), "'bias' of its model has numbers that are not finite"),
    (array("bias", [1.0]), "'bias' of its model has the shape (1,) instead of (2,)"),
    (array("more", [1.0]), "its model does not have the arrays of the model that was sent"),
]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the log says of replies and of clients that are missing."""
    lines: list[str] = []
    for module in (replies, strategy):
        monkeypatch.setattr(module, "log", lambda _, line, *more: lines.append(line % more))
    return lines


def test_a_reply_without_sense_is_left_out(said: list[str]) -> None:
    """The training is that of the two other clients, number for number."""
    _, alone = trained(FaultyGrid(failed))
    for fault, why in FAULTS:
        said.clear()
        made, result = trained(FaultyGrid(fault))
        assert f"the reply of client 3 is left out: {why}" in said
        assert (made.certificate["clients"], made.certificate["limits"][0]["rows"]) == (2, 20)
        for ours, theirs in zip(values_of(result), values_of(alone), strict=True):
            assert (ours == theirs).all(), why


def test_clients_that_leave_after_the_last_round_are_not_waited_for(said: list[str]) -> None:
    grid = AppGrid(new_client(), 2)
    count = iter([2] * 12)  # each round looks twice before training, twice before evaluation
    grid.get_node_ids = lambda: range(1, next(count, 1) + 1)  # type: ignore[method-assign]
    made, result = trained(grid)
    assert "too few clients are left to measure the model of round 3" in said
    assert values_of(result)
    assert made.certificate["round"] is not None, "one of the measured models"


def test_what_no_client_measures_is_said(said: list[str]) -> None:
    made, _ = trained(AppGrid(new_client(lambda y: y > 5), 2))
    assert not made.certificate["feasible"]
    assert "a limit is NOT MEASURED, because no row counts for it," in made._lines()[0]
    lost = AppGrid(new_client(), 2)
    answered = lost.pull_messages
    lost.pull_messages = lambda names: map(failed, answered(names))  # type: ignore[method-assign]
    made, result = trained(lost)
    assert not result.arrays
    assert said[-1] == "no limits were measured: no client sent a model and values that can be used"


def test_other_names_end_the_training() -> None:
    with pytest.raises(UserError, match="no values of loss came: name the clients' constraints"):
        usable([message_with(num=1.0)], ["loss"], "num", None)
