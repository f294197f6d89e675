"""A trained model and everything that is needed to use it, saved in `model/` of a run directory.

counted       what its limits need to know of the training rows
trained       the model: network, weights, encoder, classes; predictions for new rows
files         the files of `model/`
personal      the parts that belong to single clients
evaluation    loss, metrics and limits on new rows with labels
predictions   the table of predictions that commands write
"""

from fedssca.run.model.counted import CountedRows
from fedssca.run.model.evaluation import held_out_metrics
from fedssca.run.model.files import digest_of, load_model, save_model
from fedssca.run.model.personal import save_personal
from fedssca.run.model.predictions import (
    Predictions,
    joint_predictions,
    predict_rows,
    write_predictions,
)
from fedssca.run.model.trained import TrainedModel, model_from

__all__ = [
    "CountedRows",
    "Predictions",
    "TrainedModel",
    "digest_of",
    "held_out_metrics",
    "joint_predictions",
    "load_model",
    "model_from",
    "predict_rows",
    "save_model",
    "save_personal",
    "write_predictions",
]
