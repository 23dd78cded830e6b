"""Where a command writes: results on stdout, everything else on stderr; no escape codes without a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.text import Text

from romanesco.interfaces.cli._grid import Labelled, wrapped
from romanesco.interfaces.cli._text import clean, safe_json

_PIPE_WIDTH = 120


class _Console(Console):
    """A console that lets a broken pipe be seen by whoever writes, instead of ending the process."""

    def on_broken_pipe(self) -> None:
        """Raise what happened."""
        raise BrokenPipeError


def make_console(stream: IO[str]) -> Console:
    """A console for a stream: as wide as its terminal, or wide enough for tables where there is none."""
    wide = None if stream.isatty() or os.environ.get("COLUMNS") else _PIPE_WIDTH
    console = _Console(file=stream, width=wide, highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal and wide is None and not os.environ.get("COLUMNS"):
        with contextlib.suppress(OSError):  # rich takes every dumb terminal for one of 80 columns
            columns, lines = os.get_terminal_size(stream.fileno())
            if columns and lines:
                console.size = ConsoleDimensions(columns, lines)
    return console


@dataclass(slots=True)
class Screen:
    """What one command writes to.

    Attributes:
        json: The result is one JSON document.
        quiet: Only the result.
        out: For the result.
        err: For progress and messages.
        deaf: Nobody reads the messages any more.
    """

    json: bool = False
    quiet: bool = False
    out: Console = field(default_factory=lambda: make_console(sys.stdout))
    err: Console = field(default_factory=lambda: make_console(sys.stderr))
    deaf: bool = False

    @property
    def live(self) -> bool:
        """Whether progress can be drawn in place."""
        return sys.stderr.isatty() and not self.err.is_dumb_terminal and not self.quiet

    def show(self, renderable: RenderableType) -> None:
        """Write a part of the result."""
        _print(self.out, renderable)

    def text(self, text: str) -> None:
        """Write foreign text as it is, but for what could steer a terminal."""
        self.out.print(Text(clean(text)), soft_wrap=True)

    def say(self, message: RenderableType) -> None:
        """Write a message beside the result, unless only the result is wanted. A closed stderr is no reason to stop."""
        if self.quiet or self.deaf:
            return
        try:
            _print(self.err, message)
        except OSError:
            self.deaf = True

    def result(self, data: Callable[[], Any], render: Callable[[], list[RenderableType]]) -> None:
        """Write the result: as JSON if that is wanted, else as text."""
        if self.json:
            self.document(data())
            return
        for renderable in render():
            self.show(renderable)

    def document(self, data: Any) -> None:
        """Write one JSON document, in a form that the stream's encoding can hold without loss and no terminal obeys."""
        text = safe_json(json.dumps(data, ensure_ascii=False, indent=2))
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:
            text = json.dumps(data, ensure_ascii=True, indent=2)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _print(console: Console, renderable: RenderableType) -> None:
    """Lines are wrapped between words on a terminal, and nowhere else."""
    if not console.is_terminal:
        console.print(renderable, soft_wrap=isinstance(renderable, str | Text | Labelled))
        return
    text = Text(renderable) if isinstance(renderable, str) else renderable
    for part in wrapped(text, console.width) if isinstance(text, Text) else (text,):
        console.print(part, crop=False)


def plain(*parts: str | tuple[str, str]) -> Text:
    """Text from parts, each a text or a text with its style; foreign parts are cleaned."""
    return Text.assemble(*((clean(part), "") if isinstance(part, str) else (clean(part[0]), part[1]) for part in parts))
