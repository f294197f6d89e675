"""A careful PyTorch loop over clients: one tensor of data, no DataLoader, in-place updates.

Each client moves a model of its own and the server averages them. The variant "joined" knows that
with one local step the average of the models is one step along the mean gradient, as our compiled
path does, and takes the fastest of `torch.func.vmap` over clients and one joined batch; the joined
batch with derivatives by hand, which no framework would ask for, is timed for information.
Everything is tried with one thread and with all.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import common
import torch
from common_torch import loss
from torch.nn import functional

given = common.settings()
torch.set_num_threads(given.threads)
torch.manual_seed(given.seed)
data = common.load(given)
x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
first = [torch.from_numpy(each.copy()) for each in data.w]
offsets = (torch.arange(given.clients) * given.rows)[:, None]
one_hot = functional.one_hot(y).float()


def draw() -> torch.Tensor:
    return torch.randint(given.rows, (given.clients, given.batch)) + offsets


def loop(w: list[torch.Tensor]) -> Callable[[], None]:
    total = [torch.zeros_like(each) for each in w]
    local = [each.clone().requires_grad_() for each in w]

    def one() -> None:
        for each in total:
            each.zero_()
        for index in draw():
            for mine, theirs in zip(local, w, strict=True):
                mine.data.copy_(theirs)
            slope = torch.autograd.grad(loss(local, x[index], y[index]), local)
            for each, mine, way in zip(total, local, slope, strict=True):
                mine.data.sub_(way, alpha=given.rate)
                each.add_(mine.data)
        for each, new in zip(w, total, strict=True):
            each.copy_(new).div_(given.clients)

    return one


def vmapped(w: list[torch.Tensor]) -> Callable[[], None]:
    slopes = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def one() -> None:
        index = draw()
        for each, slope in zip(w, slopes(w, x[index], y[index]), strict=True):
            each.sub_(slope.mean(0), alpha=given.rate)

    return one


def joined(w: list[torch.Tensor]) -> Callable[[], None]:
    for each in w:
        each.requires_grad_()

    def one() -> None:
        index = draw().ravel()
        slope = torch.autograd.grad(loss(w, x[index], y[index]), w)
        with torch.no_grad():
            torch._foreach_add_(w, slope, alpha=-given.rate)

    return one


@torch.no_grad()
def by_hand(w: list[torch.Tensor]) -> Callable[[], None]:
    w1, w0 = w
    rate = given.rate / (given.clients * given.batch)

    @torch.no_grad()
    def one() -> None:
        index = draw().ravel()
        rows = x[index]
        z = rows @ w1.T
        gate = torch.sigmoid(z)
        act = z * gate
        error = torch.softmax(act @ w0.T, 1).sub_(one_hot[index])
        gate.add_(act.mul(1 - gate)).mul_(error @ w0)
        w0.addmm_(error.T, act, alpha=-rate)
        w1.addmm_(gate.T, rows, alpha=-rate)

    return one


WAYS = {"loop": loop, "vmap": vmapped, "joined": joined, "by hand": by_hand}
VARIANTS = {"": ["loop"], "joined": ["vmap", "joined", "by hand"]}


def main() -> None:
    ready, tried = common.since_launch(given), {}
    ways = [name for name in VARIANTS[given.variant] if len(first) == 2 or name != "by hand"]
    for name in ways:
        for threads in sorted({1, given.threads}):
            torch.set_num_threads(threads)
            one = WAYS[name]([each.clone() for each in first])
            common.timed(3, one)
            seconds = statistics.median(common.timed(max(3, given.warmup), one))
            tried[f"{name}, {threads} threads"] = seconds
    best = min([name for name in tried if "by hand" not in name], key=tried.get)
    name, _, threads = best.partition(", ")
    torch.set_num_threads(int(threads.split()[0]))
    w = [each.clone() for each in first]
    one = WAYS[name](w)
    startup = ready + common.timed(given.warmup, one)[0]
    seconds = common.timed(given.rounds - given.warmup, one)
    final = common.loss(given, [each.detach().numpy() for each in w])
    seconds = common.go_on(given, seconds, one)
    common.emit(seconds, startup, final, ["torch", "numpy"], variant=best, variants=tried)


if __name__ == "__main__":
    main()
