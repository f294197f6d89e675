"""Rounds that go on without the slowest sites, which stay members."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedssca.deploy.engine import Answer, Patience
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server import sites as sites_module
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.errors import ConfigError
from fedssca.rounds.codec import decode
from fedssca.run.config import Config, parse, render
from tests.deploy.loopback import RUN, Loopback, parties
from tests.deploy.test_faults import BASE

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
IsLate = Callable[[str, str, int], bool]
"""(site, kind, round) -> whether its answer comes after the deadline."""


class SlowLink(Loopback):
    """A link on which some answers come after the deadline, if there is one."""

    def __init__(self, files: list[Path], is_late: IsLate) -> None:
        super().__init__(parties(files))
        self._is_late, self.patience = is_late, set[Patience | None]()

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        found = dict(super().ask(envelopes, timeout))
        self.patience.add(patience)
        for site, data in envelopes.items():
            asked = decode(data)
            if patience and self._is_late(site, asked.kind, asked.round):
                found[site] = Answer(None, "late", patience.seconds, late=True)
        return found


def slow_run(config: Config, folder: Path, is_late: IsLate) -> tuple[dict[str, Any], RunServer]:
    link = SlowLink(write_site_files(config, 4, folder / "data"), is_late)
    server = RunServer(RunOrder(config, site_names(4), RUN), link, folder / "run")
    found = server.run()
    assert link.patience == {None, Patience(2.0, 3)}
    return found, server


def shares(folder: Path) -> list[float]:
    lines = (folder / "run/sites.jsonl").read_text().splitlines()
    return [json.loads(line)["share"] for line in lines]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_late_site_is_left_out_of_the_round_and_stays(hidden: bool, tmp_path: Path) -> None:
    """Weights are those of a drop; the next round has all sites again."""
    if hidden:
        pytest.importorskip("cryptography")
    settings = ["deploy.deadline=2", f"privacy.secure_sum={str(hidden).lower()}"]
    result, server = slow_run(
        parse(BASE, settings),
        tmp_path,
        lambda site, kind, round_: (site, kind) == ("site-2", "train/reply") and round_ in (3, 4),
    )
    assert (result["round"], result["sites"]) == (7, 4)
    assert shares(tmp_path) == pytest.approx([1, 1, 0.75, 0.75, 1, 1, 1], abs=0.01)
    events = server.status()["events"]
    # Between two hidden sums it answers in time, when keys are exchanged anew.
    assert [event["round"] for event in events] == ([3, 4] if hidden else [3])
    assert all(event["site"] == "site-2" for event in events)
    assert all(event["event"].startswith("late") for event in events)


class StuckLink(SlowLink):
    """A link on which site-2 is stuck in round 3 of training, until round 6 begins."""

    def __init__(self, files: list[Path]) -> None:
        super().__init__(files, lambda site, kind, round_: self._is_stuck(site, kind, round_))
        self._round, self.kinds = 0, list[tuple[str, int, bool]]()

    def _is_stuck(self, site: str, kind: str, round_: int) -> bool:
        return (site, kind, round_) == ("site-2", "train/reply", 3)

    def busy(self) -> Collection[str]:
        return ["site-2"] if 3 <= self._round < 5 else []

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        first = decode(next(iter(envelopes.values())))
        self.kinds.append((first.kind, first.round, "site-2" in envelopes))
        found = super().ask(envelopes, timeout, patience)
        if first.kind == "train/reply":
            self._round = first.round
        return found


def test_nobody_waits_for_a_site_that_is_known_to_be_late(tmp_path: Path) -> None:
    """It is asked again when it has answered; until then the others keep their keys."""
    pytest.importorskip("cryptography")
    config = parse(BASE, ["deploy.deadline=2", "privacy.secure_sum=true"])
    link = StuckLink(write_site_files(config, 4, tmp_path / "data"))
    server = RunServer(RunOrder(config, site_names(4), RUN), link, tmp_path / "run")
    assert server.run()["sites"] == 4
    assert shares(tmp_path) == pytest.approx([1, 1, 0.75, 0.75, 0.75, 1, 1], abs=0.01)
    asked = [each for each in link.kinds if each[:2] in {("train/reply", t) for t in (3, 4, 5, 6)}]
    assert [with_it for _, _, with_it in asked] == [True, False, False, True]
    keys = [round_ for kind, round_, _ in link.kinds if kind == "sum/keys"]
    assert [round_ for round_ in keys if 3 <= round_ <= 6] == [4, 6]
    assert [event["round"] for event in server.status()["events"]] == [3]


def test_a_site_that_stays_silent_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 10))  # every look at the clock is ten seconds later
    monkeypatch.setattr(sites_module.time, "monotonic", lambda: float(next(clock)))
    config = parse(BASE, ["deploy.deadline=2", "deploy.timeout=60"])
    late = "site-2"
    _, server = slow_run(config, tmp_path, lambda site, kind, _: site == late)
    assert server.status()["live"] == ["site-1", "site-3", "site-4"]
    assert [event["event"].split(":")[0] for event in server.status()["events"]] == [
        *("late", "dropped")
    ]


def test_deadlines_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be below"):
        parse(BASE, ["deploy.deadline=60"])
    with pytest.raises(ConfigError, match="sites that hold rows"):
        parse(BASE, ["deploy.deadline=2", "data.split=feature"])


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_real_sites_that_are_slow(tmp_path: Path) -> None:
    """A site that sleeps in a round: the round goes on without it, and it is there at the end."""
    pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")
    from fedssca.deploy.engines import nvflare
    from fedssca.deploy.local import local_deployment
    from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow

    config = parse(BASE, ["deploy.deadline=3", "algorithm.rounds=21", "run.evaluate_every=20"])
    path = os.pathsep.join(
        [str(Path(__file__).parent / "mortal"), os.environ.get("PYTHONPATH", "")]
    )
    slow = {"FEDSSCA_SLOW": "site-3 train/reply 5 9", "PYTHONPATH": path}
    out = tmp_path / "run"
    with (
        local_deployment(nvflare, config, 3, environment=slow) as made,
        nvflare.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, 600)
        run = SubmittedRun.new(made.sites, render(config))
        run.write(out)
        result = follow(session, run, out, False, Follower(lambda *_: None, print), 600.0)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert ("site-3", 5) in [(event["site"], event["round"]) for event in events]
    assert all(event["event"].startswith("late") for event in events)
    assert (result["round"], result["sites"]) == (20, 3)
    assert shares(tmp_path)[4] == pytest.approx(2 / 3, abs=0.01)
