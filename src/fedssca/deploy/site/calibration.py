"""What a site's calibration rows are used for in a run, kept in a folder beside its site.toml.

<run>.npz     the rows as they were counted, and the salt of the site's commitment to them
<run>.json    every model that was tested on them: counts, p-values and bounds of this site alone

Both stay at the site. Whoever may ask about any number of models learns single rows: a site answers
questions about as many models as a run tests, and with bets about each of them once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.deploy.evidence import MOST_MODELS
from fedssca.errors import UserError
from fedssca.evaluate.confidence.claims import ClaimResult
from fedssca.evaluate.confidence.plain import plain_claim
from fedssca.rounds.codec import InvalidMessage
from fedssca.run.promise import Opening, new_salt, read_opening, write_opening
from fedssca.run.record import RunDirectory

__all__ = ["CalibrationUse", "calibration_folder", "model_digest"]


def calibration_folder(ledger: Path) -> Path:
    """The folder of a site's calibration rows, beside its ledger `<site>.ledger.json`."""
    return ledger.with_suffix("").with_suffix(".calibration")


def model_digest(*arrays: Any) -> str:
    """Identifies numbers, such as those of a model."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


class CalibrationUse:
    """The models that the calibration rows of a site were asked about in a run."""

    def __init__(self, folder: Path | None = None, run: bytes = b"", named: bool = False) -> None:
        """Read what earlier jobs of the run wrote to `folder`; None: keep nothing on disk.

        `named` sites let the server know whether they passed.
        """
        self._folder, self._run, self.named = folder, run.hex(), named
        self._counted: set[str] = set()
        self._tested: dict[tuple[str, int], str] = {}
        self.commitment = ""
        self.claims: dict[str, list[dict[str, Any]]] = {}
        """The digest of a model -> the claims about it, tested on this site's own rows."""
        file = self._file(".json")
        if file is not None and file.exists():
            self.claims = json.loads(file.read_text())["models"]

    def commit(self, site: str, rows: Mapping[str, np.ndarray]) -> str:
        """The site's commitment to its calibration rows; a run keeps its salt."""
        file = self._file(".npz")
        known = file is not None and file.exists()
        salt = read_opening(file).salt if file is not None and known else new_salt()
        opening = Opening(site, salt, rows)
        self.commitment = str(opening.committed["sha256"])
        if file is not None:
            self._write(lambda folder: write_opening(folder, file.name, opening))
        return self.commitment

    def check(self, model: str, theta: Mapping[str, np.ndarray], part: int = 0) -> bool:
        """Refuse a question about one model too many; returns whether it is about sums.

        Without bets it is about numbers of rows only. `part` tells parts of the rows apart.
        """
        if not all(((each >= 0) & (each < 1)).all() for each in theta.values()):
            raise InvalidMessage("bets must be at least 0 and less than 1")
        if not any(np.any(each) for each in theta.values()):
            self._counted.add(model)
            if len(self._counted) > MOST_MODELS:
                raise InvalidMessage(f"calibration rows are counted for {MOST_MODELS} models only")
            return False
        bets = model_digest(*(theta[name] for name in sorted(theta)))
        if self._tested.setdefault((model, part), bets) != bets:
            raise InvalidMessage("a model is tested on calibration rows once, with the same bets")
        if len({*self.claims, *(tested for tested, _ in self._tested)}) > MOST_MODELS:
            raise InvalidMessage(
                f"calibration rows test {MOST_MODELS} models of a run, and not more, also if it is "
                "resumed: start a new run"
            )
        return True

    def keep(self, model: str, results: list[ClaimResult]) -> None:
        """Keep the claims about a model, each with the bound that it alone would allow."""
        bounds = [result.bound if result.known else None for result in results]
        self.claims[model] = [
            plain_claim(result) | {"bound": None if bound is None else result.claim.sign * bound}
            for result, bound in zip(results, bounds, strict=True)
        ]
        file = self._file(".json")
        if file is not None:
            text = json.dumps({"run": self._run, "models": self.claims}, indent=1) + "\n"
            self._write(
                lambda folder: folder.write(file.name, lambda out: out.write(text.encode()))
            )

    def _file(self, end: str) -> Path | None:
        return self._folder and self._folder / f"{self._run}{end}"

    def _write(self, write: Any) -> None:
        assert self._folder is not None
        folder = RunDirectory(self._folder)
        try:
            folder.make()
            write(folder)
        except UserError:
            raise UserError(
                "this site cannot keep its calibration rows and their counts: the folder of "
                "site.toml must be writable"
            ) from None
