"""There is one schema: nothing else lists keys, choices or ranges, and all agree with it."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from fedssca.errors import ConfigError
from fedssca.problem.constraint_kinds import KINDS, KindName
from fedssca.run.config import embedded_default, parse, render
from fedssca.run.schema import Config, ConstraintSettings, ProjectFile, SiteFile, StepSettings
from fedssca.run.schema.docs import config_page
from fedssca.run.schema.json_schema import FILES, json_schema
from fedssca.run.schema.validate import choices_of, keys_of, table_of, validate

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/fedssca"
OWN = (SOURCE / "run/schema", SOURCE / "problem/constraint_kinds.py")
SECTIONS = {name: table_of(field.annotation) for name, field in keys_of(Config).items()}
TABLES = {**SECTIONS, "constraint": ConstraintSettings, "step": StepSettings}
TABLES |= {"site": SiteFile, "project": ProjectFile}
FIELDS = {f"{t}.{k}": field for t, kind in TABLES.items() for k, field in keys_of(kind).items()}
CHOICES = {key: set(choices_of(field)) for key, field in FIELDS.items() if choices_of(field)}
IN_CODE = {
    "algorithm.multipliers",
    "algorithm.name",
    "algorithm.surrogate",
    "constraint.kind",
    "data.name",
    "data.partition",
    "model.activation",
    "run.runtime",
}
"""Keys whose choices the code looks up in tables; the others are two-way branches."""


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    return [
        (path.relative_to(SOURCE), ast.parse(path.read_text()))
        for path in sorted(SOURCE.rglob("*.py"))
        if not any(own == path or own in path.parents for own in OWN)
    ]


def collections() -> Iterator[tuple[str, set[str], bool]]:
    """Literal collections of strings in the package: where, which, and whether it is a dict."""
    for path, tree in modules():
        for node in ast.walk(tree):
            entries: list[Any] = []
            if isinstance(node, ast.Dict):
                entries = node.keys
            elif isinstance(node, ast.Tuple | ast.List | ast.Set):
                entries = node.elts
            names = [e.value for e in entries if isinstance(e, ast.Constant)]
            if len(names) == len(entries) > 1 and all(isinstance(n, str) for n in names):
                yield f"{path}:{node.lineno}", set(names), isinstance(node, ast.Dict)


# Nothing else lists them -------------------------------------------------------------------------


def test_no_other_module_lists_keys() -> None:
    keys = {key for key in FIELDS if key.split(".")[0] in SECTIONS}
    assert [where for where, names, _ in collections() if len(names & keys) > 2] == []


def test_no_other_class_has_the_keys_of_a_section() -> None:
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own = {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                for name, kind in TABLES.items():
                    if name in ("step", "model"):  # a schedule has the same five symbols
                        continue
                    same = own & set(keys_of(kind))
                    assert len(same) <= len(keys_of(kind)) / 2, (path, node.name, same)


def test_tables_of_names_in_the_code_are_the_choices() -> None:
    found = set()
    for where, names, is_dict in collections():
        for key, choices in CHOICES.items():
            close = len(names & choices) >= max(2, len(choices) - 1)
            close = close and len(names - choices) <= 2
            if close and (is_dict or len(choices) > 3):
                assert names == choices, f"{where}: {key} has the choices {sorted(choices)}"
                found.add(key)
    assert found >= IN_CODE
    assert set(get_args(KindName)) == set(KINDS)


def test_no_other_module_checks_a_range_of_a_key() -> None:
    key = rf"\b({'|'.join(map(re.escape, FIELDS))}) = "
    for path, _ in modules():
        for line in (SOURCE / path).read_text().splitlines():
            if re.search(key, line) and re.search(r"must (be (at|pos|less|grea|not)|lie)", line):
                raise AssertionError(f"{path}: {line.strip()}: the range belongs to the schema")


def test_rates_share_one_default() -> None:
    """The smooth stand-in is equally sharp wherever a function or a file leaves it open."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                args = node.args
                ends = [*args.args, *args.kwonlyargs][-len([*args.defaults, *args.kw_defaults]) :]
                defaults = [*args.defaults, *args.kw_defaults]
                for arg, default in zip(ends, defaults, strict=False):
                    if arg.arg in ("sharpness", "positive") and default is not None:
                        plain = ast.unparse(default)
                        assert plain in ("SHARPNESS", "None"), (path, node.name, arg.arg)


# All is said -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", FIELDS)
def test_every_key_has_help_in_full_sentences(key: str) -> None:
    text = FIELDS[key].description or ""
    assert re.fullmatch(r"[A-Z][^\n]{8,}\.", text), text
    assert "  " not in text


@pytest.mark.parametrize("kind", TABLES.values())
def test_defaults_are_valid(kind: Any) -> None:
    if kind in (SiteFile, ProjectFile, ConstraintSettings, StepSettings):
        return  # these need something to be given
    assert validate(kind, _without_none(dataclasses.asdict(kind()))) == kind()


def test_the_page_of_keys_is_up_to_date() -> None:
    assert (ROOT / "docs/config.md").read_text() == config_page(), (
        "run: python -m fedssca.run.schema.docs docs/config.md"
    )


def test_the_form_has_every_key() -> None:
    from fedssca.report.live.form import fields

    shown = {field["key"]: field for section in fields() for field in section["fields"]}
    for key, field in FIELDS.items():
        table, _, name = key.partition(".")
        if table in SECTIONS and table != "deploy" and key != "problem.constraint":
            assert shown[key]["choices"] == list(choices_of(field))
        if table == "constraint":
            assert shown[name]["choices"] == list(choices_of(field))


def test_reading_a_configuration_needs_no_jax() -> None:
    code = (
        "import sys, types\n"
        "package = types.ModuleType('fedssca')\n"
        f"package.__path__ = [{str(SOURCE)!r}]\n"
        "sys.modules['fedssca'] = package\n"
        "import fedssca.run.config\n"
        "assert not {'jax', 'numpy'} & set(sys.modules), 'too heavy'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# JSON Schema -------------------------------------------------------------------------------------


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """The part of JSON Schema that is used, so that no validator has to be installed."""
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return any(fits(value, choice, root) for choice in schema["anyOf"])
    kind, number = schema["type"], isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "object":
        if "properties" not in schema:  # a table whose keys are free
            entries = schema["additionalProperties"]
            return isinstance(value, dict) and all(
                fits(own, entries, root) for own in value.values()
            )
        known = schema["properties"]
        return (
            isinstance(value, dict)
            and not schema["additionalProperties"]
            and set(schema.get("required", ())) <= set(value) <= set(known)
            and all(fits(each, known[key], root) for key, each in value.items())
        )
    if kind == "array":
        return (
            isinstance(value, list)
            and len(value) >= schema.get("minItems", 0)
            and all(fits(each, schema["items"], root) for each in value)
        )
    if kind in ("number", "integer"):
        return (
            number
            and math.isfinite(value)
            and (kind == "number" or isinstance(value, int))
            and schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
            and value > schema.get("exclusiveMinimum", -math.inf)
            and value < schema.get("exclusiveMaximum", math.inf)
        )
    if kind == "boolean":
        return isinstance(value, bool)
    return (
        isinstance(value, str)
        and ("enum" not in schema or value in schema["enum"])
        and schema.get("const", value) == value
        and re.search(schema.get("pattern", ""), value) is not None
    )


def test_runs_fit_the_json_schema() -> None:
    schema = json_schema("run")
    runs = [tomllib.loads(embedded_default()), tomllib.loads(render(parse("")))]
    files = sorted((ROOT / "experiments").glob("*.toml"))
    runs += [tomllib.loads(file.read_text()).get("base", {}) for file in files]
    assert len(runs) > 10
    for run in runs:
        assert fits(run, schema, schema)


@pytest.mark.parametrize(
    "text",
    [
        "[algorithm]\nrho = 0.9",
        "[algorithm]\nrho = {a = 0.9, alpha = 1}",
        "[algorithm]\nrho = {alpha = 1}",
        "[algorithm]\nrate = {alpha = 1}",
        "[algorithm]\nrho = 1.5",
        "[algorithm]\nrho = true",
        "[algorithm]\ntau = [1, 2]",
        "[algorithm]\ntau = []",
        "[algorithm]\ntau = [1, 0]",
        "[algorithm]\nbatch = 0",
        "[algorithm]\nbatch = 1.5",
        "[algorithm]\nrounds = 'auto'",
        "[algorithm]\nrounds = 'many'",
        "[algorithm]\nrounds = 0",
        "[algorithm]\nrounds = 7",
        "[algorithm]\nbacth = 1",
        "[algorithm]\nname = 'scca'",
        "[algorithm]\ndropout = 1",
        "[data]\nkeep = ['a']\nsizes = [1, 0.5]",
        "[data]\nkeep = 'a'",
        "[modle]\nhidden = 3",
        "[problem]\npenalty = [1, 10]",
        "[[problem.constraint]]\nkind = 'loss'\nlimit = 1",
        "[[problem.constraint]]\nkind = 'loss'",
        "[[problem.constraint]]\nkind = 'fnr'\nlimit = 0.1\npositive = 2\nsharpness = 3",
        "[[problem.constraint]]\nkind = 'fnr'\nlimit = 0.1\npositive = 'a'\ncolumns = ['a', 'b']",
        "[[problem.constraint]]\nkind = 'fnr'\nlimit = 0.1\npositive = 1.5",
        "[[problem.constraint]]\nkind = 'fnr'\nlimit = 0.1\ncolumn = 'a'\nbins = {a = [1, 2]}",
        "[[problem.constraint]]\nkind = 'fnr'\nlimit = 0.1\ncolumn = 'a'\nbins = {a = 1}",
        "[run]\nseed = 3000000000",
        "[privacy]\nsecure_sum = 1",
        "[deploy]\ntimeout = 5",
    ],
)
def test_the_json_schema_says_what_the_parser_says(text: str) -> None:
    schema = json_schema("run")
    try:
        parse(text)
        accepted = True
    except ConfigError:
        accepted = False
    assert fits(tomllib.loads(text), schema, schema) == accepted


def test_the_other_files_fit_their_json_schema() -> None:
    site, project = json_schema("site"), json_schema("project")
    assert fits({"path": "a.csv", "id": "patient", "ignore": ["x"]}, site, site)
    assert not fits({"pth": "a.csv"}, site, site)
    assert fits({"sites": ["a", "b"], "port": 9000}, project, project)
    assert not fits({"sites": ["A b"]}, project, project)
    assert not fits({"port": 70000}, project, project)


@pytest.mark.parametrize("file", FILES)
def test_the_json_schema_holds_what_editors_need(file: str) -> None:
    text = json.dumps(json_schema(file))
    assert text.count('"description"') > 3
    for word in ('"null"', '"unset"', '"basic"', '"title": "Name"'):
        assert word not in text


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[algorithm]\nbatch = 0", "algorithm.batch"),
        ("[algorithm]\nrho = 2.0", "algorithm.rho.a"),
        ("[algorithm]\nrounds = 'many'", "algorithm.rounds"),
        ("[algorithm]\nrounds = 'auto'\nlocal_steps = 2", "algorithm.rounds"),
        ("[algorithm]\nrounds = 'auto'\n[privacy]\nclip = 1", "algorithm.rounds"),
        ("[algorithm]\nrounds = 'auto'\n[privacy]\nepsilon = 1", "algorithm.rounds"),
        ("[algorithm]\nrounds='auto'\nname='sgd'\nrate.cool=0.5", "algorithm.rounds"),
        ("[algorithm]\nbacth = 1", "algorithm.bacth"),
        ("[data]\nsizes = [1, -1]", "data.sizes.1"),
        ("[problem]\npenalty = [1, -1]", "problem.penalty.1"),
        ("[[problem.constraint]]\nkind = 'loss'\nlimit = 0", "problem.constraint.0.limit"),
        ("[[problem.constraint]]\nkind = 'parity'\nlimit = 0", "problem.constraint.0.column"),
        ("[privacy]\nthreshold = 0.4", "privacy.threshold"),
        ("[privacy]\nsecure_sum = true\nhomomorphic = true", "privacy.homomorphic"),
    ],
)
def test_errors_name_their_key(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.key == key
    assert "\n" not in str(caught.value)


def _without_none(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_none(value) for key, value in tree.items() if value is not None}
    return tree
