"""Signatures of sites with the certificates of their kits, and their verification with any kit.

What a site hands out is its certificate, then its signature. It counts if the certificate authority
(CA) of the project issued the certificate, and the kit's signed list names it for this site.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedssca.deploy.roster import SITE, fingerprint, pss, read_roster
from fedssca.errors import UserError
from fedssca.privacy import require_privacy

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from fedssca.run.promise import Certificate

__all__ = ["SiteSignatures", "check_signatures", "signature"]


def signature(secret: RSAPrivateKey, certificate: bytes, data: bytes) -> bytes:
    """A certificate in DER, preceded by its length, and the signature of `data` with its key."""
    return len(certificate).to_bytes(4, "big") + certificate + secret.sign(data, *pss())


class SiteSignatures:
    """Verifies what sites signed, with the CA's certificate and the signed list of sites."""

    def __init__(self, authority: Path, listed: Path) -> None:
        from cryptography import x509

        try:
            self._root = x509.load_pem_x509_certificate(authority.read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(
                f"{authority} is no certificate of a CA ({error}): is the kit complete?"
            ) from None
        self.roster = read_roster(listed, authority)

    def verify(
        self, name: str, data: bytes, signed: bytes, today: bool = False, role: str = SITE
    ) -> None:
        """Raise Forged unless the party of this name, which has this role, signed `data`.

        With `today` its certificate must be valid now; documents may be older than that.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

        from fedssca.privacy.sums.keys import Forged

        size = int.from_bytes(signed[:4], "big")
        found = self._checked(name, signed[4 : 4 + size], role)
        now = datetime.now(UTC)
        if today and not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise Forged(f"the certificate of {name} is not valid today: provision the kits anew")
        key = found.public_key()
        if not isinstance(key, RSAPublicKey):
            raise Forged(f"the certificate of {name} has no RSA key")
        try:
            key.verify(signed[4 + size :], data, *pss())
        except InvalidSignature:
            raise Forged(f"the signature is not that of {name}") from None

    def _checked(self, name: str, der: bytes, role: str) -> x509.Certificate:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature

        from fedssca.privacy.sums.keys import Forged

        try:
            found = x509.load_der_x509_certificate(der)
            found.verify_directly_issued_by(self._root)
        except (ValueError, TypeError, InvalidSignature):
            raise Forged(f"what came as the certificate of {name} is not from our CA") from None
        if fingerprint(der) != self.roster.fingerprint(name, role):
            raise Forged(f"the certificate that came for {name} is not that of the list of sites")
        return found


def check_signatures(certificate: Certificate, kit: Path) -> list[str]:
    """The sites that signed a certificate; a UserError unless these are exactly its signers.

    A signature is what the identity of a site (`deploy.site.identity`) makes of the certificate's
    `signed_bytes`, in hexadecimal digits. `kit` is the folder of any kit of the project.
    """
    require_privacy()
    from fedssca.privacy.sums.keys import Forged

    if not (kit / "sites.json").is_file():
        raise UserError(f"{kit} is no kit of a deployment: it has no list of sites, sites.json")
    known = SiteSignatures(kit / "startup" / "rootCA.pem", kit / "sites.json")
    if not certificate.signers:
        raise UserError(
            "no site signs this certificate: it is that of a simulated run; leave --kit out"
        )
    known.roster.check(certificate.signers, least=1)
    certificate.check_signers()
    for name, text in certificate.signatures.items():
        try:
            known.verify(name, certificate.signed_bytes, bytes.fromhex(text))
        except (Forged, ValueError) as error:
            raise UserError(f"the signature of {name} is forged: {error}") from None
    return certificate.signers
