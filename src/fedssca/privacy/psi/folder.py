"""Private set intersection by files in a folder that all parties reach, or that they mail around.

    lab.0.psi      the points of the party `lab`, multiplied by its own secret number
    lab.1.psi      the same points after the next party in alphabetical order, and so on
    lab.(I-1).psi  the points after all I parties; these sets are compared

Every party does what it can with the files that are there. Its secret number stays in a file of its
own outside the folder until the next file comes. Each file names the parties and the digest of the
file that it answers, so a file of another alignment is detected.
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
from fedssca.data.ids import KINDS, IdForm, misfit
from fedssca.errors import UserError
from fedssca.privacy.psi.protocol import PsiParty, Tick, check_points, common_positions
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode, note, read_note

__all__ = ["AlignedRows", "FolderAlignment"]

KIND = "psi"
SETTLED = 5.0
"""Seconds after which an incomplete file counts as damaged and not as still being written."""


class AlignedRows(NamedTuple):
    """The result of an alignment for one party."""

    rows: Array
    """The common rows, in the order of their ids."""
    sizes: dict[str, int]
    """The number of ids of each party."""
    code: str
    """A check code, which is the same at all parties if they saw the same files."""


class FolderAlignment:
    """One party's side of an alignment by files in a folder."""

    def __init__(
        self,
        folder: Path,
        me: str,
        others: Sequence[str],
        ids: Sequence[str],
        form: IdForm,
        secret: Path,
    ) -> None:
        """Check the names; `form` describes the ids, `secret` is the file of the secret number."""
        self._folder, self._me, self._secret = folder, me, secret
        self._parties = sorted({me, *others})
        if len(self._parties) != len(others) + 1 or not others:
            raise UserError("--with names the other parties, each once, and not --me itself")
        for name in self._parties:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
                raise UserError(f"party {name!r}: use letters, digits, - and _ for its name")
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: name one that all parties can reach")
        self._ids, self._form = ids, form
        self._member: PsiParty | None = None
        self._sent = ""

    def proceed(self, tick: Tick) -> list[str]:
        """Do all possible steps; return the names of the files that the next step needs."""
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
            turned = self._encrypted(letter, owner, tick)
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
        """Wait until one of these files exists (True), or until `until` on the monotonic clock.

        It does not wait for all files: another party may wait for a step that this party can do as
        soon as the first file is there.
        """
        while time.monotonic() < until:
            time.sleep(pause)
            if any((self._folder / name).exists() for name in missing):
                return True
        return False

    def finish(self) -> AlignedRows:
        """Return the common rows, if no file is missing. The secret number is no longer needed."""
        assert self._member is not None
        ways = [self._whole_way(owner) for owner in self._parties]
        positions = common_positions([points for points, _, _ in ways])
        sizes = {owner: size for owner, (_, size, _) in zip(self._parties, ways, strict=True)}
        code = _digest("".join(digest for _, _, digest in ways).encode())
        rows = self._member.rows_at(positions[self._parties.index(self._me)])
        return AlignedRows(rows, sizes, "-".join(code[at : at + 4] for at in range(0, 16, 4)))

    def forget(self) -> None:
        """Delete the secret number."""
        self._secret.unlink(missing_ok=True)

    def _begin(self, tick: Tick) -> PsiParty:
        file = self._file(self._me, 0)
        if not self._secret.exists():
            if file.exists():
                raise UserError(
                    f"{file} is of another alignment: use an empty folder, or delete its .psi files"
                )
            member = PsiParty(self._ids)
            self._send_own(member, tick, keep=True)
            return member
        try:
            kept = json.loads(self._secret.read_text())
            key, order = bytes.fromhex(kept["key"]), np.array(kept["order"], np.int64)
            known, sent = kept["ids"], kept["sent"]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{self._secret} is damaged: delete it and start again") from None
        if known != _digest("\0".join(self._ids).encode()):
            raise UserError(
                f"the ids are not those that this alignment began with; delete {self._secret} and "
                "the .psi files to start again"
            )
        member = PsiParty(self._ids, key, order)
        if not file.exists():  # The command was stopped between the two files.
            self._send_own(member, tick, keep=False)
        self._sent = sent
        return member

    def _send_own(self, member: PsiParty, tick: Tick, keep: bool) -> None:
        """Write the own points; the secret is on disk before anybody can answer them."""
        data = self._letter(self._me, 0, member.encrypt_own(tick), {"form": self._form})
        if keep:
            known, order = _digest("\0".join(self._ids).encode()), member.order.tolist()
            content = {"key": member.key.hex(), "order": order, "ids": known, "sent": _digest(data)}
            _replace(self._secret, json.dumps(content).encode())
        self._sent = _digest(data)
        _replace(self._file(self._me, 0), data, 0o644)

    def _encrypted(self, letter: Envelope, owner: str, tick: Tick) -> Array:
        assert self._member is not None
        try:
            return self._member.encrypt(letter.arrays["points"], tick)
        except InvalidMessage as error:
            raise UserError(f"what {owner} sent is not used: {error}") from None

    def _whole_way(self, owner: str) -> tuple[Array, int, str]:
        """Return a set after all parties, its size, and a digest that depends on all its files.

        Each file must name the digest of the file before.
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
                    raise UserError(f"{file} is not as it was written: start again")
            elif said["answers"] != expected:
                raise UserError(f"{file} answers another file than {owner}.{hop - 1}.psi: replaced")
            try:
                points = check_points(letter.arrays["points"], size)
            except InvalidMessage as error:
                raise UserError(f"{file} is not used: {error}") from None
            expected = digest
        return points, size, expected

    def _read(self, owner: str, hop: int) -> tuple[Envelope, str] | None:
        """Return a file of the folder and its digest, or None if it is not there yet."""
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
        except InvalidMessage as error:
            if age < SETTLED:
                return None
            raise UserError(f"{file} is not used: {error}") from None
        return letter, _digest(data)

    def _check(self, letter: Envelope, owner: str, hop: int) -> None:
        said = read_note(letter)
        if letter.kind != KIND or letter.round != hop or not isinstance(said, dict):
            raise InvalidMessage(f"it is not file number {hop} of an alignment")
        if said.get("parties") != self._parties or said.get("owner") != owner:
            raise InvalidMessage(
                f"it is about other parties: {', '.join(map(str, said.get('parties') or []))}"
            )
        wanted: dict[str, Callable[[Any], bool]] = {"answers": lambda v: isinstance(v, str)}
        if hop == 0:
            wanted = {"form": _is_form}
        if not all(name in said and right(said[name]) for name, right in wanted.items()):
            raise InvalidMessage("its header is not complete")
        check_points(letter.arrays.get("points"))
        if hop == 0 and (line := misfit({self._me: self._form, owner: IdForm(*said["form"])})):
            raise UserError(line)

    def _letter(self, owner: str, hop: int, points: Array, said: dict[str, Any]) -> bytes:
        facts = {"parties": self._parties, "owner": owner, **said}
        return encode(Envelope(KIND, bytes(16), hop, note(facts) | {"points": points}))

    def _file(self, owner: str, hop: int) -> Path:
        return self._folder / f"{owner}.{hop}.psi"


def _is_form(said: Any) -> bool:
    fits = isinstance(said, list) and [type(part) for part in said] == [str, int]
    return fits and said[0] in KINDS


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replace(file: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file completely or not at all; a secret file is never readable by others."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(data)
        os.replace(part, file)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
