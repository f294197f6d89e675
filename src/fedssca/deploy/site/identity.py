"""A site's identity to its peers: the certificate in its kit, signed by the project's CA.

The server relays public keys between sites and could replace them by its own. It cannot sign them
in a site's name, as long as it does not hold the key of the certificate authority (CA). Nor can it
take part as a site with its own certificate: the kit's signed list (`deploy.roster`) names the
certificate of every site, and only these count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedssca.deploy.signatures import SiteSignatures, signature
from fedssca.errors import UserError
from fedssca.privacy import require_privacy

if TYPE_CHECKING:
    from fedssca.privacy.sums.keys import Identity

__all__ = ["CertifiedIdentity", "IdentityAmong", "certified"]

IdentityAmong = Callable[[Sequence[str]], "Identity"]
"""The names of all sites in their order -> this site's identity among them.

A UserError unless all of them are sites of the project."""


class CertifiedIdentity:
    """Signs and verifies with certificates; what is sent is the certificate, then the signature."""

    def __init__(
        self, key: Path, certificate: Path, authority: Path, listed: Path, names: Sequence[str]
    ) -> None:
        """`listed` is the signed list of sites; `names` are those of a run, in their order."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        try:
            secret = load_pem_private_key(key.read_bytes(), None)
            own = x509.load_pem_x509_certificate(certificate.read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(
                f"{key.parent} has no usable keys ({error}): is the kit complete?"
            ) from None
        if not isinstance(secret, RSAPrivateKey):
            raise UserError(f"{key} is no RSA key: provision the kit anew")
        self._secret, self._names = secret, list(names)
        self._certificate = own.public_bytes(Encoding.DER)
        self._others = SiteSignatures(authority, listed)
        self._others.roster.check(names)

    def sign(self, data: bytes) -> bytes:
        """The certificate and the signature of `data`."""
        return signature(self._secret, self._certificate, data)

    def verify(self, who: int, data: bytes, signed: bytes) -> None:
        """Raise Forged unless site `who`, as certified by the CA, signed `data`."""
        from fedssca.privacy.sums.keys import Forged

        if not 0 <= who < len(self._names):
            raise Forged(f"there is no site number {who}")
        self._others.verify(self._names[who], data, signed, today=True)


def certified(key: Path, certificate: Path, authority: Path, listed: Path) -> IdentityAmong:
    """A site's identity from the files of its kit, which are read when they are needed."""

    def among(names: Sequence[str]) -> Identity:
        require_privacy()
        return CertifiedIdentity(key, certificate, authority, listed, names)

    return among
