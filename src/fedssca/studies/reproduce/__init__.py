"""The paper's figures, drawn again, and its statements, judged: what `fedssca reproduce` does.

    experiment.py   a panel as one TOML: curves (each a run config) and statements
    plan.py         panels -> runs: seeds, evaluated rounds, what each run costs
    runs.py         configs in, numbers out: the only place that trains (identity.py: one panel's)
    cache.py        finished runs on disk, each in a file of its own, tied to the code's version
    workers.py      processes that work the plan off
    measure.py      runs -> means and spreads, and the lines of a figure
    verdict.py      statements against what was measured
    figure.py, pages.py   what a reader sees: PNG, SVG, CSV, Markdown, JSON
    session.py      all of the above in order; command.py puts it on the command line

Reading experiment.py, plan.py, runs.py, verdict.py and session.py is enough to know it all.
"""
