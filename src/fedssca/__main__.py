"""`python -m fedssca` is the command `fedssca`."""

from fedssca.cli.main import program

program()
