"""The command line."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status. See ``docs/exit-codes.md``.

    Args:
        arguments: The words after the program's name; None takes the process's.
    """
    try:
        from romanesco.interfaces.cli._main import main as run

        return run(arguments)
    except KeyboardInterrupt:
        return 130  # before there was anything to end in good order
