"""How a job ends, and the files it leaves: what the server and the submitting side agree on."""

from __future__ import annotations

from fedssca.run.saved import MODEL_FILES

__all__ = ["ENDED", "GROWING_FILES", "OUTCOME", "RESULTS", "ROW_FILES", "RUN_FILES"]

RUN_FILES = (
    "config.toml",
    "metrics.jsonl",
    "problem.json",
    "sites.jsonl",
    "events.jsonl",
    "model.npz",
    *MODEL_FILES,
    "census.json",
    "certificate.json",
    "result.json",
)
"""The files of a run directory that the submitting side copies, the result last."""

GROWING_FILES = RUN_FILES[:3]
"""The files that it copies while the run goes on."""

ROW_FILES = ("metrics.jsonl",)
"""Those of them to which lines are added, so that only what is new is copied."""

ENDED = ("done", "failed", "away", "stopped")
"""The states of a job that has ended: "away" means that sites are missing."""

RESULTS = "fedssca"
"""The folder of a run's files among the results that an engine itself keeps of a job."""

OUTCOME = "outcome.json"
"""The file in that folder which says how the run ended."""
