"""What parties hide from the server and from each other: wrappers of the aggregation.

fixed        numbers as whole numbers modulo 2^64, so that masks cancel to the last bit
keys         signatures, key agreement, sealed boxes, masks
shamir       a secret in shares, of which so many give it back
graph        who shares masks with whom
secure_sum   masks that cancel, the parties' half (secure_sum_server: the other)
homomorphic  the server adds ciphertexts, both halves
blind        parties with columns learn the sum of the h_i, the server nothing
wiring       from `[privacy]` to these
psi          which ids all parties have; psi_folder: by files that pass between them
clip         no sample, or no client, counts for more than a bound
noise        Gaussian noise on what is sent, and where it comes from
accountant   what is spent of privacy: epsilon
setting      clipping and noise as a config asks for them
audit        what each observer of a run could work out
"""

from __future__ import annotations

from fedssca.errors import UserError

__all__ = ["require_privacy"]


def require_privacy(package: str = "cryptography") -> None:
    """A UserError where the extra is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"this needs {package}: pip install 'fedssca[privacy]'")
