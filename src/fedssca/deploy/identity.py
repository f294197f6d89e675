"""Who a site is to its peers: the certificate in its kit, signed by the project's CA.

The server relays public keys between sites and could put its own in their place; what it cannot do
is sign them in a site's name, as long as it does not hold the CA's key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedssca.errors import UserError
from fedssca.privacy import require_privacy

if TYPE_CHECKING:
    from cryptography import x509

    from fedssca.privacy.sums.keys import Identity

__all__ = ["Certified", "Known", "from_kit"]

Known = Callable[[Sequence[str]], "Identity"]
"""The sites' names in their order -> this site's identity among them."""


class Certified:
    """Signatures with a certificate; what is sent is the certificate, then the signature."""

    def __init__(self, kit: Path, names: Sequence[str]) -> None:
        """`kit`: a folder with client.key, client.crt and rootCA.pem."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        try:
            secret = load_pem_private_key((kit / "client.key").read_bytes(), None)
            own = x509.load_pem_x509_certificate((kit / "client.crt").read_bytes())
            self._root = x509.load_pem_x509_certificate((kit / "rootCA.pem").read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(f"{kit} has no usable keys ({error}): is the kit complete?") from None
        if not isinstance(secret, RSAPrivateKey):
            raise UserError(f"{kit}/client.key is no RSA key: provision the kit anew")
        self._secret, self._names = secret, list(names)
        self._certificate = own.public_bytes(Encoding.DER)

    def sign(self, data: bytes) -> bytes:
        """Certificate and signature."""
        from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
        from cryptography.hazmat.primitives.hashes import SHA256

        signature = self._secret.sign(data, PSS(MGF1(SHA256()), 32), SHA256())
        return len(self._certificate).to_bytes(4, "big") + self._certificate + signature

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        """Raise Forged unless the CA knows site `who` and that site signed this."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.hazmat.primitives.hashes import SHA256

        from fedssca.privacy.sums.keys import Forged

        name = self._names[who]
        size = int.from_bytes(signature[:4], "big")
        key = self._checked(name, signature[4 : 4 + size]).public_key()
        if not isinstance(key, RSAPublicKey):
            raise Forged(f"the certificate of {name} has no RSA key")
        try:
            key.verify(signature[4 + size :], data, PSS(MGF1(SHA256()), 32), SHA256())
        except InvalidSignature:
            raise Forged(f"the signature is not that of {name}") from None

    def _checked(self, name: str, der: bytes) -> x509.Certificate:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.x509.oid import NameOID

        from fedssca.privacy.sums.keys import Forged

        try:
            found = x509.load_der_x509_certificate(der)
            found.verify_directly_issued_by(self._root)
        except (ValueError, TypeError, InvalidSignature):
            raise Forged(f"what came as the certificate of {name} is not from our CA") from None
        said = [part.value for part in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if said != [name]:
            raise Forged(f"the certificate of {said} came in the name of {name}")
        if not found.not_valid_before_utc <= datetime.now(UTC) <= found.not_valid_after_utc:
            raise Forged(f"the certificate of {name} is not valid today: provision the kits anew")
        return found


def from_kit(kit: Path) -> Known:
    """A site's identity from the startup folder of its kit; read when it is needed."""

    def known(names: Sequence[str]) -> Identity:
        require_privacy()
        return Certified(kit, names)

    return known
