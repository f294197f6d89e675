"""Small random problems, and the paper's network written again in plain numpy."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import hypothesis
import jax
import numpy as np
import psutil
import pytest

from fedssca.system import keep_compiled_programs
from tests.browser_helpers import MISSING
from tests.compiler import compile_fast, programs_of_tests
from tests.leftovers import Leftovers

compile_fast()
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads are busy while they wait
gc.set_threshold(50_000, 20, 50)  # JAX makes many objects and few cycles
os.fsync = lambda fd: None  # what tests write need not outlast a power failure
keep_compiled_programs(programs_of_tests())  # tests share many programs
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in a job that a script starts in the background. Tests that send Ctrl-C need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

MUCH_MEMORY = 4e9
"""Bytes in the memory of one worker at which it forgets its compiled programs."""

P, J, L = 7, 5, 3  # inputs, hidden units, classes: d = J (P + L) = 50


@pytest.fixture(scope="module")
def float64() -> Iterator[None]:
    """Double precision for a whole module: `pytestmark = pytest.mark.usefixtures("float64")`."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def columns() -> dict[str, np.ndarray]:
    """60 rows of 7 features, three classes that a network can tell apart, roughly."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(60, P))
    y = np.argmax(x[:, :L] + 0.5 * rng.normal(size=(60, L)), axis=1)
    return {"x": x, "y": y.astype(np.int32)}


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """(w, x, y) -> loss (n,) and gradient (n, d) of every sample, for the network P-J-L."""

    def losses(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w0, w1 = w[: L * J].reshape(L, J), w[L * J :].reshape(J, P)
        z = x @ w1.T
        gate = 1 / (1 + np.exp(-z))
        scores = (z * gate) @ w0.T
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        chance = odds / odds.sum(axis=1, keepdims=True)
        error = chance - np.eye(L)[y]
        back = (error @ w0) * (gate + z * gate * (1 - gate))
        top = np.einsum("nl,nj->nlj", error, z * gate).reshape(len(x), -1)
        bottom = np.einsum("nj,np->njp", back, x).reshape(len(x), -1)
        return -np.log(chance[np.arange(len(x)), y]), np.concatenate([top, bottom], axis=1)

    return losses


FAILED = pytest.StashKey[bool]()
LONGEST = ("test_docs.py", "test_contract.py", "test_certify.py", "test_same_bits.py")
BESIDE = ("test_flower_real.py", "test_flower_run.py", "test_hidden_real.py")
"""Real processes that run beside those of the other files. Both wait most of the time."""


@pytest.fixture(scope="session")
def leftovers() -> Iterator[Leftovers]:
    """The processes that tests start; when the session ends, in whatever way, they end with it."""
    found = Leftovers()
    yield found
    found.close()


@pytest.fixture(autouse=True, scope="module")
def _module_leaves_no_process(request: pytest.FixtureRequest, leftovers: Leftovers) -> Any:
    with leftovers.none_stays(lambda: request.node.stash.get(FAILED, False)):
        yield


@pytest.fixture(autouse=True, scope="module")
def _programs_take_little_memory() -> Iterator[None]:
    """Forget compiled programs when they take much memory: those of all tests take gigabytes.

    Modules share the many small programs of single operations, so they are kept while they can be.
    """
    yield
    if psutil.Process().memory_info().rss > MUCH_MEMORY:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _test_leaves_no_process(request: pytest.FixtureRequest, leftovers: Leftovers) -> Any:
    """Tests of real deployments share one: what they start is looked for after their module."""
    if request.node.get_closest_marker("processes"):
        yield
    else:
        with leftovers.none_stays(lambda: request.node.stash.get(FAILED, False)):
            yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Note on a test and on its module that it failed."""
    report = yield
    if report.failed:
        for node in item.listchain():
            node.stash[FAILED] = True
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the real processes, then with the files that take longest.

    Real processes wait much of the time, so two workers begin with them while the others compute.
    A long file that begins last leaves the others idle.
    """
    items.sort(
        key=lambda item: (
            item.get_closest_marker("processes") is None,
            item.path.name not in LONGEST,
        )
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out whole files among workers: tests of one file share what they computed."""
    from xdist.scheduler import LoadScopeScheduling

    @cache
    def group(file: str) -> str:
        if "pytest.mark.processes" not in (config.rootpath / file).read_text():
            return file
        return "processes beside" if file.endswith(BESIDE) else "processes"

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.split("::")[0])

    return Files(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A machine without a browser: say so plainly, beside the skips themselves."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(MISSING in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"SKIPPED {count} tests of pages: {MISSING}", yellow=True)
