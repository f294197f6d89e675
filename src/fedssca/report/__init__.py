"""Figures, tables and pages from records: they read run directories, never live objects."""

from fedssca.report.curves import COLOURS, DASHES, curves, draw_curves, short_names, with_worst
from fedssca.report.screen import certificate_table, print_results

__all__ = [
    "COLOURS",
    "DASHES",
    "certificate_table",
    "curves",
    "draw_curves",
    "print_results",
    "short_names",
    "with_worst",
]
