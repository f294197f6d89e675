"""A client's loss with limits: what a torch module, a loss and constraints make of a message.

Loss and constraints are functions of (the module's output, the labels). The loss gives one number
per row (reduction="none"). A constraint gives one number for each row that it counts, so that
`lambda scores, y: loss(scores, y)[y == 8]` is the loss of the eights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from flwr.app import Message

from fedssca.errors import UserError

if TYPE_CHECKING:
    import torch

__all__ = ["LimitedLoss"]

Rowwise: TypeAlias = Callable[[Any, Any], Any]
"""(the module's output, labels) -> one number for each row, or for each row that counts."""


class LimitedLoss:
    """The criterion of one round: a_0 f_0 + sum_m a_m f_m, with the weights in the message.

    Call it as a criterion in the training loop, and send what `measure` gives with the metrics.
    """

    def __init__(self, msg: Message, loss: Rowwise, constraints: Mapping[str, Rowwise]) -> None:
        self._loss, self._constraints = loss, dict(constraints)
        config: Mapping[str, Any] = next(iter(msg.content.config_records.values()), {})
        names = config.get("limits")
        if not isinstance(names, list) or set(names) != set(constraints):
            raise UserError(
                f"the constraints here are {sorted(constraints)}, the server's limits "
                f"{sorted(names) if isinstance(names, list) else 'none'}: give both the same "
                "names, and the server the strategy LimitedFedAvg"
            )
        weights, shares = config.get("weights", [1.0]), config.get("shares", [])
        self._weights = [float(weight) for weight in weights]
        self._factors = {
            name: weight / float(share)
            for name, weight, share in zip(names, self._weights[1:], shares, strict=False)
        }

    def __call__(self, scores: Any, y: Any) -> Any:
        """The weighted sum over one batch, to be differentiated."""
        total = self._weights[0] * self._per_row(scores, y).mean()
        for name, factor in self._factors.items():
            total = total + factor * self._constraints[name](scores, y).sum() / len(y)
        return total

    def measure(
        self, model: torch.nn.Module, loader: Iterable[Any], device: Any = "cpu"
    ) -> dict[str, float]:
        """The mean loss, sums and counts of the constraints, and slopes, over all rows.

        The slope of a function is the sum over rows of |d f / d output|^2. The server compares the
        slopes of loss and constraints to give both the same unit.
        """
        import torch

        _check(model)
        before = {part: part.training for part in model.modules()}
        model.eval()  # without dropout, so that the numbers are those of the model
        rows, lost = 0, 0.0
        sums, counts = dict.fromkeys(self._constraints, 0.0), dict.fromkeys(self._constraints, 0)
        slopes = dict.fromkeys(["objective", *self._constraints], 0.0)
        state = torch.get_rng_state()  # training draws the same batches as without limits
        for x, y in _pairs(loader, device):
            with torch.enable_grad():  # no gradient goes beyond the output, so this is cheap
                scores = model(x)
                losses = self._per_row(scores, y)
                found = {name: function(scores, y) for name, function in self._constraints.items()}
                slopes["objective"] += _slope(losses, scores)
                for name, values in found.items():
                    slopes[name] += _slope(values, scores)
            rows, lost = rows + len(y), lost + float(losses.detach().sum())
            for name, values in found.items():
                sums[name] += float(values.detach().sum())
                counts[name] += values.numel()
        torch.set_rng_state(state)
        for part, training in before.items():
            part.training = training
        if not rows:
            raise UserError("the loader gives no rows: give this client some data")
        told = {"objective": lost / rows}
        told |= {f"sum of {name}": value for name, value in sums.items()}
        told |= {f"slope of {name}": value for name, value in slopes.items()}
        return told | {f"rows of {name}": count for name, count in counts.items()}

    def _per_row(self, scores: Any, y: Any) -> Any:
        values = self._loss(scores, y)
        if values.ndim != 1 or len(values) != len(y):
            raise UserError('the loss gives no number per row: make it with reduction="none"')
        return values


def _slope(values: torch.Tensor, scores: Any) -> float:
    """The sum over rows of |d f / d output|^2; 0 where nothing can be differentiated."""
    import torch

    outputs = [each for each in _tensors(scores) if each.requires_grad]
    if not values.requires_grad or not outputs:
        return 0.0
    found = torch.autograd.grad(values.sum(), outputs, retain_graph=True, allow_unused=True)
    return sum(float(each.square().sum()) for each in found if each is not None)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in a module's output, which may be a tuple, a list or a dictionary of them."""
    import torch

    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping | list | tuple):
        for part in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(part)


def _check(model: torch.nn.Module) -> None:
    """Raise a UserError if the loss of a row depends on the other rows of its batch."""
    from torch.nn.modules.batchnorm import _BatchNorm

    for name, part in model.named_modules():
        if isinstance(part, _BatchNorm) and part.training:
            raise UserError(
                f"{name or 'the model'} is BatchNorm in training mode, where a row's loss depends "
                "on other rows: use GroupNorm, or freeze it with eval()"
            )


def _pairs(loader: Iterable[Any], device: Any) -> Iterator[tuple[Any, Any]]:
    """Inputs and labels of each batch, which is a pair or a dictionary of two columns."""
    for batch in loader:
        values = list(batch.values()) if isinstance(batch, Mapping) else batch
        if not isinstance(values, list | tuple) or len(values) != 2:
            raise UserError(
                "the data has no labels: batches must be pairs (inputs, labels), or dictionaries "
                "with one column of each"
            )
        yield values[0].to(device), values[1].to(device)
