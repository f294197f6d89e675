"""The server takes part as a site, with its own certificate.

Who attacks: the server. What it wants: the sum of the sites without one of them, or a sum in which
all addends but one are its own. The names of the sites of a run come from the server, and its
certificate comes from the same authority as theirs: nothing but the name told them apart. What
stops it: every kit has a list of the project's parties, with roles and fingerprints of their
certificates, which the authority signed offline. A site of a run must be a site of that list.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nvflare")
from fedssca.deploy.roster import read_roster
from fedssca.deploy.site.identity import CertifiedIdentity
from fedssca.errors import UserError
from fedssca.privacy.sums.keys import Forged
from fedssca.run.schema import ProjectFile

SITES = ["site-1", "site-2", "site-3"]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fedssca.deploy.engines.nvflare import provision

    made: Path = tmp_path_factory.mktemp("project") / "kits"
    provision(ProjectFile(name="test", server="localhost", sites=SITES), made)
    return made


def identity(
    kits: Path, party: str, names: list[str], listed: Path | None = None
) -> CertifiedIdentity:
    startup = kits / party / "startup"
    own = "server" if party == "server" else "client"
    return CertifiedIdentity(
        startup / f"{own}.key",
        startup / f"{own}.crt",
        startup / "rootCA.pem",
        listed or kits / party / "sites.json",
        names,
    )


def test_a_run_with_the_server_among_the_sites_is_refused(kits: Path) -> None:
    for name in ("server", "localhost", "submit", "site-4"):
        with pytest.raises(UserError, match=f"{name}: no site of the project test"):
            identity(kits, "site-1", [*SITES, name])


def test_the_servers_certificate_signs_for_no_site(kits: Path, tmp_path: Path) -> None:
    """The server renames nothing: it signs with its own key in the place of a silent site."""
    honest = identity(kits, "site-1", SITES)
    rogue = identity(kits, "server", SITES)
    with pytest.raises(Forged, match="not that of the list of sites"):
        honest.verify(2, b"key", rogue.sign(b"key"))
    honest.verify(2, b"key", identity(kits, "site-3", SITES).sign(b"key"))


def test_a_certificate_with_a_sites_name_does_not_help(kits: Path, tmp_path: Path) -> None:
    """Another project of the same names has other certificates and another authority."""
    from fedssca.deploy.engines.nvflare import provision

    provision(ProjectFile(name="test", server="localhost", sites=SITES), tmp_path / "twin")
    rogue = identity(tmp_path / "twin", "site-3", SITES)
    with pytest.raises(Forged, match="not from our CA"):
        identity(kits, "site-1", SITES).verify(2, b"key", rogue.sign(b"key"))


@pytest.mark.parametrize("change", ["added", "role", "certificate", "signature", "old"])
def test_a_changed_list_is_refused(kits: Path, change: str, tmp_path: Path) -> None:
    file, root = tmp_path / "sites.json", kits / "site-1" / "startup" / "rootCA.pem"
    shutil.copy(kits / "site-1" / "sites.json", file)
    assert read_roster(file, root).sites == SITES
    said = json.loads(file.read_text())
    if change == "added":
        said["parties"]["site-4"] = said["parties"]["server"] | {"role": "site"}
    elif change == "role":
        said["parties"]["server"]["role"] = "site"
    elif change == "certificate":
        said["parties"]["site-2"]["certificate"] = said["parties"]["server"]["certificate"]
    elif change == "signature":
        said["signature"] = "00" * 256
    else:
        said = list(said["parties"])
    file.write_text(json.dumps(said))
    with pytest.raises(UserError, match="provision the kits anew"):
        identity(kits, "site-1", SITES, file)


def test_one_site_is_not_named_twice_and_few_are_refused(kits: Path) -> None:
    roster = read_roster(kits / "site-1" / "sites.json", kits / "site-1" / "startup" / "rootCA.pem")
    roster.check(SITES, least=3)
    with pytest.raises(UserError, match="named twice"):
        roster.check(["site-1", "site-2", "site-1"])
    with pytest.raises(UserError, match="2 sites are to take part, this site asks for 3"):
        roster.check(SITES[:2], least=3)
    with pytest.raises(Forged, match="no site number 3"):
        identity(kits, "site-1", SITES).verify(3, b"key", b"")
