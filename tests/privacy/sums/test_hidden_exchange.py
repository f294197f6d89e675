"""The blind exchange: right sums for the readers, noise for the server, refusals for the rest."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.data.split import Columns
from fedssca.errors import UserError
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd
from fedssca.methods.ssca import ssca
from fedssca.privacy.sums.hidden_exchange import ExchangeKeys, check_additive, in_process, relay
from fedssca.privacy.sums.keys import Forged, simulated_identities
from fedssca.problem.constraints import cross_entropy, loss_at_most
from fedssca.problem.custom import vertical_problem
from fedssca.problem.models import classifier, mlp
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.exchange import SERVER
from fedssca.rounds.in_process import Local
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.privacy import check_columns, traffic_of

P, N = 6, 40
rng = np.random.default_rng(0)
DATA = {"x": rng.normal(size=(N, P)), "y": rng.integers(0, 3, N).astype(np.int32)}
TWO = (np.arange(3), np.arange(3, 6))
THREE = (np.array([0, 1]), np.array([2, 5]), np.array([3, 4]))


def people(parties: int, run: bytes = b"r" * 16) -> list[ExchangeKeys]:
    made = [
        ExchangeKeys(i, parties, run, who) for i, who in enumerate(simulated_identities(parties))
    ]
    offers = {one.number: one.offer() for one in made}
    for one in made:
        one.agree(offers)
    if parties > 1:
        for peer, box in made[0].seal_check().items():
            made[peer].open_check(box)
    return made


def shared(hs: list[np.ndarray], readers: list[int]) -> tuple[list, dict]:
    ends = [one.exchange("train") for one in people(len(hs))]
    sent = {i: ends[i].send(h, readers)[SERVER] for i, h in enumerate(hs)}
    return ends, sent


@settings(max_examples=40, deadline=None)
@given(
    parties=st.integers(1, 6),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    seed=st.integers(0, 1000),
    holder=st.integers(-1, 5),
)
def test_readers_get_the_sum(parties: int, shape: tuple[int, int], seed: int, holder: int) -> None:
    hs = list(np.random.default_rng(seed).normal(size=(parties, *shape)) * 100)
    readers = [holder % parties] if holder >= 0 else list(range(parties))
    ends, sent = shared(hs, readers)
    for reader, payload in relay(sent, readers).items():
        ends[reader].receive(SERVER, payload)
        found = ends[reader].collect()
        assert len(found) == parties
        np.testing.assert_array_equal(found[reader], hs[reader])
        np.testing.assert_allclose(sum(found), sum(hs), atol=parties * 2.0**-40)


def test_the_server_sees_noise() -> None:
    """Shares, and their sum, have the bits of random numbers, whatever the parties hold."""
    hs = [np.zeros((300, 20)) for _ in range(3)]
    _, sent = shared(hs, [0, 1, 2])
    seen = [payload["h"] for payload in sent.values()] + [relay(sent, [0, 1, 2])[1]["h"]]
    for vector in seen:
        ones = np.unpackbits(vector.view(np.uint8)).reshape(-1, 64).mean(0)
        assert np.abs(ones - 0.5).max() < 6 * 0.5 / np.sqrt(len(vector))
    differences = {tuple(a[:4] - b[:4]) for a in seen for b in seen if a is not b}
    assert len(differences) == len(seen) * (len(seen) - 1)


def test_who_does_not_read_gets_nothing() -> None:
    ends, sent = shared([np.ones((2, 2))] * 3, [1])
    assert set(relay(sent, [1])) == {1}
    assert sent[1]["seals"].size == 0
    with pytest.raises(InvalidMessage, match="party 0 has no sum"):
        ends[0].collect()


def test_missing_or_doubled_shares_are_noticed() -> None:
    ends, sent = shared([np.ones((2, 2))] * 3, [0, 1, 2])
    fair = relay(sent, [0, 1, 2])
    without = relay({0: sent[0], 1: sent[1]}, [0, 1, 2])
    twice = fair[1] | {"h": fair[1]["h"] + sent[2]["h"]}
    for payload in (without[1], twice):
        with pytest.raises(Forged, match="every party's share"):
            ends[1].receive(SERVER, payload)
    ends[1].receive(SERVER, fair[1])


def test_boxes_of_others_and_of_other_rounds_do_not_open() -> None:
    hs = [np.ones((2, 2))] * 3
    ends, sent = shared(hs, [0, 1, 2])
    first = relay(sent, [0, 1, 2])
    with pytest.raises(Forged, match="does not open"):
        ends[1].receive(SERVER, first[2])
    changed = first[1] | {"seal": first[1]["seal"] ^ np.uint8(1)}
    with pytest.raises(Forged, match="does not open"):
        ends[1].receive(SERVER, changed)
    again = {i: ends[i].send(h, [0, 1, 2])[SERVER] for i, h in enumerate(hs)}
    with pytest.raises(Forged, match="does not open"):
        ends[1].receive(SERVER, first[1])
    with pytest.raises(Forged, match="every party's share"):
        ends[0].receive(SERVER, first[0])  # it removes its own mask, that of the new round
    ends[1].receive(SERVER, relay(again, [0, 1, 2])[1])
    with pytest.raises(Forged, match="only the server"):
        ends[1].receive(2, first[1])


def test_no_mask_is_used_twice() -> None:
    """A party that is asked again uses new masks: two answers tell nothing, and fit no sum."""
    made = people(2)
    ends = [one.exchange("train") for one in made]
    first = [end.send(np.ones((2, 2)), [0, 1])[SERVER] for end in ends]
    again = made[1].exchange("train").send(np.ones((2, 2)), [0, 1])[SERVER]
    assert not np.any(again["h"] == first[1]["h"])
    with pytest.raises(Forged, match="every party's share"):
        ends[0].receive(SERVER, relay({0: first[0], 1: again}, [0, 1])[0])
    other = made[0].exchange("measure").send(np.ones((2, 2)), [0, 1])[SERVER]
    assert not np.any(other["h"] == first[0]["h"])


def test_forged_keys_are_refused() -> None:
    one, two, three = people(3)
    offers = {i.number: i.offer() for i in (one, two, three)}
    swapped = offers | {1: offers[2]}
    changed = offers | {1: offers[1] | {"key": offers[1]["key"][::-1].copy()}}
    (stranger, *_) = people(3, run=b"q" * 16)
    old = offers | {0: stranger.offer()}
    for bad in (swapped, changed):
        with pytest.raises(Forged, match="signature"):
            one.agree(bad)
    with pytest.raises(Forged, match="signature"):
        two.agree(old)
    with pytest.raises(Forged, match="in this party's name"):
        one.agree(old)
    with pytest.raises(Forged, match="there are 3"):
        one.agree({0: offers[0], 1: offers[1]})
    with pytest.raises(InvalidMessage, match="no keys of its peers"):
        ExchangeKeys(0, 2, b"r" * 16, simulated_identities(2)[0]).exchange("train").send(
            np.ones(2), [0, 1]
        )


def test_numbers_too_large_are_refused_before_they_are_masked() -> None:
    ends = [one.exchange("train") for one in people(2)]
    with pytest.raises(UserError, match="too large"):
        ends[0].send(np.full((1, 1), 1e9), [0, 1])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("holder", [None, 1])
@pytest.mark.parametrize("constrained", [False, True])
def test_training_ends_where_pairwise_training_does(holder: int | None, constrained: bool) -> None:
    clients = Columns(DATA, THREE, label_holder=holder)
    limits = loss_at_most(0.9) if constrained else []
    p = classifier(mlp(P, 4, 3, dtype="float64"), limits, features=THREE, l2=0.01)
    if constrained:
        algorithm = ssca(p, batch=7, rho=power(1, 0.5), gamma=power(0.9, 0.6), penalty=10.0)
    else:
        algorithm = sgd(p, batch=7, rate=power(0.3))
    start = algorithm.init(p.start)
    plain = Local(p, clients, algorithm, 3)
    blind = Local(p, clients, algorithm, 3, exchange=in_process(3))
    left, right = plain.advance(start, 6), blind.advance(start, 6)
    np.testing.assert_allclose(left.w, right.w, rtol=1e-8, atol=1e-9)
    config = parse("[privacy]\nsecure_sum = true\n[data]\nsplit = 'feature'")
    foretold = traffic_of(config)(p, clients, algorithm)(6)
    counted = (blind.bytes_up, blind.bytes_down, blind.bytes_peer)
    assert counted == tuple(foretold)
    assert (foretold.peer == 0) == (holder is None)


def test_an_additive_head_is_recognised() -> None:
    p = classifier(mlp(P, 4, 3), [], features=THREE)
    hs = [jnp.zeros((5, 4)) for _ in THREE]
    batch = {"y": np.zeros(5, np.int32)}
    check_additive(p.vertical, p.start[p.vertical.blocks[0]], hs, batch)


@pytest.mark.parametrize("same_shape", [True, False])
def test_a_false_declaration_is_refused(same_shape: bool) -> None:
    def head(w, hs, batch):
        return cross_entropy(jnp.concatenate(hs, axis=1) @ w.T, batch)[None]

    widths = (2, 2) if same_shape else (2, 3)
    below = [jnp.ones((h, 3)) for h in widths]
    features = [np.arange(3), np.arange(3, 6)]
    top = jax.random.normal(jax.random.key(0), (3, sum(widths)))
    p = vertical_problem([lambda w, x: x @ w.T] * 2, head, [top, *below], features, additive=True)
    hs = [jnp.zeros((5, h)) for h in widths]
    with pytest.raises(UserError, match="declared additive"):
        check_additive(p.vertical, p.start[: top.size], hs, {"y": np.zeros(5, np.int32)})


RUN = """
[data]
name = "digits"
split = "feature"
clients = 3
[model]
hidden = 4
[[problem.constraint]]
kind = "loss"
limit = 1.9
[algorithm]
batch = 50
rounds = 6
"""


def test_a_run_with_hidden_columns_is_the_plain_one(tmp_path: Path) -> None:
    plain = execute(parse(RUN), tmp_path / "plain")
    hidden = execute(parse(RUN, ["privacy.secure_sum=true"]), tmp_path / "hidden")
    a, b = (np.load(tmp_path / run / "model.npz")["w_last"] for run in ("plain", "hidden"))
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert hidden["bytes_peer"] == 0 < plain["bytes_peer"]
    assert hidden["bytes_up"] > plain["bytes_up"]


def test_what_cannot_be_hidden_is_said() -> None:
    config = parse("[privacy]\nsecure_sum = true\n[data]\nsplit = 'feature'")
    p = classifier(mlp(P, 4, 3), [], features=TWO)
    with pytest.warns(UserWarning, match="sum of two parties"):
        check_columns(config, p, Columns(DATA, TWO))
    with pytest.raises(UserError, match="hands the h_i to the server"):
        check_columns(config, p, Columns(DATA, TWO, collection="open"))
    split = dataclasses.replace(p.vertical, additive=False)
    with pytest.warns(UserWarning, match="in pairs"):
        check_columns(config, dataclasses.replace(p, vertical=split), Columns(DATA, TWO))
    check_columns(parse(""), p, Columns(DATA, TWO))
