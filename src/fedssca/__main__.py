"""`python -m fedssca` is the command `fedssca`."""

from fedssca.cli import program

program()
