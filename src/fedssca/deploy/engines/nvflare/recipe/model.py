"""What the argument `model` of a recipe means in the configuration of a run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedssca.errors import UserError

__all__ = ["model_section"]

PLAIN = (bool, int, float, str, list, tuple, dict)


def model_section(model: Any) -> tuple[dict[str, Any], list[Path]]:
    """The keys of [model], and the source files of a torch module's class.

    `model` is a name, NVFlare's {"class_path": "net.Net", "args": {...}}, or a torch module, whose
    class is called with the same arguments at the server and at every site.
    """
    torch = sys.modules.get("torch")
    if model is None:
        return {}, []
    if isinstance(model, str):
        return {"name": model}, []
    if isinstance(model, Mapping):
        return _by_class_path(model), []
    if torch is not None and isinstance(model, torch.nn.Module):
        return _by_instance(model)
    raise UserError(
        f'model is a {type(model).__name__}: give a name such as "linear" or "net:Net", a torch '
        'module, or {"class_path": "net.Net", "args": {...}}'
    )


def _by_class_path(model: Mapping[str, Any]) -> dict[str, Any]:
    path, options = model.get("class_path", model.get("path")), model.get("args", {})
    if not isinstance(path, str) or "." not in path or not isinstance(options, Mapping):
        raise UserError(
            f'model = {dict(model)}: give {{"class_path": "module.Class", "args": {{...}}}}'
        )
    module, _, name = path.rpartition(".")
    return {"name": f"{module}:{name}", "options": dict(options)}


def _by_instance(model: Any) -> tuple[dict[str, Any], list[Path]]:
    kind = type(model)
    if kind.__module__ == "__main__":
        raise UserError(
            f"the class {kind.__name__} stands in the script itself, which no site can import: "
            "move it to a module of its own, such as net.py, and import it from there"
        )
    if kind.__module__.partition(".")[0] == "torch":
        raise UserError(
            f"a {kind.__name__} of torch cannot be made again by name: write a class of your own "
            'in a module, or a function make(features, outputs, seed), and give model="net:make"'
        )
    options = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        held = vars(model).get(name, vars(model).get(f"_{name}"))
        if isinstance(held, PLAIN):
            options[name] = list(held) if isinstance(held, tuple) else held
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            raise UserError(
                f"{kind.__name__} keeps no attribute {name!r}, so that its argument {name} is not "
                f'known: give model={{"class_path": "{kind.__module__}.{kind.__qualname__}", '
                f'"args": {{"{name}": ...}}}}'
            )
    section = {"name": f"{kind.__module__}:{kind.__qualname__}"}
    return section | ({"options": options} if options else {}), [Path(inspect.getfile(kind))]
