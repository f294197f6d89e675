"""The codec: what goes in comes out, and bytes from a stranger end in one kind of error."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedssca.methods.algorithm import Message
from fedssca.rounds.codec import (
    DTYPES,
    Envelope,
    InvalidMessage,
    arrays_of,
    decode,
    encode,
    note,
    read_note,
    tree_of,
)

RUN = bytes(range(16))
names = st.text(max_size=40).filter(lambda text: len(text.encode(errors="ignore")) <= 200)
valid_names = names.filter(lambda text: text.encode(errors="ignore").decode() == text)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)
envelopes = st.builds(
    Envelope,
    valid_names,
    st.binary(min_size=16, max_size=16),
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(valid_names, arrays, max_size=5),
)


@given(envelopes)
def test_what_goes_in_comes_out(envelope: Envelope) -> None:
    back = decode(encode(envelope))
    assert back[:3] == envelope[:3]
    assert list(back.arrays) == list(envelope.arrays)
    for name, array in envelope.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        assert back.arrays[name].shape == array.shape
        assert back.arrays[name].tobytes() == array.tobytes()


@given(st.binary(max_size=400))
def test_any_bytes_are_a_letter_or_one_clear_error(data: bytes) -> None:
    for each in (data, encode(Envelope("k", RUN, 1, {}))[:24] + data):
        with suppress(InvalidMessage):
            envelope = decode(each)
            assert decode(encode(envelope)).kind == envelope.kind


@given(envelopes, st.data())
def test_one_changed_byte_is_survived(envelope: Envelope, data: st.DataObject) -> None:
    sent = bytearray(encode(envelope))
    at = data.draw(st.integers(0, len(sent) - 1))
    sent[at] ^= data.draw(st.integers(1, 255))
    with suppress(InvalidMessage):
        decode(bytes(sent))


@given(envelopes, st.data())
def test_every_cut_is_noticed(envelope: Envelope, data: st.DataObject) -> None:
    sent = encode(envelope)
    with pytest.raises(InvalidMessage):
        decode(sent[: data.draw(st.integers(0, len(sent) - 1))])
    with pytest.raises(InvalidMessage, match="too many"):
        decode(sent + b"\0")


def test_a_huge_announced_size_takes_no_memory() -> None:
    head = encode(Envelope("k", RUN, 1, {}))[:-3] + struct.pack("<H", 1) + b"k"
    claim = struct.pack("<BBB", 1, 0, 2) + b"a" + struct.pack("<QQQ", 2**40, 2**20, 2**62)
    with pytest.raises(InvalidMessage):
        decode(head + claim)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("text", "expected bytes"),
        (b"JUNK" * 10, "no message of fedssca"),
        (b"FSSC\x09" + bytes(40), "format 9"),
    ],
)
def test_what_is_wrong_is_said(data: Any, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        decode(data)


@pytest.mark.parametrize(
    "array", [np.array(["text"]), np.array([object()]), np.zeros(2, np.complex64)]
)
def test_only_plain_numbers_are_sent(array: np.ndarray) -> None:
    with pytest.raises(InvalidMessage, match="not for sending"):
        encode(Envelope("k", RUN, 1, {"a": array}))


def test_notes_and_trees_come_back() -> None:
    facts = {"rows": 3, "names": ["a", "é"]}
    assert read_note(decode(encode(Envelope("k", RUN, 0, note(facts))))) == facts
    tree = Message(np.ones(2, np.float32), {"gradient": np.zeros((2, 3), np.float32)})
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
    back = tree_of(like, arrays_of(tree))
    assert isinstance(back, Message)
    np.testing.assert_array_equal(back.vectors["gradient"], tree.vectors["gradient"])


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": {"gradient": np.zeros((3, 2), np.float32)}},
        {"vectors": {"gradient": np.zeros((2, 3), np.float64)}},
        {"vectors": {"slope": np.zeros((2, 3), np.float32)}},
        {"scalars": ()},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    tree = Message(np.ones(2, np.float32), {"gradient": np.zeros((2, 3), np.float32)})
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
    with pytest.raises(InvalidMessage, match="due"):
        tree_of(like, arrays_of(tree._replace(**change)))
