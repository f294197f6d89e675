"""One script from ES modules, so that a page is a single file without a build step.

The scripts of the pages are ES modules: editors, Biome and Node read them as they are. A page must
be one file that works from disk under a policy that names the hash of its script, and such a file
cannot import. So the modules are written one after another, each after those that it imports, and
each inside a function that returns its exports: names that are not exported stay private.

Two forms are understood: `import { a, b } from "./file.js";`, and `export` in front of `function`,
`async function`, `const` or `class` at the beginning of a line. All other forms are refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

__all__ = ["bundle"]

IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.{1,2}/[^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.M)
OTHER = re.compile(r"^(?:import|export)\b.*", re.M)


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """The module `entry` and all that it imports as one script; `read` gives the text of a path."""
    parts: dict[str, str] = {}
    _add(entry, read, parts, ())
    return '"use strict";\nconst modules = {};\n' + "".join(parts.values())


def _add(
    path: str, read: Callable[[str], str], parts: dict[str, str], importers: tuple[str, ...]
) -> None:
    if path in importers:
        raise ValueError(f"{path} imports itself: {' -> '.join((*importers, path))}")
    if path in parts:
        return
    text = read(path)
    folder = posixpath.dirname(path)
    for _, target in IMPORT.findall(text):
        _add(posixpath.normpath(posixpath.join(folder, target)), read, parts, (*importers, path))
    parts[path] = _as_function(path, text)


def _as_function(path: str, text: str) -> str:
    folder = posixpath.dirname(path)

    def names_of(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[1].split(",") if name.strip()]
        if not all(name.isidentifier() for name in names):
            raise ValueError(f"{path}: imports cannot be renamed: {match[0].strip()}")
        module = posixpath.normpath(posixpath.join(folder, match[2]))
        return f'const {{ {", ".join(names)} }} = modules["{module}"];\n'

    exported = EXPORT.findall(text)
    body = EXPORT.sub("", IMPORT.sub(names_of, text))
    if other := OTHER.search(body):
        raise ValueError(f"{path}: this form of import or export is not supported: {other[0]}")
    inner = f"{body.rstrip()}\nreturn {{ {', '.join(exported)} }};"
    return f'modules["{path}"] = (() => {{\n{inner}\n}})();\n'
