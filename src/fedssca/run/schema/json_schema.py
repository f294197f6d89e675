"""The schema as JSON Schema, so that editors complete and check the TOML files."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from fedssca.run.schema.files import ProjectFile, SiteFile
from fedssca.run.schema.sections import Config

__all__ = ["FILES", "json_schema"]

FILES: dict[str, Any] = {"run": Config, "site": SiteFile, "project": ProjectFile}
"""The kinds of files that users write."""
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(file: str) -> dict[str, Any]:
    """The JSON Schema of one kind of file, for TOML as users write it."""
    raw = TypeAdapter(FILES[file]).json_schema()
    tables = raw.pop("$defs", {})
    made: dict[str, Any] = {"$schema": DRAFT, "title": f"fedssca {file}", **_clean(raw, tables)}
    if tables:
        made["$defs"] = {name: _clean(table, tables) for name, table in tables.items()}
    return made


def _clean(node: Any, tables: dict[str, Any]) -> Any:
    """Without generated titles, notes for the web form and null, which TOML does not have."""
    if isinstance(node, list):
        return [_clean(each, tables) for each in node]
    if not isinstance(node, dict):
        return node
    out = {
        name: _keys(value, tables) if name == "properties" else _clean(value, tables)
        for name, value in node.items()
        if name not in ("title", "basic", "unset", "unless")
        and not (name == "default" and value is None)
    }
    choices = out.pop("anyOf", None) or out.pop("oneOf", None)
    if choices is not None:
        choices = [choice for choice in choices if choice != {"type": "null"}]
        if isinstance(out.get("default"), dict):
            choices = [_partial(choice, tables) for choice in choices]
        out = choices[0] | out if len(choices) == 1 else {"anyOf": choices, **out}
    return out


def _keys(properties: dict[str, Any], tables: dict[str, Any]) -> dict[str, Any]:
    return {key: _clean(value, tables) for key, value in properties.items()}


def _partial(choice: Any, tables: dict[str, Any]) -> Any:
    """A table whose keys may all be left out, because the key has a default."""
    if "$ref" not in choice:
        return choice
    table = _clean(tables[choice["$ref"].rpartition("/")[2]], tables)
    return {name: value for name, value in table.items() if name != "required"}
