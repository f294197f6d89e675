"""Limits on new rows: statements that are true with the probability that they name.

rates        exact tests for one rate, from counts
means        betting on the mean of bounded values, from sums
gaps         two groups: exact for rates, betting for means
evidence     the sums over calibration rows
noised       tests on counts that carry noise
counts       the counts to which noise is added
claims       the test of one claim about new rows
margins      what can be certified at all, and the room that it takes
statement    all claims of a run, tested together
plain        tested claims as plain values, which can be tested again
path         from cautious to bold models: the boldest that passes
"""

from fedssca.evaluate.confidence.path import Certified, certify_alone, certify_path
from fedssca.evaluate.confidence.statement import Calibration, Promise, Tester

__all__ = ["Calibration", "Certified", "Promise", "Tester", "certify_alone", "certify_path"]
