"""A classifier with the interface of scikit-learn.

classifier   the classifier itself
clients      the rows of the clients, checked
frames       DataFrames: names of columns, text and missing cells
limits       the constraints from everything that users may give
"""

from fedssca.run.estimators.classifier import FederatedClassifier

__all__ = ["FederatedClassifier"]
