"""The program `fedssca`: start, run one command, turn errors into one line and an exit code.

This module imports nothing large, so that Ctrl-C is handled from the first moment on.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from fedssca.errors import UserError, save_error
from fedssca.system import keep_compiled_programs, starting_up

__all__ = ["main", "program"]


def main() -> NoReturn:
    """Run the command in `sys.argv`; exit code 2 for bad input, 130 after Ctrl-C."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    keep_compiled_programs()
    message = key = ""
    try:
        with starting_up():
            from fedssca.cli.commands import root_command

            command = root_command()
        code = command(prog_name="fedssca", standalone_mode=False) or 0
    except UserError as error:
        code, message, key = 2, str(error), error.key
    except MemoryError as error:
        code, message = 2, f"not enough memory ({error}): use a smaller model or batch"
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # of typer: unknown options, missing arguments
        if not hasattr(error, "format_message"):
            save_error(f"{type(error).__name__}: {error}")
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "fedssca")
        text = error.format_message()  # empty if the help was shown instead
        code, message = 2, f"{text} (see {path} --help)" if text else ""
    if message:
        line = " ".join(message.splitlines())
        save_error(line, key)
        print(f"fedssca: {line}", file=sys.stderr)
    sys.exit(code)


def program() -> NoReturn:
    """Call `main`, and after Ctrl-C exit without waiting for threads that still compile."""
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        if end.code == 130:
            os._exit(130)
        raise


if __name__ == "__main__":
    program()
