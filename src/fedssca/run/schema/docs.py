"""Writes docs/config.md from the schema: `python -m fedssca.run.schema.docs docs/config.md`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from fedssca.problem.constraint_kinds import KINDS
from fedssca.run.schema.constraint import ConstraintSettings
from fedssca.run.schema.files import ProjectFile, SiteFile
from fedssca.run.schema.limits import SiteLimits
from fedssca.run.schema.sections import Config
from fedssca.run.schema.types import StepSettings
from fedssca.run.schema.validate import (
    bounds_of,
    choices_of,
    keys_of,
    plain_types,
    table_of,
    words_of,
)

__all__ = ["config_page"]

START = """\
# Every key

<!-- Made from the schema by `python -m fedssca.run.schema.docs docs/config.md`: do not edit. -->

A run is one TOML file. Keys that are left out have the defaults below, and `config.toml` in the run
directory holds all of them as they were used. `--set section.key=value` overrides one key; entries
of a list are numbered from 0: `--set problem.constraint.0.limit=0.3`. Unknown keys and values out
of range are errors that name the nearest known key or the allowed values.

## Completion in editors

Editors that know JSON Schema for TOML (Even Better TOML for VS Code, Taplo) complete and explain
every key. Write the schema to a file once,

```console
$ fedssca schema --out fedssca.schema.json
```

and name it in the first line of the run:

```toml
#:schema ./fedssca.schema.json

[algorithm]
batch = 20
```

`fedssca schema --kind site` and `--kind project` do the same for the files of a
[deployment](deploy.md).
"""

INTROS = {
    "problem": "Limits are stated in tables `[[problem.constraint]]`, see the next section.",
    "algorithm": "The keys rho, gamma, rate and dual_rate are [step sizes](#step-sizes).",
    "privacy": "Nothing is hidden unless these keys ask for it. Who sees what is in the "
    "[threat model](threat-model.md), how it works in [secure sums](secure-sums.md) and "
    "[noise](noise.md). All of it needs the [extra](install.md) `privacy`.",
    "deploy": "Only `fedssca deploy` reads this section, see [real sites](deploy.md). The key "
    "align is explained in [aligning rows](align.md).",
}

END = """\
## What a run leaves

- `config.toml`: the complete configuration as it was used.
- `metrics.jsonl`: one row per evaluated round. `constraints` are the values F_m with the limit
  subtracted.
- `problem.json`: names and limits of the constraints, numbers of parameters, clients and rows.
- `result.json`: the returned model's final row, certificate and notes, and the number of `rounds`
  that were trained. `certificate.limits` has one entry per stated limit: its value on training and
  on held-out rows, with counts and an interval, and the indices of the constraints that are its
  sides. `per_group` and `per_client` have the loss, the accuracy and the quantities of the limits
  for each group and each client; `per_client_hidden` says why there are none of clients.
- `model.npz`: `w` is the returned flat vector, `w_last` the last iterate. For the mlp, W_0 (L x J)
  comes first and then W_1 (J x P), row by row.
- `model/`: the complete model for [predictions](predict.md): weights, network, encoder, classes.
- `certificate.json`, in runs with a confidence: what is promised for new rows, as a
  [document](certificate.md). `calibration/` has the calibration rows of simulated clients with the
  salts of their commitments.
- `curves.png`, `checkpoint/`.
"""


def config_page() -> str:
    """The text of docs/config.md."""
    parts = [START]
    for name, field in keys_of(Config).items():
        parts.append(_section(f"[{name}]", table_of(field.annotation), INTROS.get(name, "")))
        if name == "problem":
            parts += [_section("[[problem.constraint]]", ConstraintSettings, ""), _kinds()]
    intro = "A number is short for a table with this number as `a`."
    parts.append(_section("Step sizes", StepSettings, intro))
    parts.append(_section("site.toml", SiteFile, "See [real sites](deploy.md)."))
    intro = "`fedssca deploy check` shows what they refuse, see [real sites](deploy.md)."
    parts.append(_section("[limits] in site.toml", SiteLimits, intro))
    parts.append(_section("project.toml", ProjectFile, "See [real sites](deploy.md)."))
    return "\n".join([*parts, END])


def _section(title: str, kind: Any, intro: str) -> str:
    rows = [
        (key, _default(field), _values(field), field.description or "")
        for key, field in keys_of(kind).items()
        if table_of(field.annotation) not in (ConstraintSettings, SiteLimits)
    ]
    about = " ".join(part for part in (kind.__doc__, intro) if part)
    return f"## {title}\n\n{about}\n\n" + _table(("key", "default", "values", "meaning"), rows)


def _kinds() -> str:
    rows = [
        (name, kind.limit.words("limit"), ", ".join(kind.options), kind.help)
        for name, kind in KINDS.items()
    ]
    about = "Examples and measurements are in [limits that hold](constraints.md)."
    return f"### Kinds\n\n{about}\n\n" + _table(("kind", "limit", "other keys", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in escaped)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if value is None:
        extra: Any = field.json_schema_extra
        return str(extra["unset"] or "none")
    if isinstance(value, StepSettings):
        plain = StepSettings(value.a)
        given = dataclasses.asdict(value).items()
        own = {k: v for k, v in given if k == "a" or v != getattr(plain, k)}
        return "{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in own.items()) + "}"
    return json.dumps(value)


def _values(field: FieldInfo) -> str:
    if choices := choices_of(field):
        return ", ".join(choices)
    if table_of(field.annotation) is StepSettings:
        return "step size"
    names = {
        bool: "true, false",
        int: "whole number",
        float: "number",
        str: "text",
        list: "list",
        dict: "table",
    }
    kinds = [name for kind, name in names.items() if kind in plain_types(field.annotation)]
    kinds += [json.dumps(word) for word in words_of(field)]
    bounds = bounds_of(field).words()
    if bounds and kinds == ["list"]:
        bounds = f"entries {bounds}"
    return ", ".join(filter(None, [" or ".join(kinds), bounds]))


if __name__ == "__main__":
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(config_page())
    else:
        print(config_page(), end="")
