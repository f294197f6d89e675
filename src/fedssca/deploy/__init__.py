"""Real sites: the rounds of `fedssca.loop` between machines, on NVFlare.

sheet, census   a site's own rows or columns, and what all parties must agree on
party           all that happens at a site, behind letters (no engine in it)
stages, judge   who answers in which phase: training, probing, evaluating
crew, conduct   the server's side: who lives, what fits, the run from hand-shake to result
parts           the classes that an NVFlare job names; they are installed, never shipped
project, kit    certificates and startup kits; processes that end with their parent
submit, local   the submitting side; everything on one machine
command         `fedssca deploy ...`
"""

from importlib.util import find_spec

from fedssca.errors import UserError

__all__ = ["require_engine"]


def require_engine() -> None:
    """Say what to install where the engine is missing."""
    if find_spec("nvflare") is None:
        raise UserError("deployment runs on NVFlare: pip install 'fedssca[deploy]'")
