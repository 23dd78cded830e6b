"""Runs a command and turns whatever comes of it into one line and an exit status."""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
import sys
from collections.abc import Sequence
from typing import TextIO

import typer

from romanesco.errors import EXIT_CODES, RomanescoError, StopReason

BROKEN_PIPE = 141
"""Exit status when the reader of stdout went away, as the shell gives it for SIGPIPE."""

_LONGEST = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console that can't show a character shows a mark for it
    words, debug = split_debug(sys.argv[1:] if arguments is None else arguments)
    if not debug:
        # What the log tells beside an outcome's one line is the trace: without a handler Python writes it to stderr.
        logging.getLogger("romanesco").addHandler(logging.NullHandler())
    try:
        return _run(words, debug)
    except BrokenPipeError:
        return BROKEN_PIPE
    finally:
        for stream in (sys.stdout, sys.stderr):
            _let_go(stream)


def _let_go(stream: TextIO) -> None:
    """Forget what can't be written: tried again when the interpreter exits, it would give a status of its own."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_standard_streams() -> None:
    """Let a standard stream that the caller closed lead nowhere: the next file that is opened would get its number."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def split_debug(words: Sequence[str]) -> tuple[list[str], bool]:
    """Take ``--debug`` out, wherever before a ``--`` it stands."""
    end = words.index("--") if "--" in words else len(words)
    head = [word for word in words[:end] if word != "--debug"]
    return [*head, *words[end:]], len(head) < end


def _run(words: list[str], debug: bool) -> int:
    from romanesco.interfaces.cli._app import app

    try:
        status = app(words, prog_name="romanesco", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        raise BrokenPipeError from error  # typer exits by itself for this one thing only
    except KeyboardInterrupt:
        return fail(typer.Abort())
    except Exception as error:  # the outermost frame: every fault becomes one line and a status
        if _hung_up(error):
            raise BrokenPipeError from error
        if debug:
            import traceback

            traceback.print_exc()
        return fail(error)
    return status if isinstance(status, int) else 0


def _hung_up(error: Exception) -> bool:
    """Whether an error is that of writing to a terminal which was closed: its reader left, like that of a pipe."""
    if not isinstance(error, OSError) or error.errno != errno.EIO or error.filename is not None:
        return False
    return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def fail(error: BaseException) -> int:
    """Say in one line what went wrong; gives the exit status."""
    message, status = explain(error)
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in message).split())
    if len(line) > _LONGEST:
        line = f"{line[:_LONGEST]}..."
    try:
        print(f"error: {line}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody listens; the status still tells
    return status


def explain(error: BaseException) -> tuple[str, int]:
    """The message of an error, and its exit status."""
    if isinstance(error, RomanescoError):
        return str(error), error.exit_code
    if isinstance(error, typer.TyperException):
        command = getattr(getattr(error, "ctx", None), "command_path", "romanesco")
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        return f"{message}{stop} See: {command} --help", EXIT_CODES[StopReason.INPUT]
    if isinstance(error, typer.Abort):
        return "interrupted", EXIT_CODES[StopReason.INTERRUPTED]
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        where = error.filename or "the output"
        message = f"{where} can't be written: {error.strerror}. Make room; a finished run stays in its journal"
        return message, EXIT_CODES[StopReason.STORAGE]
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return explain(error.exceptions[0])
    kind = type(error).__name__
    return (
        f"unexpected {kind}: {error}. This is a fault of Romanesco; run it again with --debug and report the trace",
        EXIT_CODES[StopReason.INTERNAL],
    )
