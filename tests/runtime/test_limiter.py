"""The limiter: slots are neither lost nor made up, whatever is cancelled, and a 429 slows everybody down."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.runtime._limiter import Limiter


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), most=st.integers(1, 5), callers=st.integers(1, 20))
def test_no_interleaving_loses_a_slot(seed: int, most: int, callers: int) -> None:
    chance = random.Random(seed)
    clock = [0.0]
    limiter = Limiter(most, lambda: clock[0])
    highest = 0

    async def caller() -> None:
        nonlocal highest
        await limiter.acquire()
        highest = max(highest, limiter.in_flight)
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                limiter.limited(0.0)
        finally:
            limiter.release()
        if chance.random() < 0.7:
            limiter.succeeded()

    async def main() -> None:
        tasks = [asyncio.ensure_future(caller()) for _ in range(callers)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            clock[0] += 0.05
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            limiter._wake()
        assert limiter.in_flight == 0 and not limiter._waiting
        assert all(task.cancelled() or task.exception() is None for task in tasks)

    asyncio.run(main())
    assert highest <= most


async def test_a_429_halts_everybody_for_as_long_as_the_server_asks() -> None:
    clock = [0.0]
    limiter = Limiter(4, lambda: clock[0])
    limiter.limited(0.2)
    started = asyncio.get_running_loop().time()
    waiting = asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    clock[0] = 0.3
    await waiting
    assert asyncio.get_running_loop().time() - started >= 0.1


async def test_a_cancelled_caller_passes_its_slot_on() -> None:
    limiter = Limiter(1, lambda: 0.0)
    await limiter.acquire()
    first, second = asyncio.ensure_future(limiter.acquire()), asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release()  # hands the slot to the first, which is cancelled before it runs
    first.cancel()
    await second
    assert limiter.in_flight == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_release_in_the_moment_of_a_cancellation_changes_nothing() -> None:
    limiter = Limiter(1, lambda: 0.0)
    await limiter.acquire()
    cancelled, next_ = asyncio.ensure_future(limiter.acquire()), asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)
    cancelled.cancel()
    limiter.release()  # finds the cancelled one at the head of the queue, before its task has run
    await next_
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert limiter.in_flight == 1


@pytest.mark.parametrize("pauses", [1, 5, 20])
def test_a_burst_of_429s_lowers_the_limit_once(pauses: int) -> None:
    clock = [10.0]
    limiter = Limiter(10, lambda: clock[0])
    for _ in range(pauses):
        limiter.limited(0.0)
    assert limiter.limit == 7
    clock[0] += 2.0
    limiter.limited(0.0)
    assert limiter.limit == 4
    for _ in range(200):
        clock[0] += 100.0
        limiter._in_flight = limiter.limit
        limiter.succeeded()
    assert limiter.limit == 10


async def test_after_many_429s_the_limit_rises_again_call_by_call() -> None:
    clock = [0.0]
    limiter = Limiter(8, lambda: clock[0])
    for _ in range(30):
        limiter.limited(0.0)
        clock[0] += 5.0
    limits = []
    for _ in range(3):
        await limiter.acquire()
        limiter.succeeded()
        limiter.release()
        limits.append(limiter.limit)
        clock[0] += 5.0
    assert limits == [2, 2, 2], "by one, and no further while one call at a time is all there is"
