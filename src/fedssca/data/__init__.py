"""Data: load it by name or from a file, fetch it, and share it out over clients."""

from fedssca.data.dataset import Dataset, check
from fedssca.data.fetch import Status, cache_folder, get, status
from fedssca.data.load import NAMES, load
from fedssca.data.split import Columns, Rows, by_feature, by_sample

__all__ = [
    "NAMES",
    "Columns",
    "Dataset",
    "Rows",
    "Status",
    "by_feature",
    "by_sample",
    "cache_folder",
    "check",
    "get",
    "load",
    "status",
]
