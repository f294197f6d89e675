"""Hostile variants of real envelopes: what `benchmarks/fuzz.py` sends."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedssca.rounds.codec import DTYPES, HEAD, NOTE, Envelope, InvalidMessage, decode, encode

LENGTHS = (0, 1, 2, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64 - 1)
NUMBERS = (0, -1, 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 1e308, -1e308, np.nan, np.inf)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 10**13, -(10**13), 10**400, 1e308, "", "x", "site-1"),
    *([], {}, [[]], [None], {"a": {}}, "y" * 5000, "\x1b[31m", "../../x", "a\nb", "\u202e"),
)
RAW = (b"NaN", b"Infinity", b'"\\ud800"', b"[" * 5000, b"{", b"1e999", b'{"a":1,"a":2}', b"\xff")
ODD: tuple[Any, ...] = (None, 7, "text", {"pickle": 1}, [b"x"], 1.5, b"", bytearray(3))

Random = np.random.Generator


def hostile(rng: Random, real: Sequence[bytes]) -> Any:
    """A random hostile variant of one of the real envelopes; a few are no bytes at all."""
    data = real[int(rng.integers(len(real)))]
    ways: list[Callable[[Random, bytes, Sequence[bytes]], Any]] = [
        *(_bytes_changed, _cut_or_grown, _head_changed, _arrays_changed, _arrays_changed),
        *(_note_changed, _note_changed, _note_changed, _lengths_changed, _mixed),
    ]
    if rng.random() < 0.01:
        return ODD[int(rng.integers(len(ODD)))]
    for _ in range(int(rng.integers(1, 4))):
        try:
            data = ways[int(rng.integers(len(ways)))](rng, data, real)
        except (InvalidMessage, struct.error, ValueError, OverflowError, RecursionError):
            data = _bytes_changed(rng, data, real)
    return data


def _pick(rng: Random, some: Sequence[Any]) -> Any:
    return some[int(rng.integers(len(some)))]


def _bytes_changed(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    del real
    out = bytearray(data or b"\0")
    for _ in range(int(rng.integers(1, 9))):
        out[int(rng.integers(len(out)))] = int(rng.integers(256))
    return bytes(out)


def _cut_or_grown(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    at = int(rng.integers(len(data) + 1))
    if rng.random() < 0.5:
        return data[:at]
    return data[:at] + rng.bytes(int(rng.integers(64))) + data[at:] + _pick(rng, real)[:20]


def _head_changed(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    fields = list(HEAD.unpack(data[: HEAD.size]))
    which = int(rng.integers(1, 6))
    fields[which] = {
        1: int(rng.integers(256)),
        2: int(rng.integers(256)),
        3: rng.bytes(16),
        4: int(_pick(rng, (-(2**63), -1, 0, 1, 2, 10**6, 2**63 - 1))),
        5: int(rng.integers(2**16)),
    }[which]
    if rng.random() < 0.4:  # a round or kind of another envelope under this one's content
        return encode(decode(data)._replace(kind=decode(_pick(rng, real)).kind))
    return HEAD.pack(*fields) + data[HEAD.size :]


def _arrays_changed(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    envelope = decode(data)
    arrays = dict(envelope.arrays)
    name = _pick(rng, list(arrays)) if arrays else "a"
    array = arrays.get(name, np.zeros(2, np.float32))
    way = int(rng.integers(8))
    if way == 0:
        arrays.pop(name, None)
    elif way == 1:
        arrays[_pick(rng, ("h", "x" * 255, "", "sum:masked", "sum:epoch", NOTE))] = array
    elif way == 2:
        dtype = _pick(rng, DTYPES)
        with np.errstate(all="ignore"):
            arrays[name] = np.nan_to_num(array).astype(dtype) if dtype != "bool" else array > 0
    elif way == 3:
        shape = tuple(int(rng.integers(0, 5)) for _ in range(int(rng.integers(0, 9))))
        arrays[name] = np.resize(array, shape).astype(array.dtype)
    elif way == 4:
        bad = np.array(array)
        with np.errstate(all="ignore"):
            if bad.size:
                bad.flat[int(rng.integers(bad.size))] = np.asarray(_pick(rng, NUMBERS)).astype(
                    bad.dtype
                )
        arrays[name] = bad
    elif way == 5:
        arrays[name] = array[..., :-1] if array.ndim else array.reshape(1)
    elif way == 6:
        arrays |= decode(_pick(rng, real)).arrays
    else:
        arrays[name] = np.frombuffer(rng.bytes(array.nbytes), np.uint8)
    return encode(Envelope(envelope.kind, envelope.run, envelope.round, arrays))


def _note_changed(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    envelope = decode(data)
    if NOTE not in envelope.arrays:
        return _arrays_changed(rng, data, real)
    if rng.random() < 0.1:
        text = _pick(rng, RAW)
    else:
        content = json.loads(envelope.arrays[NOTE].tobytes())
        text = json.dumps(_node_changed(rng, content)).encode()
        if rng.random() < 0.1:
            text = text.replace(b"0", _pick(rng, RAW[:6]), 1)
    arrays = envelope.arrays | {NOTE: np.frombuffer(text, np.uint8)}
    kind = "error" if rng.random() < 0.2 else envelope.kind
    return encode(envelope._replace(kind=kind, arrays=arrays))


def _node_changed(rng: Random, node: Any) -> Any:
    """The JSON value with one random node replaced, removed or added."""
    if isinstance(node, dict) and node and rng.random() < 0.85:
        key = _pick(rng, list(node))
        if rng.random() < 0.15:
            return {k: v for k, v in node.items() if k != key}
        if rng.random() < 0.1:
            return node | {_pick(rng, ("peer", "message", "rows", "x" * 2000)): _pick(rng, VALUES)}
        return node | {key: _node_changed(rng, node[key])}
    if isinstance(node, list) and node and rng.random() < 0.85:
        at = int(rng.integers(len(node)))
        if rng.random() < 0.2:
            return node[:at] + node[at + 1 :]
        if rng.random() < 0.2:
            return node + node[:1]
        return [*node[:at], _node_changed(rng, node[at]), *node[at + 1 :]]
    return _pick(rng, VALUES)


def _lengths_changed(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    """An envelope whose one array announces a shape and a size of its own."""
    del real
    head = list(HEAD.unpack(data[: HEAD.size]))
    kind = data[HEAD.size : HEAD.size + head[2]]
    head[5] = 1
    dims = int(rng.integers(0, 12))
    shape = [_pick(rng, LENGTHS) for _ in range(dims)]
    size = 0 if rng.random() < 0.5 else _pick(rng, LENGTHS)
    code = int(rng.integers(12))
    block = struct.pack("<BBB", 1, code, dims) + b"a" + struct.pack(f"<{dims}QQ", *shape, size)
    return HEAD.pack(*head) + kind + block + rng.bytes(int(rng.integers(16)))


def _mixed(rng: Random, data: bytes, real: Sequence[bytes]) -> bytes:
    other = _pick(rng, real)
    return data[: int(rng.integers(len(data) + 1))] + other[int(rng.integers(len(other) + 1)) :]
