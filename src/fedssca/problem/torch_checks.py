"""Is the output of a PyTorch module a pure function of its parameters and of one row?

BatchNorm in training mode is not; `replace_batch_norm` makes a module of which it is.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from fedssca.errors import UserError

__all__ = ["check_module", "replace_batch_norm"]


def check_module(module: torch.nn.Module) -> None:
    """Raise a UserError about a layer that is random, mixes rows, or has no shape yet."""
    if not isinstance(module, torch.nn.Module):
        raise UserError(
            f"{type(module).__name__} is no torch.nn.Module: give a module, or use "
            "fedssca.from_scores for a JAX function"
        )
    norms = torch.nn.modules.batchnorm
    for name, part in module.named_modules():
        kind = type(part).__name__
        where = f"{kind} ({name})" if name else kind
        if isinstance(part, norms._BatchNorm):
            mixes = part.training or not part.track_running_stats
        else:  # InstanceNorm without statistics normalises every row by itself
            keeps = isinstance(part, norms._NormBase) and part.track_running_stats
            mixes = keeps and part.training
        if mixes:
            raise UserError(
                f"{where} mixes rows or keeps running statistics, which clients do not share: use "
                "fedssca.replace_batch_norm(module), which puts GroupNorm there, or freeze it with "
                "module.eval()"
            )
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.training and part.p > 0:
            raise UserError(f"{where} is random: remove it, or switch it off with module.eval()")
        if any(map(torch.nn.parameter.is_lazy, part.parameters(recurse=False))):
            raise UserError(
                f"{where} has no shape yet: call the module once on a few rows, or give the number "
                "of inputs"
            )


def replace_batch_norm(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of the module with GroupNorm in place of every BatchNorm; a warning names them.

    BatchNorm mixes the rows of a batch and keeps running statistics, which clients do not share.
    GroupNorm normalises every row by itself, in groups of up to 32 channels, and takes over the
    scales and shifts.
    """
    made, names = copy.deepcopy(module), []
    norms: dict[torch.nn.Module, torch.nn.GroupNorm] = {}
    for name, part in list(made.named_modules(remove_duplicate=False)):
        if not isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            continue
        names.append(name or type(part).__name__)
        norm = norms.setdefault(part, _group_norm(part))
        if not name:
            made = norm
            continue
        home, _, own = name.rpartition(".")
        setattr(made.get_submodule(home), own, norm)
    if names:
        warnings.warn(
            f"GroupNorm takes the place of BatchNorm in {', '.join(names)}: its scores "
            "change, so train the module again",
            stacklevel=2,
        )
    return made


def _group_norm(part: Any) -> torch.nn.GroupNorm:
    """GroupNorm with the scales and shifts of a BatchNorm."""
    channels = part.num_features
    size = max(size for size in range(1, min(channels, 32) + 1) if channels % size == 0)
    norm = torch.nn.GroupNorm(channels // size, channels, part.eps, part.affine)
    if part.affine:
        norm.load_state_dict({"weight": part.weight.data, "bias": part.bias.data})
        norm.to(part.weight.device, part.weight.dtype)
    return norm
