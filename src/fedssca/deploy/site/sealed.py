"""What sites send each other, sealed from site to site in the application itself.

The engine encrypts what goes to peers, but the receiver cannot tell whether it did, nor who wrote
an envelope that the server forwarded. So every envelope is sealed here once more: AES-256-GCM with
a key that two sites agreed on (X25519, public keys signed with the certificates of their kits).
Its associated data are

    run, kind (stage and phase), round, sender, receiver.

An envelope that is forged, changed, not sealed, of another session, or meant for another site,
phase or round is refused. Keys are new for every session, so nothing of an earlier one opens, and
within a session each envelope is taken once.
"""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fedssca.deploy.alignment import PEER
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode

if TYPE_CHECKING:
    from fedssca.privacy.sums.hidden_exchange import ExchangeKeys

__all__ = ["SealedPeers"]

SEALED = "sealed"
"""The only array of an envelope to a peer."""


class SealedPeers:
    """Seals and opens the envelopes between one site and its peers."""

    def __init__(self, names: list[str], keys: ExchangeKeys) -> None:
        self._names, self._keys = names, keys
        self._rounds: dict[tuple[int, str], int] = {}
        """(sender, kind) -> the last round that was taken."""
        self._early: set[bytes] = set()
        """The envelopes of alignments and probes that were taken: their rounds come again."""
        self._lock = threading.Lock()

    def seal(self, receiver: str, data: bytes) -> bytes:
        """An encoded envelope, sealed for its receiver."""
        from fedssca.privacy.sums.keys import as_array, seal

        envelope, number = decode(data), self._number(receiver)
        about = self._about(envelope, self._keys.number, number)
        box = seal(self._keys.key(number, "peers"), data, about)
        return encode(envelope._replace(arrays={SEALED: as_array(box)}))

    def opened(self, sender: str, data: Any) -> Envelope:
        """The envelope that `sender` sealed for this site; an InvalidMessage if it is not."""
        from fedssca.privacy.sums.keys import Forged, open_box

        outer, number = decode(data), self._number(sender)
        if set(outer.arrays) != {SEALED}:
            raise InvalidMessage(f"what came in the name of {sender} is not sealed")
        about = self._about(outer, number, self._keys.number)
        try:
            inner = open_box(self._keys.key(number, "peers"), outer.arrays[SEALED].tobytes(), about)
        except Forged:
            raise InvalidMessage(
                f"what came in the name of {sender} is not from it, not for this step, or not for "
                "this site"
            ) from None
        envelope = decode(inner)
        if envelope._replace(arrays={}) != outer._replace(arrays={}):
            raise InvalidMessage(f"{sender} sealed an envelope of another step")
        self._take_once(number, outer)
        return envelope

    def _take_once(self, sender: int, outer: Envelope) -> None:
        box, key = outer.arrays[SEALED].tobytes(), (sender, outer.kind)
        with self._lock:
            if outer.kind == PEER or outer.kind.startswith("probe/"):
                digest = sha256(box).digest()
                seen = digest in self._early
                self._early.add(digest)
            else:
                seen = outer.round <= self._rounds.get(key, outer.round - 1)
                self._rounds[key] = max(outer.round, self._rounds.get(key, outer.round))
        if seen:
            raise InvalidMessage(f"an envelope of {self._names[sender]} came again")

    def _number(self, name: str) -> int:
        if not self._keys.agreed:
            raise InvalidMessage("the sites have not exchanged their keys yet")
        if name not in self._names or self._names.index(name) == self._keys.number:
            raise InvalidMessage(f"{name} is no peer of this site in this run")
        return self._names.index(name)

    def _about(self, envelope: Envelope, sender: int, receiver: int) -> bytes:
        from fedssca.privacy.sums.keys import pack_fields

        return pack_fields("peer", envelope.run, envelope.kind, envelope.round, sender, receiver)
