"""Ready-made constraints on a classifier or a regression: mean f(scores, batch) <= limit.

A `Constraint` names the sampled means that it needs. Means of the same name are computed and sent
once, however many constraints use them. Every function returns a list, because one limit may need
several constraints: both sides of a gap, or one per client.
"""

from fedssca.problem.constraints.base import (
    Constraint,
    ScoreTerm,
    client_loss_at_most,
    client_loss_gap_at_most,
    custom,
    promised,
    straight_through,
)
from fedssca.problem.constraints.calibrated import calibration_at_most
from fedssca.problem.constraints.classes import target_class
from fedssca.problem.constraints.config import TrainingRows, from_config, parts_from_config
from fedssca.problem.constraints.errors import (
    beyond_at_most,
    bias_at_most,
    mae_at_most,
    mae_gap_at_most,
    rmse_at_most,
)
from fedssca.problem.constraints.groups import Groups
from fedssca.problem.constraints.losses import loss_at_most, loss_gap_at_most
from fedssca.problem.constraints.rates import (
    error_at_most,
    false_negative_rate_at_most,
    false_positive_rate_at_most,
    opportunity_gap_at_most,
    parity_gap_at_most,
    precision_at_least,
    recall_at_least,
)
from fedssca.problem.constraints.worst import worst_parts
from fedssca.problem.losses import LOSS, cross_entropy

__all__ = [
    "LOSS",
    "Constraint",
    "Groups",
    "ScoreTerm",
    "TrainingRows",
    "beyond_at_most",
    "bias_at_most",
    "calibration_at_most",
    "client_loss_at_most",
    "client_loss_gap_at_most",
    "cross_entropy",
    "custom",
    "error_at_most",
    "false_negative_rate_at_most",
    "false_positive_rate_at_most",
    "from_config",
    "loss_at_most",
    "loss_gap_at_most",
    "mae_at_most",
    "mae_gap_at_most",
    "opportunity_gap_at_most",
    "parity_gap_at_most",
    "parts_from_config",
    "precision_at_least",
    "promised",
    "recall_at_least",
    "rmse_at_most",
    "straight_through",
    "target_class",
    "worst_parts",
]
