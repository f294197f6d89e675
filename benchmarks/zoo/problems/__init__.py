"""The problems, one module per family; importing this package fills the list of them."""

from problems import clients, generic, groups, networks, paper, rates, regression
from problems.case import CASES, Case, Entry

__all__ = [
    "CASES",
    "Case",
    "Entry",
    "clients",
    "generic",
    "groups",
    "networks",
    "paper",
    "rates",
    "regression",
]
