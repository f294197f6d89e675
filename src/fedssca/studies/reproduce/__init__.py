"""`fedssca reproduce`: the paper's figures from new runs, and verdicts on its statements.

experiment  a panel as one TOML file: curves (each is a run configuration) and statements
plan        the runs of the panels: seeds, evaluated rounds, estimated cost
runs        carries out the runs; the only module here that trains (with identity, for one panel)
cache       finished runs on disk, one file per run, with the fingerprint of the code
workers     the processes that carry out the plan
measure     means and standard deviations of the runs, and the lines of a figure
verdict     checks the statements against the measurements
figure      draws a panel as PNG and SVG
pages       writes the CSV, Markdown and JSON files
tuned       compares the methods again, all tuned with the same budget
session     all of the above in order

To know how it works, read experiment, plan, runs, verdict and session.
"""
