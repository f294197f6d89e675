"""What would leave a site in a run, with values, and which of its limits refuse what.

Nothing is sent and nothing is counted in the site's ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax

from fedssca.data.encode.label_sets import has_label
from fedssca.deploy.census import Question, counted_labels, job_of, question
from fedssca.deploy.project import site_names
from fedssca.deploy.server.census import merge, plainly_told
from fedssca.deploy.site.ledger import DataLedger, ledger_of
from fedssca.deploy.site.limits import refusals
from fedssca.deploy.site.raw_table import read_raw_table, read_source
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.deploy.site.rows import SiteRows
from fedssca.deploy.stages import method_of, shapes_of, spending_of
from fedssca.errors import UserError
from fedssca.run.build import Job
from fedssca.run.config import Config
from fedssca.run.privacy import hides_sums, noisy
from fedssca.run.schema import SiteFile

__all__ = ["check_site"]

SENT = {
    "probe": "before round 1, to find step sizes: as in every round",
    "train": "in every round: sums over one batch",
    "measure": "at every evaluation: sums of losses and rates over all training and test rows",
    "tally": "at the end: counts and sums of all measures, for each group too",
    "slope": "at the end: gradients summed over all training rows",
    "evidence": "for limits on new rows: counts and sums of calibration rows",
}
"""The stages of a run at a site, and what it sends in them."""


def check_site(file: Path, config: Config, sites: int | None = None) -> dict[str, Any]:
    """What one of so many sites would send in a run, by its site.toml, and what it refuses."""
    source = read_source(file)
    names = site_names(sites or config.data.clients)
    refused = [_refusal(each) for each in refusals(config, names, source)]
    found: dict[str, Any] = {
        "site": str(file),
        "limits": asdict(source.limits) | {"hidden": source.hidden},
        "sites": len(names),
        "used_before": DataLedger(ledger_of(file), source).entry(),
        "refused": refused,
        "hidden": hides_sums(config),
        "noise": noisy(config.privacy),
        "census": None,
        "labels": [],
        "counted_labels": [],
        "features": [],
        "rounds": [],
        "rounds_unknown": "",
    }
    try:
        _look_at_data(found, source, config)
    except LimitRefused as refusal:
        refused.append(_refusal(refusal))
        found["rounds_unknown"] = "nothing, because the run ends before round 1"
    except UserError as error:
        if found["census"] is None:
            raise
        found["rounds_unknown"] = f"the run fails before round 1: {error}"
    return found


def _look_at_data(found: dict[str, Any], source: SiteFile, config: Config) -> None:
    """Add what the site would tell before round 1, and send in the rounds."""
    asked = question(config, "")
    rows = SiteRows(read_raw_table(source, asked["label"]), asked, source.limits)
    found["census"] = facts = rows.facts() | rows.told()
    found["features"] = facts.get("encoded") or facts["features"]
    found["labels"] = facts["labels"]
    if asked["target"] == "labels":
        ways = [f"{way} {name}" for name in asked["label"] for way in ("without", "with")]
        found["labels"] = [ways[word] for word in facts["labels"]]
    if asked["counted"] and facts["labelled"]:
        labels, groups = counted_labels(asked, rows.labels), rows.groups
        facts["counts"] = rows.counts(labels, groups)
        found["counted_labels"] = _label_words(asked, labels)
        if not hides_sums(config):
            rows.check_other_rows(labels, groups)
    if asked["columns"]:
        found["rounds_unknown"] = (
            "parties with columns send h of each batch to their peers, and the block of the "
            "gradient that belongs to their features to the server"
        )
        return
    alone = replace(config, data=replace(config.data, clients=1))
    told = plainly_told(["this site"], [facts], asked, lambda _: [facts])
    census = merge(["this site"], [facts], asked, told)
    found["features"] = census.features
    found["rounds"] = list(_rounds(job_of(alone, census), *rows.sizes, census.calibration))


def _label_words(asked: Question, labels: Sequence[Any]) -> list[Any]:
    """The labels by which rows are counted as people read them; of a label set its labels."""
    if asked["target"] != "labels":
        return list(labels)
    limited = [(k, name) for k, name in enumerate(asked["label"]) if has_label(asked["limited"], k)]
    return [
        " and ".join(f"{'with' if has_label(own, k) else 'without'} {name}" for k, name in limited)
        for own in labels
    ]


def _rounds(
    job: Job, train: int, held: int, calibration: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """What a site with rows sends in every stage, and the least number of rows behind it."""
    batch = job.algorithm.batch
    rows = {"probe": batch, "train": batch, "evidence": sum(calibration)}
    for stage, what in SENT.items():
        if stage == "evidence" and not calibration:
            continue
        noise = spending_of(stage, method_of(stage, job)[1]) is not None
        if noisy(job.config.privacy) and not noise:
            continue  # exact sums over all rows are not sent in a run with noise
        answer = shapes_of(stage, job, 0).answer
        leaves, _ = jax.tree.flatten_with_path(answer)
        yield {
            "stage": stage,
            "what": what,
            "rows": rows.get(stage, min(train, held or train)),
            "hidden": hides_sums(job.config),
            "noise": noise,
            "numbers": sum(int(leaf.size) for _, leaf in leaves),
            "shapes": {jax.tree_util.keystr(path): list(leaf.shape) for path, leaf in leaves},
        }


def _refusal(refused: LimitRefused) -> dict[str, Any]:
    return {"limit": refused.key, "value": refused.value, "why": refused.why}
