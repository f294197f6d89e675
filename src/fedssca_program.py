"""The program `fedssca`: Ctrl-C while it is being loaded ends it at once, without a traceback.

It stands beside the package because importing anything from the package imports JAX, which takes a
second. Nothing is saved before that is done, so there is nothing to lose by leaving at once.
"""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Load the command line and run it."""
    before = signal.signal(signal.SIGINT, _leave)
    from fedssca.cli.main import program

    signal.signal(signal.SIGINT, before)
    program()


def _leave(*_: Any) -> NoReturn:
    os.write(2, b"stopped before anything was done\n")
    os._exit(130)


if __name__ == "__main__":
    main()
