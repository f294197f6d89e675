"""The counts over all recorded runs, and a picture of them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from problems import CASES
from records import Record
from reference import stored
from table import best_trial, gap, price_error, score, verdict

PRICE = 0.15
"""A price is right if it is this close."""
AHEAD = 0.01
"""A method counts as level with another if its objective is at most this much higher."""
ORDER = (
    "default",
    "steered",
    "exact-printed",
    "exact-calibrated",
    "penalty",
    "primal-dual",
    "augmented",
    "switching",
    "sgd",
)
RIVALS = ORDER[4:]
Runs = dict[str, dict[str, list[Record]]]
"""Method -> case -> its runs; of a rival only those of the best trial."""


def chosen(records: Sequence[Record], names: Sequence[str]) -> Runs:
    """The runs that are compared, in the order of the methods and the cases."""
    grouped: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        grouped[record["method"]][record["case"]].append(record)
    found: Runs = {}
    for method in (m for m in ORDER if m in grouped):
        found[method] = {}
        for name in (n for n in names if n in grouped[method]):
            runs = grouped[method][name]
            if method in RIVALS:
                first = min(run["seed"] for run in runs)
                best = best_trial([run for run in runs if run["seed"] == first])
                runs = [run for run in runs if run["trial"] == best["trial"]]
            found[method][name] = sorted(runs, key=lambda run: run["seed"])
    return found


def median_score(runs: Sequence[Record]) -> float:
    """The median objective over the seeds; a broken limit counts as infinite."""
    return statistics.median(score(run) for run in runs)


def summarise(records: Sequence[Record], names: Sequence[str]) -> str:
    """The counts of every method as text."""
    found, known = chosen(records, names), References()
    lines = [part for method in found for part in of_method(method, found[method], known)]
    return "\n".join([*lines, *against_rivals(found, known)]) or "there are no results yet"


class References:
    """The reference of a case by its name; {} if there is none."""

    def __init__(self) -> None:
        self._stored = stored()

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._stored.get(CASES[name].same_as or name, {})


class Outcomes(NamedTuple):
    """What became of the runs of a method."""

    runs: list[Record]
    said: dict[str, list[Record]]
    """The runs of each verdict."""
    errors: list[tuple[float, Record]]
    """The error of the prices of each run that kept its limits and shows a price."""

    @property
    def feasible(self) -> int:
        """The number of runs whose limits can be kept."""
        return sum(len(self.said[word]) for word in ("kept", "broken", "failed"))

    @property
    def impossible(self) -> int:
        """The number of runs whose limits cannot be kept."""
        return len(self.said["said"]) + len(self.said["silent"])

    def gaps(self, known: References, exact: bool) -> list[tuple[float, Record]]:
        """The gaps of the runs that kept their limits to one kind of reference, worst first."""
        kept = [run for run in self.said["kept"] if known[run["case"]].get("exact") is exact]
        found = [(gap(run, known[run["case"]]), run) for run in kept]
        pairs = [(value, run) for value, run in found if value is not None]
        return sorted(pairs, key=lambda pair: -pair[0])


def outcomes(cases: dict[str, list[Record]], known: References) -> Outcomes:
    """The outcomes of all runs of a method."""
    runs = [run for name in cases for run in cases[name]]
    said = defaultdict(list)
    for run in runs:
        said[verdict(run)].append(run)
    errors = [(price_error(run, known[run["case"]]), run) for run in said["kept"]]
    return Outcomes(runs, said, [(error, run) for error, run in errors if error is not None])


def of_method(method: str, cases: dict[str, list[Record]], known: References) -> list[str]:
    found = outcomes(cases, known)
    runs, said = found.runs, found.said
    lines = [
        f"\n{method}: {len(cases)} problems, {len(runs)} runs, "
        f"{sum(run['seconds'] for run in runs):.0f} s",
        f"  kept {len(said['kept'])} of {found.feasible}; impossible limits said "
        f"{len(said['said'])} of {found.impossible}; failed {len(said['failed'])}",
    ]
    for word in ("broken", "silent", "failed"):
        if said[word]:
            names = ", ".join(f"{run['case']}/{run['seed']}" for run in said[word])
            lines.append(f"  {word}: {names}")
    for exact in (True, False):
        lines += gaps(found.gaps(known, exact), exact)
    if found.errors:
        wrong = sorted((pair for pair in found.errors if pair[0] > PRICE), key=lambda p: -p[0])
        lines.append(
            f"  prices within {PRICE:.0%}: {len(found.errors) - len(wrong)} of "
            f"{len(found.errors)} runs where one is shown; not: {listed(wrong)}"
        )
    done = [run["converged"] for run in runs if run.get("converged") is not None]
    if done:
        lines.append(f"  converged {sum(done)} of {len(done)}")
    return lines


def gaps(pairs: Sequence[tuple[float, Record]], exact: bool) -> list[str]:
    """Median and worst of these gaps as text."""
    if not pairs:
        return []
    large = [pair for pair in pairs if pair[0] > 0.05]
    middle = statistics.median(value for value, _ in pairs)
    kind = "exact optima" if exact else "best known points"
    return [
        f"  gap to {kind}: median {middle:.2%}, worst {listed(pairs[:1])}, "
        f"above 5 % in {len(large)} of {len(pairs)} runs: {listed(large)}"
    ]


def listed(pairs: Sequence[tuple[float, Record]]) -> str:
    return ", ".join(f"{r['case']}/{r['seed']} {value:.1%}" for value, r in pairs) or "none"


def at_optimum(runs: Sequence[Record], known: dict[str, Any]) -> bool:
    """The median is within 1 % of an exact optimum: no method that keeps the limits is ahead."""
    if known.get("exact") is not True or "objective" not in known:
        return False
    best = known["objective"]
    return median_score(runs) <= best + AHEAD * max(abs(best), known.get("unit", 1e-9))


class Comparison(NamedTuple):
    """A method beside the best tuned rival on one problem."""

    rival: str
    own: float
    """The median objective of the method."""
    other: float
    """That of the rival."""
    behind: float
    """own - other, relative to the size of the objective."""


def compared(
    found: Runs, name: str, runs: Sequence[Record], known: dict[str, Any]
) -> Comparison | None:
    """Compare the runs of a method on a problem with the best rival; None if there is none."""
    others = {m: median_score(found[m][name]) for m in RIVALS if name in found.get(m, {})}
    if not others:
        return None
    rival = min(others, key=lambda m: others[m])
    own, other = median_score(runs), others[rival]
    size = max(abs(known.get("objective", other)), known.get("unit", 1e-9))
    return Comparison(rival, own, other, (own - other) / size)


def against_rivals(found: Runs, known: References) -> list[str]:
    """On which problems a method is ahead of, or level with, the best tuned rival."""
    lines = []
    for method in (m for m in found if m not in RIVALS):
        level, losses, count, proved, left = 0, [], 0, 0, []
        for name, runs in found[method].items():
            if not CASES[name].feasible:
                continue
            if at_optimum(runs, known[name]):
                proved += 1
                continue
            beside = compared(found, name, runs, known[name])
            if beside is None:
                left.append(name)
                continue
            count += 1
            if beside.behind <= AHEAD:
                level += 1
            else:
                losses.append(f"{name} ({beside.behind:+.1%} against {beside.rival})")
        if count + proved:
            total, all_level = count + proved, level + proved
            lines.append(
                f"\n{method} against the best tuned rival: within {AHEAD:.0%} of the exact "
                f"optimum, so that no rival can be ahead by more, on {proved} problems; ahead or "
                f"within {AHEAD:.0%} on {level} of {count} others; together {all_level} of "
                f"{total} ({all_level / total:.0%}); behind: {', '.join(losses) or 'none'}; "
                f"not compared: {', '.join(left) or 'none'}"
            )
    return lines


def plot(records: Sequence[Record], names: Sequence[str], place: Path) -> Path:
    """Gap, price error and KKT residual of every method on every problem, as one picture."""
    from matplotlib.figure import Figure

    found, known = chosen(records, names), References()
    shown = [name for name in names if any(name in cases for cases in found.values())]
    figure = Figure(figsize=(15, 2 + 0.25 * len(shown)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    marks = "os^vDPX*<>"
    for k, (method, cases) in enumerate(found.items()):
        for name, runs in cases.items():
            y = shown.index(name) + 0.08 * (k - len(found) / 2)
            for run in runs:
                if "failed" in run:
                    continue
                fill = f"C{k}" if verdict(run) in ("kept", "said") else "none"
                style = {"marker": marks[k], "markersize": 5, "linestyle": "none"}
                style |= {"color": f"C{k}", "markerfacecolor": fill}
                numbers = (gap(run, known[name]), price_error(run, known[name]), run["kkt"])
                for axis, value, least in zip(axes, numbers, (1e-4, 1e-3, 1e-6), strict=True):
                    if value is not None:
                        axis.plot(min(max(value, least), 1e3), y, **style)
        axes[0].plot([], [], marker=marks[k], color=f"C{k}", linestyle="none", label=method)
    titles = ("objective above the reference", "error of prices", "KKT residual")
    for axis, title, bound in zip(axes, titles, (0.05, PRICE, None), strict=True):
        axis.set(xscale="log", title=title)
        axis.grid(alpha=0.3)
        if bound:
            axis.axvline(bound, color="black", linewidth=0.8)
    axes[0].set_yticks(range(len(shown)), shown)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    title = "hollow marks: a limit is broken"
    figure.legend(handles, labels, loc="outside lower center", ncols=9, title=title)
    figure.savefig(place, dpi=110)
    return place
