"""The command line: one file per command.

What commands share is in `main` (the program), `commands` (the table of commands), `options`
and `results` (printing).
"""
