"""The list of the parties of a project with their roles, signed by the project's CA.

`fedssca deploy provision` writes it as `sites.json` into every kit. The key of the certificate
authority (CA) is used once, offline; so neither the server nor a site can add a party. The server's
certificate comes from the same CA as those of the sites: without the list, the server could take
part as a site and subtract its own message from every sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.errors import UserError

__all__ = ["SITE", "Member", "Roster", "fingerprint", "pss", "read_roster", "signed_roster"]

SITE = "site"
"""The role of a party that holds data."""


class Member(NamedTuple):
    """One party of a project."""

    role: str
    """ "server", "site" or "submit"."""
    certificate: str
    """The SHA-256 of its certificate in DER, in hexadecimal digits."""


class Roster(NamedTuple):
    """The parties of a project, by name."""

    project: str
    members: dict[str, Member]

    @property
    def sites(self) -> list[str]:
        """The names of the sites, in their order."""
        return [name for name, member in self.members.items() if member.role == SITE]

    def check(self, names: Sequence[str], least: int = 2) -> None:
        """Raise a UserError unless these are different sites of the project, `least` or more."""
        if strange := [name for name in names if name not in self.sites]:
            raise UserError(
                f"{', '.join(strange)}: no site of the project {self.project}, whose signed list "
                f"(sites.json in the kit) names {', '.join(self.sites)}"
            )
        if len(set(names)) < len(names):
            raise UserError(f"a site is named twice: {', '.join(names)}")
        if len(names) < least:
            raise UserError(f"{len(names)} sites are to take part, this site asks for {least}")

    def fingerprint(self, name: str, role: str = SITE) -> str:
        """The fingerprint of a party's certificate; empty if no party of this role is so named."""
        member = self.members.get(name)
        return member.certificate if member is not None and member.role == role else ""


def signed_roster(project: str, parties: Mapping[str, tuple[str, bytes]], key: bytes) -> str:
    """The text of `sites.json`: name -> (role, certificate as PEM), signed with the CA's key."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    secret = load_pem_private_key(key, None)
    assert isinstance(secret, RSAPrivateKey)
    members = {name: Member(role, fingerprint(pem)) for name, (role, pem) in parties.items()}
    roster = Roster(project, members)
    signature = secret.sign(_signed(roster), *pss())
    return json.dumps(_plain(roster) | {"signature": signature.hex()}, indent=2)


def read_roster(file: Path, authority: Path) -> Roster:
    """The list in a kit; a UserError unless the CA of the kit signed it."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        root = x509.load_pem_x509_certificate(authority.read_bytes()).public_key()
        said = json.loads(file.read_text())
        members = {str(name): Member(**member) for name, member in said["parties"].items()}
        roster = Roster(str(said["project"]), members)
        assert isinstance(root, RSAPublicKey)
        root.verify(bytes.fromhex(said["signature"]), _signed(roster), *pss())
    except InvalidSignature:
        raise UserError(
            f"{file} is not signed by the project's CA: provision the kits anew"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(
            f"{file} is no signed list of sites ({error}): provision the kits anew"
        ) from None
    return roster


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a certificate, PEM or DER, in hexadecimal digits."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    if certificate.startswith(b"-----"):
        certificate = x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
    return sha256(certificate).hexdigest()


def _plain(roster: Roster) -> dict[str, Any]:
    parties = {name: member._asdict() for name, member in roster.members.items()}
    return {"project": roster.project, "parties": parties}


def _signed(roster: Roster) -> bytes:
    return b"fedssca parties\0" + json.dumps(_plain(roster)).encode()


def pss() -> tuple[Any, Any]:
    """The scheme of all signatures with certificates: RSA-PSS with SHA-256."""
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
    from cryptography.hazmat.primitives.hashes import SHA256

    return PSS(MGF1(SHA256()), 32), SHA256()
