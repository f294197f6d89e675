"""Private set intersection: what is common comes out, at all parties alike, and nothing else."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import rbcl
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.data.ids import IdForm, form_of
from fedssca.errors import UserError
from fedssca.privacy.psi.folder import FolderAlignment
from fedssca.privacy.psi.protocol import (
    SIZE,
    PsiParty,
    check_points,
    common_positions,
    intersect,
    rows_by_part,
    tagged_ids,
)
from fedssca.rounds.codec import InvalidMessage, decode, encode, note, read_note

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SETS = st.lists(st.lists(NAMES, unique=True, max_size=12), min_size=2, max_size=5)


@settings(max_examples=40, deadline=None)
@given(SETS)
def test_it_is_the_intersection_of_sets(sets: list[list[str]]) -> None:
    common = sorted(set(sets[0]).intersection(*sets[1:]))
    for own, rows in zip(sets, intersect(sets), strict=True):
        assert [own[row] for row in rows] == common


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_the_order_of_the_input_does_not_matter(parties: int) -> None:
    shuffler = random.Random(parties)
    shared = [f"p{i}" for i in range(30)]
    sets = [shared + [f"{party}-{i}" for i in range(10 * party)] for party in range(parties)]
    found = []
    for _ in range(2):
        for own in sets:
            shuffler.shuffle(own)
        rows = intersect(sets)
        found.append([[own[row] for row in r] for own, r in zip(sets, rows, strict=True)])
    assert found[0] == found[1] == [sorted(shared)] * parties


def test_unicode_and_long_ids() -> None:
    ids = ["Zoë", "東京", "😀", "x" * 100_000, "a\0b"]
    assert intersect([ids, ids[::-1]])[1].tolist() == [4 - ids.index(name) for name in sorted(ids)]


def test_nothing_in_common() -> None:
    assert [rows.tolist() for rows in intersect([["a"], ["b"], ["a", "b"]])] == [[], [], []]


def test_the_last_points_are_the_same_from_every_set() -> None:
    """E(x) = k_1 k_2 H(x), computed by hand with the group's own multiplication."""
    one, two = PsiParty(["a", "b"]), PsiParty(["b"])
    way = {"one": two.encrypt(one.encrypt_own()), "two": one.encrypt(two.encrypt_own())}
    assert common_positions([way["one"], way["two"]])[1].tolist() == [0]
    both = rbcl.crypto_core_ristretto255_scalar_mul(one.key, two.key)
    inverse = rbcl.crypto_core_ristretto255_scalar_invert(both)
    bare = rbcl.crypto_scalarmult_ristretto255(inverse, way["two"][0].tobytes())
    assert PsiParty(["b"], key=b"\1" + bytes(31)).encrypt_own()[0].tobytes() == bare


def test_what_is_sent_tells_neither_order_nor_run() -> None:
    """Sorted points: the same rows in another order, and another secret, say nothing."""
    ids = [f"p{i}" for i in range(50)]
    key = PsiParty(ids).key
    forth, back = PsiParty(ids, key).encrypt_own(), PsiParty(ids[::-1], key).encrypt_own()
    assert (forth == back).all()
    assert not set(map(bytes, PsiParty(ids).encrypt_own())) & set(map(bytes, forth))


def points(count: int) -> np.ndarray:
    return PsiParty([f"q{i}" for i in range(count)]).encrypt_own()


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        (np.full((1, SIZE), 255, np.uint8), "no point of the group"),
        (np.zeros((1, SIZE), np.uint8), "no point of the group"),
        (points(2).repeat(2, axis=0), "comes twice"),
        (points(2)[:, :31], "a point has 32 bytes, these have 31"),
        (points(2).astype(np.int64), "an array of bytes"),
        (points(2).ravel(), "an array of bytes"),
        (None, "an array of bytes"),
    ],
)
def test_hostile_points_are_refused(hostile: object, said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        PsiParty(["a"]).encrypt(hostile)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match=said):
        common_positions([points(2), hostile])  # type: ignore[list-item]


def test_counts_and_places_are_checked() -> None:
    with pytest.raises(InvalidMessage, match="2 points came back, 3 were sent"):
        check_points(points(2), 3)
    member = PsiParty(["a", "b"])
    member.encrypt_own()
    for places in ([2], [-1], [0, 0], [0.0], [[0]]):
        with pytest.raises(InvalidMessage, match="common id"):
            member.rows_at(np.array(places))


def test_parts_do_not_mix() -> None:
    """An id for training at one party and for testing at the other is not common."""
    here = {"rows": ["a", "b"], "test": ["c", "d"]}
    there = {"rows": ["c", "b"], "test": ["a", "d"]}
    found = intersect([tagged_ids(here), tagged_ids(there)])
    assert [r.tolist() for r in rows_by_part(here, found[0]).values()] == [[1], [1]]
    assert [r.tolist() for r in rows_by_part(there, found[1]).values()] == [[1], [1]]


class Parties:
    """Several parties around one folder."""

    def __init__(self, root: Path, sets: dict[str, list[str]]) -> None:
        self.folder, self._root, self._sets = root / "shared", root, sets
        self.folder.mkdir(parents=True)

    def at(self, name: str) -> FolderAlignment:
        """A new process of this party."""
        others, ids = [n for n in self._sets if n != name], self._sets[name]
        secret = self._root / f"{name}.secret"
        return FolderAlignment(self.folder, name, others, ids, form_of(ids), secret)

    def age(self) -> None:
        """All files have long been there."""
        for file in self.folder.iterdir():
            os.utime(file, (0, 0))


SETS_OF = {
    "bank": ["b", "c", "d"],
    "clinic": ["d", "a", "c"],
    "lab": ["c", "d", "e"],
    "post": ["d", "c", "f"],
    "school": ["a", "c", "d"],
}


def silent(count: int) -> None:
    del count


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parties_meet_in_a_folder_step_by_step(count: int, tmp_path: Path) -> None:
    names = list(SETS_OF)[:count]
    sets = {name: SETS_OF[name] for name in names}
    parties = Parties(tmp_path, sets)
    waiting = set(names)
    for _ in range(2 * len(names)):
        waiting = {name for name in names if parties.at(name).proceed(silent)}
        if not waiting:
            break
    assert not waiting
    codes = set()
    for name in names:
        meeting = parties.at(name)
        assert meeting.proceed(silent) == []
        found = meeting.finish()
        assert [sets[name][row] for row in found.rows] == ["c", "d"]
        assert found.sizes == dict.fromkeys(names, 3)
        codes.add(found.code)
        assert (tmp_path / f"{name}.secret").stat().st_mode & 0o077 == 0
        meeting.forget()
        assert not (tmp_path / f"{name}.secret").exists()
    assert len(codes) == 1


def test_parties_that_wait_for_each_other_all_end(tmp_path: Path) -> None:
    parties = Parties(tmp_path, SETS_OF)

    def side(name: str) -> list[str]:
        meeting, until = parties.at(name), time.monotonic() + 300
        while missing := meeting.proceed(silent):
            assert meeting.wait(missing, until, 0.002)
        return [SETS_OF[name][row] for row in meeting.finish().rows]

    with ThreadPoolExecutor(len(SETS_OF)) as pool:
        assert list(pool.map(side, SETS_OF)) == [["c", "d"]] * len(SETS_OF)


def test_files_of_another_alignment_are_found_out(tmp_path: Path) -> None:
    sets = {name: SETS_OF[name] for name in ("bank", "lab")}
    old, new = Parties(tmp_path / "old", sets), Parties(tmp_path / "new", sets)
    for parties in (old, new, old, new):
        for name in sets:
            parties.at(name).proceed(silent)
    replayed = (old.folder / "bank.1.psi").read_bytes()
    (new.folder / "bank.1.psi").write_bytes(replayed)
    meeting = new.at("bank")
    meeting.proceed(silent)
    with pytest.raises(UserError, match=r"bank.1.psi answers another file than bank.0.psi"):
        meeting.finish()
    (new.folder / "bank.0.psi").write_bytes((old.folder / "bank.0.psi").read_bytes())
    with pytest.raises(UserError, match=r"bank.0.psi is not as it was written"):
        meeting.finish()
    (tmp_path / "new" / "bank.secret").unlink()
    with pytest.raises(UserError, match=r"bank.0.psi is of another alignment"):
        new.at("bank").proceed(silent)


def test_a_stranger_between_two_parties_spoils_the_check_code(tmp_path: Path) -> None:
    """He plays lab to the bank and bank to the lab, each with a folder and a secret of his own."""
    codes = {}
    for honest, played in (("bank", "lab"), ("lab", "bank")):
        sets = {honest: SETS_OF[honest], played: ["c", "d", "guess"]}
        parties = Parties(tmp_path / honest, sets)
        for name in (honest, played, honest):
            parties.at(name).proceed(silent)
        meeting = parties.at(honest)
        assert meeting.proceed(silent) == []
        codes[honest] = meeting.finish().code
    assert codes["bank"] != codes["lab"]


def test_broken_files_are_named(tmp_path: Path) -> None:
    parties = Parties(tmp_path, {name: SETS_OF[name] for name in ("bank", "lab")})
    for name in ("bank", "lab"):
        parties.at(name).proceed(silent)
    file = parties.folder / "lab.0.psi"
    (parties.folder / "lab.1.psi").unlink(missing_ok=True)
    good = file.read_bytes()
    letter = decode(good)
    said = read_note(letter)

    def changed(arrays: dict[str, object], **facts: object) -> bytes:
        return encode(letter._replace(arrays=letter.arrays | note(said | facts) | arrays))

    bad = np.array(letter.arrays["points"])
    bad[1] = 255
    for data, line in (
        (good[:-5], "ends early"),
        (b"hello", "ends early"),
        (changed({}, parties=["lab", "spy"]), "other parties: lab, spy"),
        (changed({}, form=["odd", 1]), "not complete"),
        (changed({"points": bad[:, :5]}), "a point has 32 bytes"),
        (encode(letter._replace(round=1)), "not file number 0"),
        (encode(letter._replace(kind="train/reply")), "of an alignment"),
        (changed({"points": bad}), "what lab sent is not used: bytes in a set are no point"),
    ):
        file.write_bytes(data)
        parties.age()
        with pytest.raises(UserError, match=line):
            parties.at("bank").proceed(silent)
    file.write_bytes(good[:-5])  # just now: it may still be growing
    assert parties.at("bank").proceed(silent) == ["lab.0.psi"]
    file.write_bytes(changed({}, form=IdForm("text", 1)))
    parties.at("bank").proceed(silent)


def test_a_changed_table_and_a_damaged_secret_are_named(tmp_path: Path) -> None:
    Parties(tmp_path, SETS_OF).at("bank").proceed(silent)
    secret = tmp_path / "bank.secret"
    other = FolderAlignment(
        tmp_path / "shared", "bank", ["clinic"], ["z"], IdForm("text", 1), secret
    )
    with pytest.raises(UserError, match="the ids are not those that this alignment began with"):
        other.proceed(silent)
    secret.write_text("{}")
    with pytest.raises(UserError, match="is damaged"):
        other.proceed(silent)


def test_ids_that_cannot_be_meant_alike_stop_early(tmp_path: Path) -> None:
    parties = Parties(tmp_path, {"bank": ["7", "12"], "lab": ["007", "012"]})
    parties.at("bank").proceed(silent)
    with pytest.raises(UserError, match="ids of bank are whole numbers such as 7, those of lab"):
        parties.at("lab").proceed(silent)
