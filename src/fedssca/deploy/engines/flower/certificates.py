"""The certificate authority (CA) of a project, and the certificates that it issues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

__all__ = ["Authority", "pem"]

VALID = timedelta(days=360)
"""How long certificates are valid."""

BITS = 2048


class Authority:
    """A CA with a new key, which signs the certificates of one project."""

    def __init__(self, project: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._key = rsa.generate_private_key(65537, BITS)
        self._name = _name(f"{project} CA")
        self.certificate = self._signed(self._name, self._key, [], authority=True)

    @property
    def key(self) -> bytes:
        """The CA's key as PEM, which must be kept offline."""
        return pem(self._key)

    def issue(self, name: str, hosts: list[str]) -> tuple[bytes, bytes]:
        """A new key and a certificate for a party, both as PEM; `hosts` are a server's names."""
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, BITS)
        return pem(key), self._signed(_name(name), key, hosts)

    def _signed(
        self, name: x509.Name, key: RSAPrivateKey, hosts: list[str], authority: bool = False
    ) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        now = datetime.now(UTC)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + VALID)
            .add_extension(x509.BasicConstraints(authority, 0 if authority else None), True)
            .add_extension(_usage(authority), True)
            .add_extension(own, False)
            .add_extension(issuer, False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, False)
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)


def pem(key: RSAPrivateKey) -> bytes:
    """A private key as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(common: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _host(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
