"""How raw columns become the matrix x, the same at all places.

cells     what a cell can be: a number, text, a missing cell, a boolean, a date
summary   counts and sums of a column, which add up over sites
fit       from the summary of a column to its encoding
columns   the encodings, one class for each kind of column
encoder   all of them together, with a saved state
targets   a target of numbers, in the unit in which it is trained
"""

from fedssca.data.encode.cells import (
    as_text,
    codes,
    is_text,
    kinds_of,
    missing_cells,
    named_cells,
    stacked,
)
from fedssca.data.encode.columns import (
    BooleanEncoding,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    NumberEncoding,
    standardise,
)
from fedssca.data.encode.encoder import Encoder, fit_encoder
from fedssca.data.encode.summary import ColumnSummary, EncodingRules, Telling, merged, summarise
from fedssca.data.encode.targets import TargetKind, TargetScale

__all__ = [
    "BooleanEncoding",
    "CategoryEncoding",
    "ColumnEncoding",
    "ColumnSummary",
    "DateEncoding",
    "Encoder",
    "EncodingRules",
    "NumberEncoding",
    "TargetKind",
    "TargetScale",
    "Telling",
    "as_text",
    "codes",
    "fit_encoder",
    "is_text",
    "kinds_of",
    "merged",
    "missing_cells",
    "named_cells",
    "stacked",
    "standardise",
    "summarise",
]
