"""A versioned codec: one envelope of named arrays is one `bytes`. Nothing in it is executed.

    "FSSC"  version  kind  run  round  count  (name  dtype  shape  length  data) * count

All numbers are little-endian. A reader checks every length against the bytes that are there before
it uses it, and accepts plain numbers only, so that bytes from a stranger end in an `InvalidMessage`
or in arrays.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

__all__ = [
    "Envelope",
    "InvalidMessage",
    "arrays_of",
    "decode",
    "encode",
    "fitting_tree",
    "note",
    "note_text",
    "read_note",
    "tree_of",
]

MAGIC, VERSION = b"FSSC", 1
DTYPES = (
    *("float32", "float64", "int32", "int64", "uint8"),
    *("uint32", "bool", "int8", "float16", "uint64", "int16", "uint16"),
)
"""The code of a dtype in a message is its place in this list, so new ones go to the end."""
MOST_ARRAYS, MOST_DIMS, MOST_NAME, MOST_BYTES = 4096, 8, 255, 1 << 31
MOST_NOTE = 1 << 26
"""The number of bytes of the longest note."""
HEAD = struct.Struct("<4sBB16sqH")
NOTE = "note"


class InvalidMessage(ValueError):
    """Bytes that are no message of this codec, or a message other than the one that is due."""


class Envelope(NamedTuple):
    """A message: its kind, run and round, and its arrays."""

    kind: str
    """The stage and the phase, such as "train/reply"."""
    run: bytes
    """The run's identifier, 16 bytes, so that messages of two runs never mix."""
    round: int
    arrays: dict[str, np.ndarray]


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope."""
    kind = envelope.kind.encode()
    if len(envelope.run) != 16 or len(kind) > MOST_NAME or len(envelope.arrays) > MOST_ARRAYS:
        raise InvalidMessage(
            f"this envelope cannot be sent: {envelope.kind!r}, {len(envelope.arrays)} arrays"
        )
    head = HEAD.pack(MAGIC, VERSION, len(kind), envelope.run, envelope.round, len(envelope.arrays))
    parts = [head, kind]
    for name, value in envelope.arrays.items():
        array = np.asarray(value)
        if array.dtype.name not in DTYPES or array.ndim > MOST_DIMS:
            raise InvalidMessage(
                f"array {name!r} is {array.dtype}, shape {array.shape}: not for sending"
            )
        label = name.encode()
        if len(label) > MOST_NAME:
            raise InvalidMessage(f"the name {name[:40]!r}... is longer than {MOST_NAME} bytes")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        code = DTYPES.index(array.dtype.name)
        parts.append(struct.pack("<BBB", len(label), code, array.ndim) + label)
        parts.append(struct.pack(f"<{array.ndim}QQ", *array.shape, array.nbytes))
        parts.append(array.tobytes())
    data = b"".join(parts)
    if len(data) > MOST_BYTES:
        raise InvalidMessage(f"{len(data)} bytes are more than a message may have ({MOST_BYTES})")
    return data


def decode(data: Any) -> Envelope:
    """Decode an envelope; its arrays are read-only views of the bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidMessage(f"expected bytes, got {type(data).__name__}")
    reader = _Reader(memoryview(data).cast("B"))
    magic, version, kind_size, run, round_, count = reader.unpack(HEAD)
    if magic != MAGIC:
        raise InvalidMessage("these bytes are no message of fedssca")
    if version != VERSION:
        raise InvalidMessage(
            f"message format {version}; this fedssca speaks {VERSION}: use one version"
        )
    if count > MOST_ARRAYS:
        raise InvalidMessage(f"{count} arrays are more than {MOST_ARRAYS}")
    kind, arrays = reader.text(kind_size), {}
    for _ in range(count):
        name_size, code, dims = reader.unpack(struct.Struct("<BBB"))
        name = reader.text(name_size)
        if name in arrays:
            raise InvalidMessage(f"array {name!r} comes twice")
        if code >= len(DTYPES) or dims > MOST_DIMS:
            raise InvalidMessage(
                f"array {name!r}: dtype code {code}, {dims} dimensions are unknown"
            )
        *shape, size = reader.unpack(struct.Struct(f"<{dims}QQ"))
        dtype = np.dtype(DTYPES[code]).newbyteorder("<")
        filled = math.prod(n for n in shape if n) * dtype.itemsize
        if filled > MOST_BYTES or (0 if 0 in shape else filled) != size:
            raise InvalidMessage(
                f"array {name!r}: {size} bytes do not fill the shape {tuple(shape)}"
            )
        block = reader.take(size)
        if dtype.name == "bool" and size and max(block) > 1:
            raise InvalidMessage(f"array {name!r}: a truth value is neither 0 nor 1")
        arrays[name] = np.frombuffer(block, dtype).reshape(shape)
    reader.finish()
    return Envelope(kind, run, round_, arrays)


class _Reader:
    """Reads bytes from the front, never beyond the end."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            raise InvalidMessage(f"the message ends early: {size} more bytes were announced")
        self._at += size
        return self._data[self._at - size : self._at]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def text(self, size: int) -> str:
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise InvalidMessage("a name in the message is not UTF-8") from None

    def finish(self) -> None:
        if self._at != len(self._data):
            raise InvalidMessage(f"{len(self._data) - self._at} bytes too many at the end")


def note(content: Any) -> dict[str, np.ndarray]:
    """Encode plain facts (numbers, texts, lists, dictionaries) as an array of their JSON text."""
    return {NOTE: np.frombuffer(json.dumps(content).encode(), np.uint8)}


def note_text(envelope: Envelope) -> bytes:
    """The JSON text that `note` put into an envelope; it may hold anything."""
    text = envelope.arrays.get(NOTE)
    if text is None or text.dtype != np.uint8 or text.nbytes > MOST_NOTE:
        raise InvalidMessage(f"message {envelope.kind!r} has no note, or one that is too long")
    return text.tobytes()


def read_note(envelope: Envelope) -> Any:
    """Read the facts that `note` put into an envelope."""
    try:
        return json.loads(note_text(envelope), parse_constant=_no_number)
    except InvalidMessage:
        raise
    except (ValueError, RecursionError):
        raise InvalidMessage(f"the note of message {envelope.kind!r} is not JSON") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree as arrays, named after their places in the tree."""
    return {name: np.asarray(leaf) for name, leaf in _named(tree)}


def fitting_tree(forms: Sequence[Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuild a tree that may have one of several forms, told apart by the names of its arrays."""
    names = set(arrays)
    fits = [like for like in forms if {n for n, _ in _named(like)} == names]
    return tree_of(fits[0] if fits else forms[0], arrays)


def _named(tree: Any) -> list[tuple[str, Any]]:
    paths, _ = jax.tree.flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in paths]


def tree_of(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuild a tree; every array must have the place, the shape and the dtype that `like` has.

    An axis of length -1 in `like` may have any length.
    """
    wanted = dict(_named(like))
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))
        raise InvalidMessage(f"arrays do not fit what is due: {', '.join(odd[:3])}")
    for name, leaf in wanted.items():
        got = arrays[name]
        fits = got.ndim == len(leaf.shape) and all(
            due in (-1, there) for due, there in zip(leaf.shape, got.shape, strict=True)
        )
        if not fits or got.dtype != leaf.dtype:
            raise InvalidMessage(
                f"array {name!r} is {got.dtype} of shape {got.shape}; due is {leaf.dtype} of shape "
                f"{leaf.shape}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])
