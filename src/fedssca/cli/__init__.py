"""The command line: one file per command, and what commands share (options, progress, results)."""
