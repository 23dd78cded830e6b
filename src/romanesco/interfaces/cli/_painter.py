"""Shows a run while it goes on: drawn in place on a terminal, line by line elsewhere, as JSON lines on request."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Protocol

from rich.console import RenderableType
from rich.live import Live

from romanesco.interfaces.cli._lines import tell
from romanesco.interfaces.cli._screen import Screen
from romanesco.interfaces.cli._tree import draw
from romanesco.interfaces.cli._view import View
from romanesco.runtime import RunEvent

FRAME = 0.125
"""Seconds between two pictures."""


class Painter(Protocol):
    """Shows one run. What it can't write any more it leaves: a closed terminal must not end a run."""

    def see(self, event: RunEvent, before: View) -> None:
        """Show an event; ``before`` is the run as it stood before it."""
        ...

    def note(self, text: str) -> None:
        """Show a message of the program's own."""
        ...

    async def start(self) -> None:
        """Begin."""
        ...

    async def finish(self) -> None:
        """Show the last state and leave the screen in order. May be called twice."""
        ...


class LivePainter:
    """Draws the tree in place, a few times a second however fast events come."""

    def __init__(self, screen: Screen, view: View, elapsed: Callable[[], float]) -> None:
        self._view = view
        self._elapsed = elapsed
        self._console = screen.err
        self._note = ""
        self._live: Live | None = None
        self._ticking: asyncio.Task[None] | None = None

    def see(self, event: RunEvent, before: View) -> None:
        """Drawn with the next frame."""

    def note(self, text: str) -> None:
        """Shown below the tree."""
        self._note = text

    async def start(self) -> None:
        """Begin to draw."""
        # No thread of the screen's own: it would read the view while the loop changes it.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            get_renderable=self._picture,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._ticking = asyncio.ensure_future(self._tick(self._live))

    async def finish(self) -> None:
        """Draw once more and give the cursor back."""
        live, ticking, self._live, self._ticking = self._live, self._ticking, None, None
        if ticking is not None:
            ticking.cancel()
            await asyncio.wait([ticking])
        if live is not None:
            try:
                live.refresh()
                live.stop()
            except OSError:
                return

    async def _tick(self, live: Live) -> None:
        try:
            while True:
                live.refresh()
                await asyncio.sleep(FRAME)
        except OSError:
            return

    def _picture(self) -> RenderableType:
        size = self._console.size
        return draw(self._view, elapsed=self._elapsed(), width=size.width, height=size.height, note=self._note)


class LinePainter:
    """Writes a line for each noteworthy event."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def see(self, event: RunEvent, before: View) -> None:
        """Write its line, if it has one."""
        line = tell(event, before)
        if line is not None:
            self._screen.say(line)

    def note(self, text: str) -> None:
        """Write it."""
        self._screen.say(text)

    async def start(self) -> None:
        """Nothing to do."""

    async def finish(self) -> None:
        """Nothing to do."""


class JsonLinesPainter:
    """Writes every journaled event as a JSON line on stdout."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._closed = False

    def see(self, event: RunEvent, before: View) -> None:
        """Write it, unless it is a piece of text that is not journaled, or the reader left."""
        if event.kind == "token" or self._closed:
            return
        data = {"seq": event.seq, "kind": event.kind, "node": event.node, "key": event.key, "data": event.data}
        try:
            write_line(data)
        except OSError:
            self._closed = True

    def note(self, text: str) -> None:
        """Write it beside the lines."""
        self._screen.say(text)

    async def start(self) -> None:
        """Nothing to do."""

    async def finish(self) -> None:
        """Nothing to do."""


def write_line(data: object) -> None:
    """Write one JSON line on stdout, ASCII only, so that any encoding carries it."""
    sys.stdout.write(json.dumps(data, separators=(",", ":")) + "\n")
    sys.stdout.flush()
