"""The processes that carry out a plan: each takes an item, stores its runs, and takes the next."""

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
from fedssca.studies.reproduce.plan import PlannedRuns
from fedssca.system import cores, ignoring_ctrl_c

__all__ = ["run_all"]

OnShare = Callable[[PlannedRuns, float], None]
"""A function that is called with the fraction of an item that is done."""
OnDone = Callable[[PlannedRuns], None]
"""A function that is called when the runs of an item are stored."""


def run_all(
    items: Sequence[PlannedRuns], cache: Cache, jobs: int, on_share: OnShare, on_done: OnDone
) -> None:
    """Carry out all items with up to `jobs` processes, each on its own cores.

    No process is left behind if this ends early by Ctrl-C, bad input or a process that dies.
    """
    waiting = deque(items)
    workers = [_Worker(cache, n, min(jobs, len(items))) for n in range(min(jobs, len(items)))]
    try:
        for worker in workers:
            worker.give(waiting)
        while busy := {worker.pipe: worker for worker in workers if worker.item is not None}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                if (finished := worker.receive(on_share)) is not None:
                    worker.give(waiting)
                    on_share(finished, 1.0)
                    on_done(finished)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """The parent's side of one worker process."""

    def __init__(self, cache: Cache, number: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.item: PlannedRuns | None = None
        self._process = context.Process(target=_serve, args=(far, cache), daemon=True)
        with _pinned(number, count), ignoring_ctrl_c():  # Ctrl-C must not reach it while it starts.
            self._process.start()
        far.close()

    def give(self, waiting: deque[PlannedRuns]) -> None:
        """Send the next item, if there is one."""
        if waiting:
            self.item = waiting.popleft()
            with suppress(OSError):  # `receive` notices a dead process.
                self.pipe.send(self.item)

    def receive(self, on_share: OnShare) -> PlannedRuns | None:
        """Handle one message of the process, or its death; return an item that is done."""
        assert self.item is not None
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise UserError(
                f"a worker process ended (exit code {self._process.exitcode}) during "
                f"{self.item.label!r}, perhaps for lack of memory. Finished runs are kept: run the "
                "same command again with a smaller --jobs"
            ) from None
        if kind == "share":
            on_share(self.item, content)
        elif kind == "refused":
            raise UserError(f"{self.item.label}: {content}")
        elif kind == "failed":
            raise RuntimeError(f"{self.item.label}:\n{content}")
        else:
            finished, self.item = self.item, None
            return finished
        return None

    def stop(self) -> None:
        """End the process, whether it is busy or not."""
        self.pipe.close()
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, cache: Cache) -> None:
    """The worker's side: receive items and store their runs in the cache."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_answer(pipe.recv(), cache, pipe))


def _answer(item: PlannedRuns, cache: Cache, pipe: Connection) -> tuple[str, Any]:
    from fedssca.studies.reproduce.runs import carry_out

    try:
        found = carry_out(
            item.task,
            item.configs,
            item.evaluate_at,
            lambda share: pipe.send(("share", 0.99 * share)),
        )
        for key, config, run in zip(item.keys, item.configs, found, strict=True):
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
    """A process that is started in this context gets its own share of the cores."""
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
