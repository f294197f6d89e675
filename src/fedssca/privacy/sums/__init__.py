"""Sums whose addends stay hidden from the server.

masked_client    the secure sum by masks that cancel: the client's half
masked_server    the same sum: the server's half
ckks             the sum of encrypted messages (homomorphic encryption): both halves
hidden_exchange  the sum of the h_i of parties that hold columns: all halves
mask_seeds       the seeds of the masks of two parties, sealed in case one of them vanishes
graph            which clients share masks, and the smallest sum that may be opened
fixed_point      real numbers as integers modulo 2^64, so that masks cancel exactly
sum_layout       the integers of a message that are masked, in words of 64, 32 or 16 bits
shamir           secret sharing
keys             signatures, key agreement, authenticated encryption, mask streams
"""

from __future__ import annotations

from fedssca.errors import UserError

__all__ = ["Refused"]


class Refused(UserError):
    """A party or the server does not continue a sum; the message says why."""
