"""Signatures of sites under a certificate: complete, genuine, and of nobody else."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nvflare")
from fedssca.deploy.signatures import check_signatures
from fedssca.deploy.site.identity import CertifiedIdentity
from fedssca.errors import UserError
from fedssca.run.promise import Certificate
from fedssca.run.schema import ProjectFile
from tests.cli_helpers import Shell

SITES = ["site-1", "site-2"]
STATEMENT = {"format": 1, "signers": SITES, "certified": True, "limits": [{"high": 0.1}]}


def kits_of(folder: Path) -> Path:
    from fedssca.deploy.engines.nvflare import provision

    provision(ProjectFile(name="test", server="localhost", sites=[*SITES, "site-3"]), folder)
    return folder


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kits_of(tmp_path_factory.mktemp("project") / "kits")


def signed(kits: Path, certificate: Certificate, site: str) -> str:
    kit = kits / site / "startup"
    files = (kit / "client.key", kit / "client.crt", kit / "rootCA.pem")
    own = CertifiedIdentity(*files, kit.parent / "sites.json", [*SITES, "site-3"])
    return own.sign(certificate.signed_bytes).hex()


def test_all_sites_signed(kits: Path) -> None:
    plain = Certificate(STATEMENT)
    genuine = Certificate(STATEMENT, {site: signed(kits, plain, site) for site in SITES})
    for party in ("submit", "site-3"):
        assert check_signatures(genuine, kits / party) == SITES
    edited = copy.deepcopy(STATEMENT)
    edited["limits"] = [{"high": 0.2}]
    with pytest.raises(UserError, match=r"signature of site-1 is forged: .* not that of site-1"):
        check_signatures(Certificate(edited, genuine.signatures), kits / "submit")
    only = Certificate(STATEMENT, {"site-1": genuine.signatures["site-1"]})
    with pytest.raises(UserError, match="the signature of site-2 is missing"):
        check_signatures(only, kits / "submit")


def test_signatures_of_others_do_not_count(kits: Path, tmp_path: Path) -> None:
    plain = Certificate(STATEMENT)
    own = signed(kits, plain, "site-1")
    stranger = Certificate(STATEMENT, {"site-1": own, "site-2": signed(kits, plain, "site-3")})
    with pytest.raises(UserError, match=r"site-2 is forged: .* not that of the list of sites"):
        check_signatures(stranger, kits / "submit")
    more = Certificate(
        STATEMENT,
        {site: signed(kits, plain, site) for site in (*SITES, "site-3")},
    )
    with pytest.raises(UserError, match="site-3 has signed, but the statement does not name it"):
        check_signatures(more, kits / "submit")
    twin = kits_of(tmp_path / "twin")
    rogue = Certificate(STATEMENT, {"site-1": own, "site-2": signed(twin, plain, "site-2")})
    with pytest.raises(UserError, match=r"site-2 is forged: .* not from our CA"):
        check_signatures(rogue, kits / "submit")
    with pytest.raises(UserError, match="site-2 is forged"):
        check_signatures(Certificate(STATEMENT, {"site-1": own, "site-2": "zz"}), kits / "submit")


def test_a_certificate_without_signers_is_no_deployments(kits: Path) -> None:
    with pytest.raises(UserError, match="no site signs this certificate"):
        check_signatures(Certificate(STATEMENT | {"signers": []}), kits / "submit")
    other = Certificate(STATEMENT | {"signers": ["site-9"]}, {"site-9": "00"})
    with pytest.raises(UserError, match="site-9: no site of the project"):
        check_signatures(other, kits / "submit")
    with pytest.raises(UserError, match="is no kit of a deployment"):
        check_signatures(Certificate(STATEMENT), kits)


def test_the_command_checks_signatures_with_any_kit(
    kits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = STATEMENT | {"certified": False, "confidence": 1, "certify": "pooled", "versions": {}}
    whole |= {"limits": [], "claims": [], "commitments": [], "training_rows": [3, 4]}
    plain = Certificate(whole | {"model_sha256": "", "config_sha256": ""})
    genuine = Certificate(plain.statement, {site: signed(kits, plain, site) for site in SITES})
    file, shell = tmp_path / "certificate.json", Shell(tmp_path, monkeypatch, capsys)
    write(file, genuine)
    seen = shell("certificate", "verify", file, "--kit", kits / "site-1")
    assert seen.code == 0, seen
    assert "✓ the signatures of site-1, site-2" in seen.out
    assert "the certificate is genuine" in seen.out
    assert "○ not checked: the signatures" in shell("certificate", "verify", file).out
    swapped = dict(zip(SITES, reversed(genuine.signatures.values()), strict=True))
    for signatures, said in {
        tuple(swapped.items()): "the signature of site-1 is forged",
        (("site-1", genuine.signatures["site-1"]),): "the signature of site-2 is missing",
    }.items():
        write(file, Certificate(plain.statement, dict(signatures)))
        assert said in shell.refused("certificate", "verify", file, "--kit", kits / "submit")
    refused = shell.refused("certificate", "verify", write(file, genuine), "--kit", tmp_path)
    assert "is no kit of a deployment" in refused


def write(file: Path, certificate: Certificate) -> Path:
    file.write_text(certificate.text())
    return file
