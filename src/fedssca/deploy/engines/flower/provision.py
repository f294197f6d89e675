"""Certificates, keys and startup kits for all parties of a project."""

from __future__ import annotations

import json
from pathlib import Path

from fedssca.deploy.engines.flower.certificates import Authority
from fedssca.deploy.engines.flower.kit import KIT_FILE, SITES, SUBMITTER
from fedssca.deploy.instructions import write_instructions
from fedssca.deploy.roster import SITE, signed_roster
from fedssca.errors import UserError
from fedssca.run.schema import ProjectFile

__all__ = ["provision"]


def provision(project: ProjectFile, out: Path) -> dict[str, Path]:
    """Make the kits of all parties below `out`: server, the sites, submit, and ca.

    "ca" holds the key of the certificate authority, which must be kept offline.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty: kits are made once; choose another --out")
    roles = {"server": "server", SUBMITTER: "submit"} | dict.fromkeys(project.sites, SITE)
    authority = Authority(project.name)
    listed, nodes = {}, {}
    for party, role in roles.items():
        startup = out / party / "startup"
        startup.mkdir(parents=True)
        hosts = sorted({project.server, "localhost", "127.0.0.1"}) if role == "server" else []
        key, certificate = authority.issue(party, hosts)
        listed[party] = (role, certificate)
        _secret(startup / "party.key", key)
        (startup / "party.crt").write_bytes(certificate)
        (startup / "rootCA.pem").write_bytes(authority.certificate)
        if role == SITE:
            nodes[party] = _node_key(startup)
    roster = signed_roster(project.name, listed, authority.key)
    for party, role in roles.items():
        content = {"kind": role, "name": party, "server": project.server, "port": project.port}
        more = {"nodes": nodes} if role == "server" else {}
        (out / party / "startup" / KIT_FILE).write_text(json.dumps(content | more, indent=2))
        (out / party / SITES).write_text(roster)
    (out / "ca").mkdir()
    _secret(out / "ca" / "rootCA.key", authority.key)
    (out / "ca" / "rootCA.pem").write_bytes(authority.certificate)
    kits = {party: out / party for party in (*roles, "ca")}
    for folder in kits.values():
        folder.chmod(0o700)
    write_instructions(project, kits, "Flower", "flower", "party.key")
    return kits


def _node_key(startup: Path) -> str:
    """Write the key by which Flower knows a node; returns its public part.

    Both files have the format that Flower's own commands read (`flower-supernode
    --auth-supernode-private-key`, `flwr supernode register`).
    """
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    _secret(startup / "node.key", private)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (startup / "node.pub").write_bytes(public)
    return public.decode()


def _secret(file: Path, content: bytes) -> None:
    file.touch(0o600)
    file.write_bytes(content)
