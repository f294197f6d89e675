"""Tables and who holds them: load, fetch, split among clients, stream, draw batches."""

from fedssca.data.dataset import Dataset, check
from fedssca.data.fetch import DataStatus, cache_folder, get, status
from fedssca.data.load import NAMES, load
from fedssca.data.sources import follow_csv, from_queue
from fedssca.data.split import Columns, Rows, by_feature, by_sample
from fedssca.data.stream import Streams

__all__ = [
    "NAMES",
    "Columns",
    "DataStatus",
    "Dataset",
    "Rows",
    "Streams",
    "by_feature",
    "by_sample",
    "cache_folder",
    "check",
    "follow_csv",
    "from_queue",
    "get",
    "load",
    "status",
]
