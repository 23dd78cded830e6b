"""Driving a run of a test through the front door, and checking it from all sides when it has ended."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import romanesco
from romanesco import Budget, Config, Outcome
from romanesco._run import Run
from tests.runtime.checks import at_rest, check_run, nothing_left_behind
from tests.support import config_in


async def drive(folder: Path, model: Any, topology: Any, *, budget: Budget | None = None, **options: Any) -> Outcome:
    """Start a run with the id ``r`` and wait for its end."""
    config = options.pop("config", None) or config_in(folder)
    parts = {"model": model, "topology": topology, "budget": budget, "config": config, "run": "r", **options}
    return await _to_its_end(romanesco.open_run("say something", **parts), config)


async def go_on(folder: Path, model: Any, *topologies: Any, budget: Budget | None = None, **options: Any) -> Outcome:
    """Resume the run ``r`` and wait for its end."""
    config = options.pop("config", None) or config_in(folder)
    parts = {"model": model, "topologies": topologies, "budget": budget, "config": config, **options}
    return await _to_its_end(romanesco.open_resumed("r", **parts), config)


async def _to_its_end(opening: AbstractAsyncContextManager[Run], config: Config) -> Outcome:
    before = asyncio.all_tasks()
    async with opening as run:
        outcome = await run.outcome()
    at_rest(run._session)
    nothing_left_behind(before)
    await check_run(config, outcome)
    return outcome


async def again(folder: Path, *topologies: Any, **options: Any) -> Outcome:
    """Replay the run ``r``: no model is there to be asked."""
    return await romanesco.replay("r", topologies=topologies, config=config_in(folder), **options)


async def cut_off(folder: Path, model: Any, topology: Any, when: asyncio.Event, **options: Any) -> None:
    """Start the run ``r`` and let it die without a word when ``when`` is set, as a killed process does.

    The driving task is cancelled, so that nothing ends the run: its journal stops in the middle.
    """
    config = options.pop("config", None) or config_in(folder)
    async with romanesco.open_run(
        "say something", model=model, topology=topology, config=config, run="r", **options
    ) as run:
        await when.wait()
        run._task.cancel()
        await asyncio.wait([run._task])
