"""From a command, which is not asynchronous, to its work, which is."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import typer


def wait_for(work: Coroutine[Any, Any, int | None]) -> int:
    """Do a command's asynchronous work; gives its exit status."""
    import asyncio  # 40 ms that --help can do without

    try:
        return asyncio.run(work) or 0
    except KeyboardInterrupt:
        raise typer.Abort from None
