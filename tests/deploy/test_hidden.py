"""Parties with columns that hide their h_i: what passes the server, and what it cannot do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.deploy.site.identity import CertifiedIdentity
from fedssca.errors import UserError
from fedssca.privacy.sums.keys import Forged
from fedssca.rounds.codec import decode, encode, read_note
from fedssca.run.config import parse
from fedssca.run.schema import ProjectFile
from tests.deploy.loopback import RUN, Loopback, deployed, parties

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
CONFIG = """
[data]
name = "digits"
split = "feature"
[model]
hidden = 4
[algorithm]
batch = 50
rounds = 4
rho = 0.9
gamma = 0.5
tau = 0.2
[privacy]
secure_sum = true
"""
H = "['h']"
ROUND = ("train/share", "measure/share", "slope/share")


def test_no_h_leaves_a_party_in_the_clear(tmp_path: Path) -> None:
    """All envelopes are looked at: none between peers, and shares are whole numbers, never h."""
    _, _, link = deployed(parse(CONFIG), 3, tmp_path)
    assert not link.peer_envelopes
    envelopes = [decode(data) for data in link.answers]
    shares = [envelope for envelope in envelopes if envelope.kind in ROUND]
    assert {envelope.kind for envelope in shares} == set(ROUND)
    for envelope in shares:
        assert set(envelope.arrays) <= {H, "['seals']"}
        assert envelope.arrays[H].dtype == np.uint64
        # 2^40 h would keep to the ends of the circle: masked, the middle is as full as the rest.
        middle = np.abs(envelope.arrays[H].astype(float) - 2.0**63) < 2.0**62
        assert 0.3 < middle.mean() < 0.7


def test_a_round_is_answered_once(tmp_path: Path) -> None:
    _, _, link = deployed(parse(CONFIG), 3, tmp_path)
    (data,) = [
        d for d in link.envelopes if decode(d).kind == "train/share" and decode(d).round == 2
    ][:1]
    party = link.parties["site-1"]
    said = read_note(decode(party.handle(data, lambda *_: None)))["message"]
    assert said.startswith("train, round 2: rounds only increase, and each is answered once")


def swapped(site: str, envelope: bytes, back: bytes) -> bytes:
    """A server that puts its own key in the place of site-2's."""
    got = decode(back)
    if site != "site-2" or got.kind != "offer":
        return back
    return encode(got._replace(arrays=got.arrays | {"key": got.arrays["key"][::-1].copy()}))


def test_the_server_cannot_put_itself_between_parties(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="signature is not that of party 1"):
        deployed(parse(CONFIG), 3, tmp_path, tamper=swapped)


def test_a_changed_share_spoils_no_model(tmp_path: Path) -> None:
    def changed(site: str, envelope: bytes, back: bytes) -> bytes:
        got = decode(back)
        if site != "site-3" or got.kind != "train/share" or got.round != 2:
            return back
        h = got.arrays[H].copy()
        h[-1] += np.uint64(1)
        return encode(got._replace(arrays=got.arrays | {H: h}))

    with pytest.raises(SitesMissing, match="round 2"):
        deployed(parse(CONFIG), 3, tmp_path, tamper=changed)


def test_a_site_may_insist_on_hidden_messages(tmp_path: Path) -> None:
    config = parse(CONFIG, ["data.split=sample", "privacy.secure_sum=false"])
    files = write_site_files(config, 2, tmp_path / "data")
    files[1].write_text("hidden = true\n" + files[1].read_text())
    order = RunOrder(config, site_names(2), RUN, False)
    with pytest.raises(UserError, match=r"site-2: refused by hidden = true .* hidden sums only"):
        RunServer(order, Loopback(parties(files)), tmp_path / "run").run()


def test_parties_with_columns_hide_what_can_be_hidden(tmp_path: Path) -> None:
    """A party that insists on hiding takes part once its operator allows blocks of the gradient."""
    config = parse(CONFIG, ["algorithm.rounds=2", "algorithm.name=sgd", "algorithm.rate=0.1"])
    files = write_site_files(config, 3, tmp_path / "data")
    order = RunOrder(config, site_names(3), RUN, False)
    files[1].write_text("hidden = true\n" + files[1].read_text())
    with pytest.raises(UserError, match=r"site-2: refused by limits\.open_blocks = false"):
        RunServer(order, Loopback(parties(files)), tmp_path / "one").run()
    files[1].write_text(files[1].read_text() + "open_blocks = true\n")
    assert RunServer(order, Loopback(parties(files)), tmp_path / "two").run()["round"] == 1


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fedssca.deploy.engines.nvflare import provision

    folder = tmp_path_factory.mktemp("kits")
    made: Path = folder / "kits"
    provision(ProjectFile(name="test", server="localhost", sites=["site-1", "site-2"]), made)
    return made


def identity(kit: Path, names: list[str]) -> CertifiedIdentity:
    files = (kit / "client.key", kit / "client.crt", kit / "rootCA.pem")
    return CertifiedIdentity(*files, kit.parent / "sites.json", names)


def test_certificates_are_identities(kits: Path) -> None:
    names = ["site-1", "site-2"]
    one, two = (identity(kits / name / "startup", names) for name in names)
    signed = two.sign(b"key")
    one.verify(1, b"key", signed)
    with pytest.raises(Forged, match="came for site-1 is not that of the list"):
        two.verify(0, b"key", signed)
    with pytest.raises(Forged, match="signature is not that of site-2"):
        one.verify(1, b"other key", signed)
    with pytest.raises(Forged, match="not from our CA"):
        one.verify(1, b"key", signed[:40] + bytes([signed[40] ^ 1]) + signed[41:])
    with pytest.raises(Forged, match="not from our CA"):
        one.verify(1, b"key", b"")
    with pytest.raises(UserError, match="no usable keys"):
        identity(kits, names)
