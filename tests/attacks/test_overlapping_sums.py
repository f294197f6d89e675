"""A run is resumed without one of its sites, and two sums over the same numbers are opened.

Who attacks: nobody needs to; an accident is enough, and a server could stage it. A run with hidden
sums stops after its last checkpoint and is resumed while one site is away. The rounds since the
checkpoint come again, at the same model and on the same batches, and the difference of the two sums
is the message of the site that is away. What stops it: a site remembers the rounds that it has
answered. It draws a new batch for a round that comes again, answers a round once in a job, and
answers the same question about all of its rows only in a sum of the same sites
(`deploy.site.answered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.deploy.engine import Answer
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.site.answered import AnsweredQuestions
from fedssca.errors import UserError
from fedssca.rounds.codec import InvalidMessage, decode, encode, read_note
from fedssca.run.config import parse
from tests.deploy.loopback import RUN, Loopback, deployed, parties

CONFIG = """
[data]
name = "digits"
partition = "contiguous"
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 10
rounds = 9
[run]
evaluate_every = 4
checkpoint_every = 4
[deploy]
min_sites = 3
"""
HIDDEN = ["privacy.secure_sum=true"]


LATER = ("train", "measure", "tally", "slope", "sum")
"""What comes after the preparation."""


class Stop(Exception):
    """The server dies."""


class Failing(Loopback):
    """The server dies when round `until` of training begins; `away` does not answer."""

    until, away, prepared = 99, "", False

    def ask(self, envelopes: Mapping[str, bytes], timeout: float) -> Mapping[str, Answer]:
        if not envelopes:
            return {}
        first = decode(next(iter(envelopes.values())))
        if first.kind == "train/reply" and first.round >= self.until:
            raise Stop
        self.prepared |= first.kind == "prepare"
        later = self.prepared and first.kind.partition("/")[0] in LATER
        away = self.away if later else ""
        found = dict(super().ask({n: d for n, d in envelopes.items() if n != away}, timeout))
        gone = dict.fromkeys(set(envelopes) - set(found), Answer(None, "away"))
        return found | gone


def attempt(config: Any, folder: Path, *, resume: bool, until: int = 99, away: str = "") -> Any:
    """One job of a run, with new processes at all sites."""
    files = write_site_files(config, 4, folder / "data")
    link = Failing(parties(files))
    link.until, link.away = until, away
    server = RunServer(RunOrder(config, site_names(4), RUN, resume), link, folder / "run")
    return server, link


def messages(link: Loopback, found: dict[tuple[str, int], Any]) -> None:
    """Note in `found` what each site computed for each round, before it was masked."""

    def spied(name: str, party: Any) -> Any:
        plain = party._reply_to_sum

        def call(envelope: Any, *rest: Any) -> Any:
            out = plain(envelope, *rest)
            leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(party._message)]
            if envelope.kind == "train/reply":
                found[name, envelope.round] = np.concatenate(leaves).astype(float)
            return out

        return call

    for name, party in link.parties.items():
        party._reply_to_sum = spied(name, party)  # type: ignore[method-assign]


@pytest.mark.parametrize("hidden", [True, False])
def test_repeated_rounds_are_about_other_rows(hidden: bool, tmp_path: Path) -> None:
    config = parse(CONFIG, HIDDEN if hidden else [])
    first: dict[tuple[str, int], Any] = {}
    second: dict[tuple[str, int], Any] = {}
    server, link = attempt(config, tmp_path, resume=False, until=7)
    messages(link, first)
    with pytest.raises(Stop):
        server.run()
    again, link = attempt(config, tmp_path, resume=True, away="site-4")
    messages(link, second)
    again.run()
    repeated = [(name, 5) for name in site_names(3)]  # the round after the checkpoint: the same w
    assert all(key in first and key in second for key in repeated)
    for key in repeated:
        same = np.array_equal(first[key], second[key])
        assert same != hidden  # plain runs resume to the same bits; hidden ones draw new rows
    if hidden:
        stolen = sum(first[name, 5] for name in site_names(4)) - sum(second[k] for k in repeated)
        assert np.linalg.norm(stolen - first["site-4", 5]) > 0.1 * np.linalg.norm(stolen)


def test_resuming_where_nothing_was_repeated_keeps_the_bits(tmp_path: Path) -> None:
    config = parse(CONFIG, HIDDEN)
    attempt(config, tmp_path / "whole", resume=False)[0].run()
    server, _ = attempt(config, tmp_path / "parts", resume=False, until=5)
    with pytest.raises(Stop):
        server.run()
    attempt(config, tmp_path / "parts", resume=True)[0].run()
    w = [np.load(tmp_path / name / "run/model.npz")["w"] for name in ("whole", "parts")]
    np.testing.assert_allclose(w[0], w[1], rtol=1e-6, atol=1e-7)


def test_a_round_that_was_opened_is_not_answered_again(tmp_path: Path) -> None:
    _, _, link = deployed(parse(CONFIG, HIDDEN), 4, tmp_path)
    old = [d for d in link.envelopes if decode(d).kind == "train/reply" and decode(d).round == 8]
    for data in old[-4:]:
        said = read_note(decode(link.parties["site-1"].handle(data, lambda *_: None)))
        assert "rounds only increase" in said["message"]
        envelope = decode(data)
        later = encode(envelope._replace(round=9))
        back = decode(link.parties["site-1"].handle(later, lambda *_: None))
        assert back.kind == "error"  # the number of the sum is not new either
        break


def test_the_same_question_is_answered_in_a_sum_of_the_same_sites_only(tmp_path: Path) -> None:
    file = tmp_path / "memory" / "run.txt"
    memory = AnsweredQuestions(file)
    for serial in (1, 2):
        memory.begin("slope", serial, "w", hidden=True)
        memory.check_opening([0, 1, 2, 3])
    memory.begin("slope", 3, "w", hidden=True)
    with pytest.raises(UserError, match="in a sum of other sites"):
        memory.check_opening([0, 1, 3])
    later = AnsweredQuestions(file)  # in the next job
    later.begin("slope", 1, "w", hidden=True)
    with pytest.raises(UserError, match="in a sum of other sites"):
        later.check_opening([0, 1, 3])
    later.begin("slope", 2, "another w", hidden=True)
    later.check_opening([0, 1, 3])


def test_rounds_only_increase() -> None:
    memory = AnsweredQuestions(None)
    assert not memory.begin("train", 3, "a", hidden=True)
    assert memory.begin("train", 3, "a", hidden=True)  # under new masks: nothing was opened
    memory.check_opening([0, 1])
    for round_, question in ((3, "a"), (3, "b"), (2, "c")):
        with pytest.raises(InvalidMessage, match="rounds only increase"):
            memory.begin("train", round_, question, hidden=True)
    assert not memory.begin("train", 4, "a", hidden=True)
    plain = AnsweredQuestions(None)
    plain.begin("train", 1, "a", hidden=False)
    with pytest.raises(InvalidMessage, match="each is answered once"):
        plain.begin("train", 1, "a", hidden=False)
    for number in range(6):
        plain.begin("probe", 0, str(number), hidden=False)
    with pytest.raises(InvalidMessage, match="6 probes"):
        plain.begin("probe", 0, "7", hidden=False)
