"""A thousand members answer in the same instant; ``kill -9`` half a second later; nothing finished is asked again."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco.testing import FakeReply, FakeServer, Fault, Scenario
from tests.runtime.checks import check_run, finished_keys, kinds, open_keys, prompt_of
from tests.runtime.processes import Forker
from tests.runtime.steer import deserted, until
from tests.support import PATIENCE, config_in, events_of

MEMBERS = 1000


@pytest.fixture
def many_sockets() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def burst(jobs: Forker, folder: Path, later: float) -> tuple[Any, ...]:
    """Kill a run ``later`` seconds after its thousand requests were answered at once, and resume it.

    On a slow machine it is killed later: once an answer is in its journal.
    """
    answered = asyncio.Event()
    dead = False

    def answer(body: dict[str, Any], number: int) -> FakeReply:
        if number + 1 == MEMBERS:
            answered.set()
        # The second round is not answered before the kill, which keeps the run from ending.
        return FakeReply(fault=Fault(stall=float("inf") if number >= MEMBERS and not dead else 0.0))

    async def something_is_finished() -> bool:
        return bool(finished_keys(await events_of(config_in(folder), "r")))

    async with FakeServer(answer, scenario=Scenario(barrier=MEMBERS)) as server:
        child = await jobs.start(
            "run",
            folder,
            topology="members",
            params={"members": MEMBERS, "rounds": 3},
            config={"concurrency": MEMBERS, "deadlines__connect": PATIENCE},
            url=server.url,
            connections=MEMBERS,
        )
        await answered.wait()
        await asyncio.sleep(later)
        await until(something_is_finished)
        child.kill()
        assert await child.outcome() is None
        dead = True
        await deserted(server)
        at_kill = await events_of(config_in(folder), "r")
        outcome = await jobs.outcome("resume", folder)
    return at_kill, outcome, server.ledger


@pytest.mark.usefixtures("many_sockets")
async def test_br_043_a_burst_of_1000_answers_is_not_paid_for_twice(jobs: Forker, tmp_path: Path) -> None:
    at_kill, outcome, ledger = await burst(jobs, tmp_path, 0.5)
    assert len(finished_keys(at_kill)) > 0
    in_flight = open_keys(at_kill)
    events = await check_run(config_in(tmp_path), outcome, ledger)
    assert outcome.status is romanesco.Status.COMPLETED
    started = kinds(events, "call.started")
    repeatable = {prompt_of(data) for _, _, node, key, data in started if (node, key) in in_flight}
    asked = Counter(entry.prompt for entry in ledger.requests)
    assert len(asked) == 3 * MEMBERS
    assert {prompt for prompt, count in asked.items() if count > 1} <= repeatable
    assert max(asked.values()) <= 2
    assert {prompt for prompt, _ in ledger.duplicates()} <= repeatable
    assert outcome.spend.in_doubt == len(in_flight)
