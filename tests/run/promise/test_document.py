"""certificate.json: one way to write it, and every changed byte is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.errors import UserError
from fedssca.run.promise import Certificate, read_certificate
from fedssca.run.promise.commit import Opening, commitment, new_salt, read_opening, write_opening
from fedssca.run.promise.document import canonical
from fedssca.run.record import RunDirectory

STATEMENT = {
    "format": 1,
    "signers": ["site-1"],
    "claims": [{"limit": 0.15, "p_value": 6.5e-07, "passed": True, "site": None, "rows": [3, 2.0]}],
    "title": "fnr of 'groß'",
}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def written(folder: Path) -> Path:
    file = folder / "certificate.json"
    file.write_text(Certificate(STATEMENT, {"site-1": "00ff"}).text())
    return file


def test_a_certificate_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = read_certificate(written(tmp_path))
    assert found == Certificate(STATEMENT, {"site-1": "00ff"})
    assert found.signed_bytes.startswith(b"fedssca certificate\0{")


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    file = written(tmp_path)
    raw = file.read_bytes()
    for at in range(len(raw)):
        for flip in (1, 32, 128):
            file.write_bytes(raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :])
            with pytest.raises(UserError, match=r"changed|damaged"):
                read_certificate(file)
    for other in (raw[:-1], raw + b"\n", raw.replace(b"  ", b"   ", 1), b"", b"[]", b"{}"):
        file.write_bytes(other)
        with pytest.raises(UserError):
            read_certificate(file)


def test_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(Certificate(STATEMENT | {"format": 2}).text())
    with pytest.raises(UserError, match="has format 2"):
        read_certificate(file)
    with pytest.raises(UserError, match="cannot be read"):
        read_certificate(tmp_path / "none.json")


@settings(max_examples=40)
@given(PLAIN.filter(lambda value: "inf" not in repr(value)))
def test_the_bytes_of_values_do_not_depend_on_how_they_were_written(value: object) -> None:
    once = canonical(value)
    assert canonical(json.loads(once)) == once
    assert canonical(json.loads(json.dumps(value, indent=3))) == once


def test_one_number_has_one_form() -> None:
    assert canonical({"b": 2.0, "a": 1e22}) == canonical({"a": 10**22, "b": 2})
    with pytest.raises(ValueError, match="JSON"):
        canonical([float("nan")])


def test_signers_are_complete_and_known() -> None:
    Certificate(STATEMENT, {"site-1": "00"}).check_signers()
    with pytest.raises(UserError, match="signature of site-1 is missing"):
        Certificate(STATEMENT).check_signers()
    with pytest.raises(UserError, match="site-9 has signed, but"):
        Certificate(STATEMENT, {"site-1": "00", "site-9": "00"}).check_signers()


def test_a_commitment_binds_rows_and_salt(tmp_path: Path) -> None:
    rows = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "y": np.array([0, 1, 1], np.int32)}
    salt = new_salt()
    made = commitment(rows, salt)
    assert made == commitment(dict(reversed(rows.items())), salt)
    changed = rows["x"].copy()
    changed[2, 1] = np.nextafter(changed[2, 1], 9)
    for other in (
        commitment(rows, new_salt()),
        commitment(rows | {"x": changed}, salt),
        commitment(rows | {"x": rows["x"][::-1]}, salt),
        commitment({"x": rows["x"], "z": rows["y"]}, salt),
        commitment({name: values[:2] for name, values in rows.items()}, salt),
    ):
        assert other != made
    write_opening(RunDirectory(tmp_path), "calibration/1.npz", Opening("site-1", salt, rows))
    again = read_opening(tmp_path / "calibration" / "1.npz")
    assert again.committed == {"site": "site-1", "rows": 3, "sha256": made}
    (tmp_path / "bad.npz").write_bytes(b"PK no")
    with pytest.raises(UserError, match="holds no calibration rows"):
        read_opening(tmp_path / "bad.npz")
