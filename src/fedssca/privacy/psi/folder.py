"""An alignment by files in a folder that all parties reach, or that they mail to each other.

    lab.0.psi      the set of `lab`, opened by itself
    lab.1.psi      the same set after the next party in the alphabet, and so on around the ring
    lab.(I-1).psi  the set as points that all I parties multiplied: these meet

Every party does what it can with the files that are there; what it must remember until the next
file comes, its secret number, stays in a file of its own outside the folder. Each file names the
parties and the digest of the file that it answers, so that one of another alignment is found out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.ids import KINDS, Form, misfit
from fedssca.errors import UserError
from fedssca.privacy.psi.protocol import Member, Tick, check_points, meet
from fedssca.rounds.codec import Letter, WireError, decode, encode, note, read_note

__all__ = ["Found", "Meeting"]

KIND = "psi"
SETTLED = 5.0
"""Seconds after which a file that is cut short is no longer taken for one that still grows."""


class Found(NamedTuple):
    """What came out."""

    rows: Array
    """The common rows, in the order of their ids."""
    sizes: dict[str, int]
    """How many ids each party brought."""
    code: str
    """The same at all parties if they saw the same files."""


class Meeting:
    """One party's side of an alignment in a folder."""

    def __init__(
        self,
        folder: Path,
        me: str,
        others: Sequence[str],
        ids: Sequence[str],
        form: Form,
        secret: Path,
    ) -> None:
        """`form`: what the ids look like, for the others to compare; `secret`: a file for me."""
        self._folder, self._me, self._secret = folder, me, secret
        self._parties = sorted({me, *others})
        if len(self._parties) != len(others) + 1 or not others:
            raise UserError("--with names the other parties, each once, and not --me itself")
        for name in self._parties:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
                raise UserError(f"party {name!r}: use letters, digits, - and _ for its name")
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder; name one that all parties can reach")
        self._ids, self._form = ids, form
        self._member: Member | None = None
        self._sent = ""

    def proceed(self, tick: Tick) -> list[str]:
        """Do what can be done now; the names of the files that are missing before the next step."""
        if self._member is None:
            self._member = self._begin(tick)
        count, mine = len(self._parties), self._parties.index(self._me)
        missing = []
        for hop in range(1, count):
            owner = self._parties[(mine - hop) % count]
            if self._file(owner, hop).exists():
                continue
            before = self._read(owner, hop - 1)
            if before is None:
                missing.append(self._file(owner, hop - 1).name)
                continue
            letter, digest = before
            turned = self._turned(letter, owner, tick)
            data = self._letter(owner, hop, turned, {"answers": digest})
            _replace(self._file(owner, hop), data, 0o644)
        if missing:
            return missing
        return [
            self._file(owner, count - 1).name
            for owner in self._parties
            if self._read(owner, count - 1) is None
        ]

    def wait(self, missing: Sequence[str], until: float, pause: float) -> bool:
        """Until one of these files is there (True) or `until` on the monotonic clock.

        One, not all: another party may wait for what this one can do as soon as the first is there.
        """
        while time.monotonic() < until:
            time.sleep(pause)
            if any((self._folder / name).exists() for name in missing):
                return True
        return False

    def finish(self) -> Found:
        """Once nothing is missing: the common rows. The secret number is no longer needed."""
        assert self._member is not None
        ways = [self._whole_way(owner) for owner in self._parties]
        places = meet([points for points, _, _ in ways])
        sizes = {owner: size for owner, (_, size, _) in zip(self._parties, ways, strict=True)}
        code = _digest("".join(digest for _, _, digest in ways).encode())
        rows = self._member.rows(places[self._parties.index(self._me)])
        return Found(rows, sizes, "-".join(code[at : at + 4] for at in range(0, 16, 4)))

    def forget(self) -> None:
        """Delete the secret number."""
        self._secret.unlink(missing_ok=True)

    def _begin(self, tick: Tick) -> Member:
        file = self._file(self._me, 0)
        if not self._secret.exists():
            if file.exists():
                raise UserError(
                    f"{file} is of another alignment: use an empty folder, or delete its .psi files"
                )
            member = Member(self._ids)
            self._open(member, tick, keep=True)
            return member
        try:
            kept = json.loads(self._secret.read_text())
            key, order = bytes.fromhex(kept["key"]), np.array(kept["order"], np.int64)
            known, sent = kept["ids"], kept["sent"]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{self._secret} is damaged: delete it and begin anew") from None
        if known != _digest("\0".join(self._ids).encode()):
            raise UserError(
                f"the ids are not those that this alignment began with; delete {self._secret} and "
                "the .psi files to begin anew"
            )
        member = Member(self._ids, key, order)
        if not file.exists():  # stopped between the two files
            self._open(member, tick, keep=False)
        self._sent = sent
        return member

    def _open(self, member: Member, tick: Tick, keep: bool) -> None:
        """The secret is on disk before anybody can answer."""
        data = self._letter(self._me, 0, member.open(tick), {"form": self._form})
        if keep:
            known, order = _digest("\0".join(self._ids).encode()), member.order.tolist()
            content = {"key": member.key.hex(), "order": order, "ids": known, "sent": _digest(data)}
            _replace(self._secret, json.dumps(content).encode())
        self._sent = _digest(data)
        _replace(self._file(self._me, 0), data, 0o644)

    def _turned(self, letter: Letter, owner: str, tick: Tick) -> Array:
        assert self._member is not None
        try:
            return self._member.turn(letter.arrays["points"], tick)
        except WireError as error:
            raise UserError(f"what {owner} sent is not used: {error}") from None

    def _whole_way(self, owner: str) -> tuple[Array, int, str]:
        """A set at the end of its way, its size, and a digest that stands for all its files.

        Each station is checked against the one before, whose digest it names.
        """
        count, size, expected = len(self._parties), 0, ""
        for hop in range(count):
            read = self._read(owner, hop)
            file = self._file(owner, hop).name
            if read is None:
                raise UserError(f"{file} is no longer in {self._folder}")
            letter, digest = read
            said = read_note(letter)
            if hop == 0:
                size = len(letter.arrays["points"])
                if owner == self._me and digest != self._sent:
                    raise UserError(f"{file} is not as it was written: begin anew")
            elif said["answers"] != expected:
                raise UserError(f"{file} answers another file than {owner}.{hop - 1}.psi: replaced")
            try:
                points = check_points(letter.arrays["points"], size)
            except WireError as error:
                raise UserError(f"{file} is not used: {error}") from None
            expected = digest
        return points, size, expected

    def _read(self, owner: str, hop: int) -> tuple[Letter, str] | None:
        """A file of the folder and its digest; None while it is not there."""
        file = self._file(owner, hop)
        try:
            age = time.time() - file.stat().st_mtime
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from None
        try:
            letter = decode(data)
            self._check(letter, owner, hop)
        except WireError as error:
            if age < SETTLED:
                return None
            raise UserError(f"{file} is not used: {error}") from None
        return letter, _digest(data)

    def _check(self, letter: Letter, owner: str, hop: int) -> None:
        said = read_note(letter)
        if letter.kind != KIND or letter.round != hop or not isinstance(said, dict):
            raise WireError(f"it is no alignment's file number {hop}")
        if said.get("parties") != self._parties or said.get("owner") != owner:
            raise WireError(
                f"it is about other parties: {', '.join(map(str, said.get('parties') or []))}"
            )
        wanted: dict[str, Callable[[Any], bool]] = {"answers": lambda v: isinstance(v, str)}
        if hop == 0:
            wanted = {"form": _is_form}
        if not all(name in said and right(said[name]) for name, right in wanted.items()):
            raise WireError("what it says of itself is not complete")
        check_points(letter.arrays.get("points"))
        if hop == 0 and (line := misfit({self._me: self._form, owner: Form(*said["form"])})):
            raise UserError(line)

    def _letter(self, owner: str, hop: int, points: Array, said: dict[str, Any]) -> bytes:
        facts = {"parties": self._parties, "owner": owner, **said}
        return encode(Letter(KIND, bytes(16), hop, note(facts) | {"points": points}))

    def _file(self, owner: str, hop: int) -> Path:
        return self._folder / f"{owner}.{hop}.psi"


def _is_form(said: Any) -> bool:
    fits = isinstance(said, list) and [type(part) for part in said] == [str, int]
    return fits and said[0] in KINDS


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replace(file: Path, data: bytes, mode: int = 0o600) -> None:
    """All of the file or nothing; what is secret is never readable by others."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(data)
        os.replace(part, file)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
