"""A classifier and a regressor with the interface of scikit-learn.

federated    what both have in common
classifier   the classifier
regressor    the regressor
clients      the rows of the clients, checked
frames       DataFrames: names of columns, text and missing cells
limits       the constraints from everything that users may give
"""

from fedssca.run.estimators.classifier import FederatedClassifier
from fedssca.run.estimators.regressor import FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor"]
