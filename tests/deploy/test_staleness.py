"""Deployed rounds that do not wait for slow sites, whose messages count when they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pytest

from fedssca.deploy.engine import Answer, Patience
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.errors import ConfigError
from fedssca.rounds.codec import Envelope, decode, encode
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train
from tests.deploy.loopback import RUN, Loopback, parties
from tests.deploy.test_deadline import shares
from tests.deploy.test_faults import BASE

pytestmark = pytest.mark.usefixtures("float64")
STALE = ["algorithm.staleness=4", "algorithm.enough=0.75", "run.precision=float64"]


class LateLink(Loopback):
    """site-4 takes 2.5 rounds for a message: it comes two rounds after the one it answers."""

    def __init__(self, files: list[Path], *, lies: bool = False) -> None:
        super().__init__(parties(files))
        self._round, self._held, self._lies = 0, dict[int, Answer](), lies
        self.patience = set[Patience | None]()

    def busy(self) -> Collection[str]:
        return ["site-4"] if self._held else []

    def late_answers(self) -> Mapping[str, Answer]:
        due = next((of for of in self._held if self._round >= of + 2), None)
        return {} if due is None else {"site-4": self._held.pop(due)}

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        found = dict(super().ask(envelopes, timeout))
        self.patience.add(patience)
        first = decode(next(iter(envelopes.values())))
        if first.kind == "train/reply":
            self._round = first.round
            if "site-4" in found:
                answer = found["site-4"]
                if self._lies:
                    told: Envelope = decode(answer.data)
                    answer = Answer(encode(told._replace(round=first.round + 1)))
                self._held[first.round] = answer
                found["site-4"] = Answer(None, "late", 0.0, late=True)
        return found


def run(folder: Path, *, lies: bool = False) -> RunServer:
    config = parse(BASE, STALE)
    link = LateLink(write_site_files(config, 4, folder / "data"), lies=lies)
    server = RunServer(RunOrder(config, site_names(4), RUN), link, folder / "run")
    server.run()
    assert link.patience == {None, Patience(0.0, 3)}
    return server


def test_late_messages_count_as_in_the_simulation(tmp_path: Path) -> None:
    """The same schedule in the simulator gives the same model."""
    run(tmp_path)
    assert shares(tmp_path) == pytest.approx([0.75, 0.75, 1, 1, 1, 1, 1], abs=0.01)
    simulated = parse(BASE, [*STALE, "algorithm.delays=[1,1,1,2.5]", "data.clients=4"])
    w = train(build(simulated)).w
    np.testing.assert_allclose(np.load(tmp_path / "run/model.npz")["w"], w, atol=1e-6)


def test_a_late_message_of_a_round_that_was_not_asked_is_not_used(tmp_path: Path) -> None:
    server = run(tmp_path, lies=True)
    events = [event["event"] for event in server.status()["events"]]
    assert any("which it was not asked" in event for event in events)
    assert max(shares(tmp_path)) == pytest.approx(0.75, abs=0.01)


def test_delays_are_for_simulations(tmp_path: Path) -> None:
    config = parse(BASE, [*STALE, "algorithm.delays=[1,1]"])
    link = Loopback({})
    with pytest.raises(ConfigError, match="simulates slow clients"):
        RunServer(RunOrder(config, site_names(2), RUN), link, tmp_path / "run").run()
