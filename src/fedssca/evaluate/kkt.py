"""How far a point is from satisfying the Karush-Kuhn-Tucker conditions."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

__all__ = ["kkt_residual"]


def kkt_residual(gradients: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray]:
    """How far w is from a KKT point, and the multipliers nu >= 0 that fit best.

    The largest of |grad F_0 + sum nu_m grad F_m| / max(1, |grad F_0|), of the violations F_m > 0,
    and of the complementarities nu_m |F_m| / (1 + nu_m). The nu solve a least-squares problem in
    which an inactive constraint pays for its multiplier.
    """
    objective, others = gradients[0], gradients[1:]
    scale = max(1.0, float(np.linalg.norm(objective)))
    if len(others) == 0:
        return float(np.linalg.norm(objective)) / scale, np.zeros(0)
    idle = np.diag(np.maximum(-values, 0.0) * np.linalg.norm(others, axis=1))
    matrix = np.concatenate([others.T, idle])
    basis, triangle = np.linalg.qr(np.concatenate([matrix, np.zeros((1, len(others)))]))
    target = -np.concatenate([objective, np.zeros(len(others) + 1)])
    nu, _ = nnls(triangle, basis.T @ target)
    stationarity = float(np.linalg.norm(objective + nu @ others)) / scale
    slackness = float(np.max(nu * np.abs(values) / (1 + nu)))
    return max(stationarity, float(np.maximum(values, 0).max()), slackness), nu
