"""fedssca: federated optimisation with constraints."""

from fedssca.data.dataset import Dataset
from fedssca.data.load import load
from fedssca.data.sources import follow_csv, from_queue
from fedssca.data.split import Columns, Rows, by_feature, by_sample
from fedssca.data.stream import Streams
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State
from fedssca.methods.calibrate import calibrate
from fedssca.methods.curvature import diagonal
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.multipliers import Dual, exact_penalty, steered
from fedssca.methods.participation import participation
from fedssca.methods.rivals import augmented_lagrangian, primal_dual, quadratic_penalty, switching
from fedssca.methods.schedule import Schedule, power
from fedssca.methods.sgd import sgd
from fedssca.methods.solver import Quadratic, Solution, lemma1, solve
from fedssca.methods.ssca import ssca
from fedssca.methods.surrogate import Surrogate, first_order
from fedssca.problem.constraints import (
    Constraint,
    client_loss_at_most,
    client_loss_gap_at_most,
    custom,
    false_negative_rate_at_most,
    false_positive_rate_at_most,
    loss_at_most,
    opportunity_gap_at_most,
    parity_gap_at_most,
    precision_at_least,
    recall_at_least,
)
from fedssca.problem.custom import custom_problem, vertical_problem
from fedssca.problem.models import Model, classifier, linear, mlp
from fedssca.problem.problem import Problem, Vertical
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.run.automatic import auto
from fedssca.run.simulate import Result, simulate

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Columns",
    "Constraint",
    "Dataset",
    "Dual",
    "Fused",
    "Local",
    "Message",
    "Model",
    "Problem",
    "Quadratic",
    "Request",
    "Result",
    "Rows",
    "Schedule",
    "Solution",
    "State",
    "Streams",
    "Surrogate",
    "UserError",
    "Vertical",
    "augmented_lagrangian",
    "auto",
    "by_feature",
    "by_sample",
    "calibrate",
    "classifier",
    "client_loss_at_most",
    "client_loss_gap_at_most",
    "custom",
    "custom_problem",
    "diagonal",
    "exact_penalty",
    "false_negative_rate_at_most",
    "false_positive_rate_at_most",
    "first_order",
    "follow_csv",
    "from_queue",
    "lemma1",
    "linear",
    "load",
    "local_ssca",
    "loss_at_most",
    "mlp",
    "opportunity_gap_at_most",
    "parity_gap_at_most",
    "participation",
    "power",
    "precision_at_least",
    "primal_dual",
    "quadratic_penalty",
    "recall_at_least",
    "sgd",
    "simulate",
    "solve",
    "ssca",
    "steered",
    "switching",
    "vertical_problem",
]
