"""When training diverges: back to the last good state with shorter steps, and a note about it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import Diverged
from fedssca.methods.algorithm import State

__all__ = ["MOST", "Safeguard"]

Row = dict[str, Any]
MOST = 5
"""Returns after which a run ends, with the best point so far."""
EXPLODED = 1e6
"""|w|^2 so many times its largest value at the first evaluations means divergence."""


class Safeguard:
    """Judges the evaluated states of one run."""

    def __init__(self, resumed: State | None = None) -> None:
        self._good = resumed
        self._norm = 0.0
        self._stopped = ""
        """What was broken when the run was last evaluated, or ended for it."""
        self.rounds: list[int] = []
        """The rounds at which the run went back."""

    def see(self, state: State, row: Row) -> State | bool | None:
        """None: go on. A state: go on from there. True: end the run."""
        bad = self._broken(state, row)
        if not bad:
            self._good, self._stopped = state, ""
            if row["norm_sq"] > 0 and (not self._norm or row["round"] <= 1):
                self._norm = float(row["norm_sq"])
            return None
        if self._good is None:
            raise Diverged(
                f"training cannot start: {bad} is not finite at round {row['round']}; check the "
                "data and their scale"
            )
        self.rounds.append(int(row["round"]))
        self._stopped = bad
        if len(self.rounds) > MOST:
            return True
        return jax.device_put(_retreat(self._good, state))

    def _broken(self, state: State, row: Row) -> str:
        for name, value in row.items():
            if not np.isfinite(np.asarray(value, float)).all():
                return name
        if not bool(np.isfinite(np.asarray(state.w)).all()):
            return "w"
        return "|w|^2" if self._norm and row["norm_sq"] > EXPLODED * self._norm else ""

    def end(self, state: State) -> State:
        """The state that the run ended with: the last good one if it diverged for good."""
        if self._stopped and self._good is not None:
            return self._good
        return state

    @property
    def ended(self) -> str:
        """Why the run ended at a point before its last one; empty if it did not."""
        if not self._stopped:
            return ""
        return (
            f"training diverged ({self._stopped} at round {self.rounds[-1]:,}) and ended there; "
            "the best point before that is returned: use smaller steps (a larger tau), or check "
            "the scale of the data"
        )

    def notes(self, state: State) -> list[str]:
        """What happened, in plain words."""
        lines = []
        inner = int(getattr(state.memory, "returns", 0)) - len(self.rounds)
        if self._stopped:
            lines.append(self.ended)
        elif self.rounds or inner > 0:
            count = len(self.rounds) + max(inner, 0)
            times = "once" if count == 1 else f"{count} times"
            lines.append(
                f"training diverged {times} and went back to the last good point with shorter steps"
            )
        return lines


def _retreat(good: State, now: State) -> State:
    """Go on from the state `good` in the place of `now`, with steps a quarter as long."""
    return good._replace(round=now.round, pace=jnp.minimum(good.pace, now.pace) / 4)
