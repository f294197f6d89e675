"""Processes that work a plan off: each takes an item, stores its runs, and asks for the next."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from fedssca.errors import UserError
from fedssca.studies.reproduce.cache import Cache
from fedssca.studies.reproduce.plan import Item
from fedssca.system import cores, ignoring_ctrl_c

__all__ = ["work_off"]

Seen = Callable[[Item, float], None]
"""Hears which share of an item is done."""
Done = Callable[[Item], None]
"""Hears that an item's runs are stored."""


def work_off(items: Sequence[Item], cache: Cache, jobs: int, seen: Seen, done: Done) -> None:
    """Carry out all items with up to `jobs` processes, each on cores of its own.

    Whatever ends this early (Ctrl-C, bad input, a process that dies), no process is left behind.
    """
    waiting = deque(items)
    crew = [_Worker(cache, n, min(jobs, len(items))) for n in range(min(jobs, len(items)))]
    try:
        for worker in crew:
            worker.give(waiting)
        while busy := {worker.pipe: worker for worker in crew if worker.item is not None}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                if (finished := worker.hear(seen)) is not None:
                    worker.give(waiting)
                    seen(finished, 1.0)
                    done(finished)
    finally:
        for worker in crew:
            worker.stop()


class _Worker:
    """The parent's side of one process."""

    def __init__(self, cache: Cache, number: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.item: Item | None = None
        self._process = context.Process(target=_serve, args=(far, cache), daemon=True)
        with _pinned(number, count), ignoring_ctrl_c():  # not even while it starts
            self._process.start()
        far.close()

    def give(self, waiting: deque[Item]) -> None:
        """The next item, if there is one."""
        if waiting:
            self.item = waiting.popleft()
            with suppress(OSError):  # a dead process is noticed in `hear`
                self.pipe.send(self.item)

    def hear(self, seen: Seen) -> Item | None:
        """One message of the process, or the news that it died; returns an item that is done."""
        assert self.item is not None
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise UserError(
                f"a worker process ended (exit code {self._process.exitcode}) during "
                f"{self.item.label!r}, for want of memory perhaps: finished runs are kept; "
                "same command again, with a smaller --jobs"
            ) from None
        if kind == "share":
            seen(self.item, content)
        elif kind == "refused":
            raise UserError(f"{self.item.label}: {content}")
        elif kind == "failed":
            raise RuntimeError(f"{self.item.label}:\n{content}")
        else:
            finished, self.item = self.item, None
            return finished
        return None

    def stop(self) -> None:
        """End the process, at work or not."""
        self.pipe.close()
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, cache: Cache) -> None:
    """The worker's side: items in, runs into the cache."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's matter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_answer(pipe.recv(), cache, pipe))


def _answer(item: Item, cache: Cache, pipe: Connection) -> tuple[str, Any]:
    from fedssca.studies.reproduce.runs import carry_out

    try:
        found = carry_out(
            item.task,
            item.configs,
            item.evaluate_at,
            lambda share: pipe.send(("share", 0.99 * share)),
        )
        for key, config, run in zip(item.keys, item.configs, found, strict=True):  # as they end
            cache.put(key, run, {"curve": item.label, "seed": config.run.seed})
    except BrokenPipeError:
        raise
    except UserError as error:
        return "refused", str(error)
    except Exception:
        return "failed", traceback.format_exc()
    return "done", None


@contextmanager
def _pinned(number: int, count: int) -> Iterator[None]:
    """A process started in here has its own share of the cores, before any thread is made."""
    every = cores()
    if not hasattr(os, "sched_setaffinity") or count < 2:
        yield
        return
    own = every[number % len(every) :: count]
    os.sched_setaffinity(0, own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)
