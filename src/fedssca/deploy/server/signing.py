"""The end of a run with a confidence at the server: the sites sign the certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.data import Rows
from fedssca.deploy.server.sites import Sites
from fedssca.methods.algorithm import Request
from fedssca.rounds.client import for_party
from fedssca.rounds.codec import note
from fedssca.run.build import Job
from fedssca.run.promise import canonical, save_certificate, statement_of
from fedssca.run.record import RunDirectory
from fedssca.run.saved import MODEL_FILES

__all__ = ["signed_by_all"]


def signed_by_all(
    sites: Sites,
    job: Job,
    folder: RunDirectory,
    result: dict[str, Any],
    commitments: Sequence[Mapping[str, Any]],
    seconds: float,
) -> None:
    """Let every site check the statement of a finished run and sign it; write certificate.json."""
    model = json.loads((folder.path / MODEL_FILES[1]).read_text())["digest"]
    statement = statement_of(folder, result, model, job.clients, commitments, sites.names)
    told = note({"statement": canonical(statement).decode()})
    w, everyone = np.load(folder.path / "model.npz")["w"], range(len(sites.names))
    asked = {number: told | _blocks(job, number, w) for number in everyone}
    answers = sites.ask("sign", 0, asked, seconds)
    sites.check_all(everyone, answers, 0)
    signatures = {
        sites.names[number]: answers[number].arrays["signature"].tobytes().hex()
        for number in everyone
    }
    save_certificate(folder, statement, signatures)


def _blocks(job: Job, number: int, w: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters of a model that a site knows: all of them, or its own and the top block."""
    if isinstance(job.clients, Rows):
        return {"w": w}
    assert job.problem.vertical is not None
    request = Request(jnp.zeros((), jnp.int32), job.problem.extended(jnp.asarray(w)))
    asked = for_party(job.problem.vertical, number, request, ())
    return {name: np.asarray(asked[name]) for name in ("w", "w0")}
