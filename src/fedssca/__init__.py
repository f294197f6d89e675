"""fedssca: federated optimisation with constraints."""

from fedssca.algorithm import Algorithm, Message, Request, State
from fedssca.baselines import sgd
from fedssca.constraints import Constraint, loss_at_most
from fedssca.data.dataset import Dataset
from fedssca.data.load import load
from fedssca.data.split import Columns, Rows, by_feature, by_sample
from fedssca.errors import UserError
from fedssca.models import Model, classifier, linear, mlp
from fedssca.problem import Problem, Vertical, custom_problem, vertical_problem
from fedssca.runtime.fused import Fused
from fedssca.runtime.local import Local
from fedssca.schedule import Schedule, power
from fedssca.simulate import Result, simulate
from fedssca.solver import Quadratic, Solution, lemma1, solve
from fedssca.ssca import ssca
from fedssca.surrogate import Surrogate, diagonal, first_order

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Columns",
    "Constraint",
    "Dataset",
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
    "Surrogate",
    "UserError",
    "Vertical",
    "by_feature",
    "by_sample",
    "classifier",
    "custom_problem",
    "diagonal",
    "first_order",
    "lemma1",
    "linear",
    "load",
    "loss_at_most",
    "mlp",
    "power",
    "sgd",
    "simulate",
    "solve",
    "ssca",
    "vertical_problem",
]
