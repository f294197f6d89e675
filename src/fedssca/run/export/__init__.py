"""Runs for other tools: their rows for trackers, and their models for other programs.

trackers     the rows of a run for TensorBoard and MLflow
models       a model for the formats that a command names
layers       the two layers of a trained network as matrices
graph        nodes of an ONNX graph
encoding     raw columns to x inside an ONNX graph
onnx_files   the ONNX files of a model
classifier   the model as a classifier of scikit-learn
program      the network as a program of PyTorch
files        writing their files
"""

from fedssca.run.export.models import ModelTargets, export_model
from fedssca.run.export.trackers import ExportTargets, export_run, exporting

__all__ = ["ExportTargets", "ModelTargets", "export_model", "export_run", "exporting"]
