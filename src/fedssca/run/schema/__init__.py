"""The one schema of a run, of `site.toml` and of the project file."""

from fedssca.run.schema.algorithm import AlgorithmSettings, RuleName
from fedssca.run.schema.constraint import ConstraintSettings
from fedssca.run.schema.data import DataSettings
from fedssca.run.schema.files import ProjectFile, SiteFile
from fedssca.run.schema.limits import SiteLimits
from fedssca.run.schema.model import ModelSettings
from fedssca.run.schema.privacy import PrivacySettings
from fedssca.run.schema.problem import ProblemSettings
from fedssca.run.schema.sections import Config, DeploySettings, RunSettings
from fedssca.run.schema.types import AUTO, StepSettings
from fedssca.run.schema.validate import validate

__all__ = [
    "AUTO",
    "AlgorithmSettings",
    "Config",
    "ConstraintSettings",
    "DataSettings",
    "DeploySettings",
    "ModelSettings",
    "PrivacySettings",
    "ProblemSettings",
    "ProjectFile",
    "RuleName",
    "RunSettings",
    "SiteFile",
    "SiteLimits",
    "StepSettings",
    "validate",
]
