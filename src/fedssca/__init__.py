"""fedssca: federated optimisation with constraints.

All public names are attributes of this package. A name is imported when it is first used, so that
`import fedssca` takes milliseconds and loads no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_MODULE_OF = {
    "Algorithm": "fedssca.methods.algorithm",
    "Calibration": "fedssca.evaluate.confidence",
    "Columns": "fedssca.data.split",
    "ConfigError": "fedssca.errors",
    "Constraint": "fedssca.problem.constraints",
    "Dataset": "fedssca.data.dataset",
    "Diverged": "fedssca.errors",
    "Dual": "fedssca.methods.multipliers",
    "FederatedClassifier": "fedssca.run.estimators",
    "FederatedRegressor": "fedssca.run.estimators",
    "Fused": "fedssca.rounds.fused",
    "Groups": "fedssca.problem.constraints",
    "JoinedModel": "fedssca.problem.forms",
    "Local": "fedssca.rounds.in_process",
    "Message": "fedssca.methods.algorithm",
    "Model": "fedssca.problem.forms",
    "Problem": "fedssca.problem.problem",
    "Quadratic": "fedssca.methods.solver",
    "Request": "fedssca.methods.algorithm",
    "Result": "fedssca.run.result",
    "Rows": "fedssca.data.split",
    "Schedule": "fedssca.methods.schedule",
    "Solution": "fedssca.methods.solver",
    "State": "fedssca.methods.algorithm",
    "Streams": "fedssca.data.stream",
    "Surrogate": "fedssca.methods.surrogate",
    "TargetScale": "fedssca.data.encode",
    "Task": "fedssca.problem.tasks",
    "TrainedModel": "fedssca.run.model.trained",
    "UserError": "fedssca.errors",
    "Vertical": "fedssca.problem.problem",
    "augmented_lagrangian": "fedssca.methods.rivals",
    "auto": "fedssca.run.build.calibrate",
    "beyond_at_most": "fedssca.problem.constraints",
    "bias_at_most": "fedssca.problem.constraints",
    "by_feature": "fedssca.data.split",
    "by_sample": "fedssca.data.split",
    "calibrate": "fedssca.methods.calibrate",
    "calibration_at_most": "fedssca.problem.constraints",
    "classifier": "fedssca.problem.models",
    "client_loss_at_most": "fedssca.problem.constraints",
    "client_loss_gap_at_most": "fedssca.problem.constraints",
    "cnn": "fedssca.problem.models",
    "cross_entropy": "fedssca.problem.constraints",
    "custom": "fedssca.problem.constraints",
    "custom_problem": "fedssca.problem.custom",
    "diagonal": "fedssca.methods.curvature",
    "error_at_most": "fedssca.problem.constraints",
    "exact_penalty": "fedssca.methods.multipliers",
    "false_negative_rate_at_most": "fedssca.problem.constraints",
    "false_positive_rate_at_most": "fedssca.problem.constraints",
    "first_order": "fedssca.methods.surrogate",
    "first_state": "fedssca.methods.algorithm",
    "follow_csv": "fedssca.data.sources",
    "from_loaders": "fedssca.data.loaders",
    "from_module": "fedssca.problem.torch",
    "from_modules": "fedssca.problem.torch_parties",
    "from_partitions": "fedssca.data.partitions",
    "from_queue": "fedssca.data.sources",
    "from_scores": "fedssca.problem.scores",
    "from_terms": "fedssca.problem.torch",
    "gradients": "fedssca.methods.surrogate",
    "keep_compiled_programs": "fedssca.system",
    "label_sets": "fedssca.data.encode.label_sets",
    "lemma1": "fedssca.methods.solver",
    "linear": "fedssca.problem.models",
    "load": "fedssca.data.load",
    "load_into": "fedssca.problem.torch",
    "load_model": "fedssca.run.model.files",
    "local_ssca": "fedssca.methods.local_ssca",
    "loss_at_most": "fedssca.problem.constraints",
    "loss_gap_at_most": "fedssca.problem.constraints",
    "mae_at_most": "fedssca.problem.constraints",
    "mae_gap_at_most": "fedssca.problem.constraints",
    "minimise_worst": "fedssca.problem.worst",
    "mlp": "fedssca.problem.models",
    "multilabel": "fedssca.problem.tasks",
    "opportunity_gap_at_most": "fedssca.problem.constraints",
    "parity_gap_at_most": "fedssca.problem.constraints",
    "participation": "fedssca.methods.participation",
    "party_mlp": "fedssca.problem.models",
    "power": "fedssca.methods.schedule",
    "precision_at_least": "fedssca.problem.constraints",
    "primal_dual": "fedssca.methods.rivals",
    "publish": "fedssca.methods.algorithm",
    "quadratic_penalty": "fedssca.methods.rivals",
    "recall_at_least": "fedssca.problem.constraints",
    "regression": "fedssca.problem.tasks",
    "replace_batch_norm": "fedssca.problem.torch",
    "rmse_at_most": "fedssca.problem.constraints",
    "sgd": "fedssca.methods.sgd",
    "simulate": "fedssca.run.simulate",
    "solve": "fedssca.methods.solver",
    "ssca": "fedssca.methods.ssca",
    "steered": "fedssca.methods.multipliers",
    "straight_through": "fedssca.problem.constraints",
    "switching": "fedssca.methods.rivals",
    "train_together": "fedssca.run.seeds",
    "vertical_problem": "fedssca.problem.custom",
    "with_noise": "fedssca.privacy.noise.messages",
}
"""Every public name and the module that defines it; the imports below show the same to editors."""
_NEEDS_TORCH = {"from_module", "from_modules", "from_terms", "load_into", "replace_batch_norm"}
"""Names that `from fedssca import *` leaves out, because PyTorch is an optional extra."""

_DOORS = {"flower", "nvflare"}
"""Modules of names for users of another library, which need that library."""

__all__ = [name for name in _MODULE_OF if name not in _NEEDS_TORCH]

if TYPE_CHECKING:
    from fedssca.data.dataset import Dataset as Dataset
    from fedssca.data.encode import TargetScale as TargetScale
    from fedssca.data.encode.label_sets import label_sets as label_sets
    from fedssca.data.load import load as load
    from fedssca.data.loaders import from_loaders as from_loaders
    from fedssca.data.partitions import from_partitions as from_partitions
    from fedssca.data.sources import follow_csv as follow_csv
    from fedssca.data.sources import from_queue as from_queue
    from fedssca.data.split import Columns as Columns
    from fedssca.data.split import Rows as Rows
    from fedssca.data.split import by_feature as by_feature
    from fedssca.data.split import by_sample as by_sample
    from fedssca.data.stream import Streams as Streams
    from fedssca.errors import ConfigError as ConfigError
    from fedssca.errors import Diverged as Diverged
    from fedssca.errors import UserError as UserError
    from fedssca.evaluate.confidence import Calibration as Calibration
    from fedssca.methods.algorithm import Algorithm as Algorithm
    from fedssca.methods.algorithm import Message as Message
    from fedssca.methods.algorithm import Request as Request
    from fedssca.methods.algorithm import State as State
    from fedssca.methods.algorithm import first_state as first_state
    from fedssca.methods.algorithm import publish as publish
    from fedssca.methods.calibrate import calibrate as calibrate
    from fedssca.methods.curvature import diagonal as diagonal
    from fedssca.methods.local_ssca import local_ssca as local_ssca
    from fedssca.methods.multipliers import Dual as Dual
    from fedssca.methods.multipliers import exact_penalty as exact_penalty
    from fedssca.methods.multipliers import steered as steered
    from fedssca.methods.participation import participation as participation
    from fedssca.methods.rivals import augmented_lagrangian as augmented_lagrangian
    from fedssca.methods.rivals import primal_dual as primal_dual
    from fedssca.methods.rivals import quadratic_penalty as quadratic_penalty
    from fedssca.methods.rivals import switching as switching
    from fedssca.methods.schedule import Schedule as Schedule
    from fedssca.methods.schedule import power as power
    from fedssca.methods.sgd import sgd as sgd
    from fedssca.methods.solver import Quadratic as Quadratic
    from fedssca.methods.solver import Solution as Solution
    from fedssca.methods.solver import lemma1 as lemma1
    from fedssca.methods.solver import solve as solve
    from fedssca.methods.ssca import ssca as ssca
    from fedssca.methods.surrogate import Surrogate as Surrogate
    from fedssca.methods.surrogate import first_order as first_order
    from fedssca.methods.surrogate import gradients as gradients
    from fedssca.privacy.noise.messages import with_noise as with_noise
    from fedssca.problem.constraints import Constraint as Constraint
    from fedssca.problem.constraints import Groups as Groups
    from fedssca.problem.constraints import beyond_at_most as beyond_at_most
    from fedssca.problem.constraints import bias_at_most as bias_at_most
    from fedssca.problem.constraints import calibration_at_most as calibration_at_most
    from fedssca.problem.constraints import client_loss_at_most as client_loss_at_most
    from fedssca.problem.constraints import client_loss_gap_at_most as client_loss_gap_at_most
    from fedssca.problem.constraints import cross_entropy as cross_entropy
    from fedssca.problem.constraints import custom as custom
    from fedssca.problem.constraints import error_at_most as error_at_most
    from fedssca.problem.constraints import (
        false_negative_rate_at_most as false_negative_rate_at_most,
    )
    from fedssca.problem.constraints import (
        false_positive_rate_at_most as false_positive_rate_at_most,
    )
    from fedssca.problem.constraints import loss_at_most as loss_at_most
    from fedssca.problem.constraints import loss_gap_at_most as loss_gap_at_most
    from fedssca.problem.constraints import mae_at_most as mae_at_most
    from fedssca.problem.constraints import mae_gap_at_most as mae_gap_at_most
    from fedssca.problem.constraints import opportunity_gap_at_most as opportunity_gap_at_most
    from fedssca.problem.constraints import parity_gap_at_most as parity_gap_at_most
    from fedssca.problem.constraints import precision_at_least as precision_at_least
    from fedssca.problem.constraints import recall_at_least as recall_at_least
    from fedssca.problem.constraints import rmse_at_most as rmse_at_most
    from fedssca.problem.constraints import straight_through as straight_through
    from fedssca.problem.custom import custom_problem as custom_problem
    from fedssca.problem.custom import vertical_problem as vertical_problem
    from fedssca.problem.forms import JoinedModel as JoinedModel
    from fedssca.problem.forms import Model as Model
    from fedssca.problem.models import classifier as classifier
    from fedssca.problem.models import cnn as cnn
    from fedssca.problem.models import linear as linear
    from fedssca.problem.models import mlp as mlp
    from fedssca.problem.models import party_mlp as party_mlp
    from fedssca.problem.problem import Problem as Problem
    from fedssca.problem.problem import Vertical as Vertical
    from fedssca.problem.scores import from_scores as from_scores
    from fedssca.problem.tasks import Task as Task
    from fedssca.problem.tasks import multilabel as multilabel
    from fedssca.problem.tasks import regression as regression
    from fedssca.problem.torch import from_module as from_module
    from fedssca.problem.torch import from_terms as from_terms
    from fedssca.problem.torch import load_into as load_into
    from fedssca.problem.torch import replace_batch_norm as replace_batch_norm
    from fedssca.problem.torch_parties import from_modules as from_modules
    from fedssca.problem.worst import minimise_worst as minimise_worst
    from fedssca.rounds.fused import Fused as Fused
    from fedssca.rounds.in_process import Local as Local
    from fedssca.run.build.calibrate import auto as auto
    from fedssca.run.estimators import FederatedClassifier as FederatedClassifier
    from fedssca.run.estimators import FederatedRegressor as FederatedRegressor
    from fedssca.run.model.files import load_model as load_model
    from fedssca.run.model.trained import TrainedModel as TrainedModel
    from fedssca.run.result import Result as Result
    from fedssca.run.seeds import train_together as train_together
    from fedssca.run.simulate import simulate as simulate
    from fedssca.system import keep_compiled_programs as keep_compiled_programs
else:

    def __getattr__(name: str) -> Any:
        """Import a public name, or a module of the root, when it is first used."""
        if name in _DOORS:
            return import_module(f"fedssca.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'fedssca' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    """List the public names, including those that have not been imported yet."""
    return sorted({*globals(), *__all__})
