"""Which replies of clients are used: one that makes no sense is left out, and the log says why.

Flower's FedAvg would add it to the model, where one number that is not finite destroys everything,
or end the whole training.
"""

from __future__ import annotations

from collections.abc import Iterable
from logging import WARNING

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.common.logger import log

from fedssca.errors import UserError

__all__ = ["usable"]


def usable(
    replies: Iterable[Message], names: list[str], weight: str, sent: ArrayRecord | None
) -> list[Message]:
    """The replies without those that cannot be used; failures stay, for Flower's own log.

    `names` are the limits, `weight` is the metric with the number of rows, and `sent` the model
    that the clients were to train; None if they were only to evaluate it.
    """
    every = list(replies)
    told = [set().union(*_metrics(reply)) for reply in every if not reply.has_error()]
    missing = [n for n in names if told and all(f"sum of {n}" not in each for each in told)]
    if missing:
        raise UserError(
            f"no values of {', '.join(missing)} came: name the clients' constraints like the "
            "limits of the strategy"
        )
    kept = []
    for reply in every:
        why = "" if reply.has_error() else _fault(reply, names, weight, sent)
        if why:
            node = reply.metadata.src_node_id
            log(WARNING, "the reply of client %s is left out: %s", node, why)
        else:
            kept.append(reply)
    return kept


def _metrics(reply: Message) -> list[dict[str, object]]:
    return [dict(each) for each in reply.content.metric_records.values()]


def _fault(reply: Message, names: list[str], weight: str, sent: ArrayRecord | None) -> str:
    """Why a reply cannot be used; empty if it can."""
    metrics = _metrics(reply)
    if len(metrics) != 1:
        return f"it has {len(metrics)} records of metrics instead of one"
    wanted = [weight, "objective", "slope of objective"]
    wanted += [f"{part} of {name}" for name in names for part in ("sum", "rows", "slope")]
    for key in wanted:
        value = metrics[0].get(key)
        if not isinstance(value, int | float) or not np.isfinite(value):
            return f"its {key!r} is {'missing' if value is None else value}"
        if value < 0 and (key == weight or key.startswith(("rows of ", "slope of "))):
            return f"its {key!r} is negative"
    if not metrics[0][weight]:
        return f"its {weight!r} is 0"
    return _model_fault(reply, sent) if sent is not None else ""


def _model_fault(reply: Message, sent: ArrayRecord) -> str:
    """Why the model of a reply cannot be averaged with others."""
    models = list(reply.content.array_records.values())
    if len(models) != 1 or set(models[0]) != set(sent):
        return "its model does not have the arrays of the model that was sent"
    for name, array in models[0].items():
        value, shape = array.numpy(), sent[name].numpy().shape
        if value.shape != shape:
            return f"{name!r} of its model has the shape {value.shape} instead of {shape}"
        if np.issubdtype(value.dtype, np.inexact) and not np.isfinite(value).all():
            return f"{name!r} of its model has numbers that are not finite"
    return ""
