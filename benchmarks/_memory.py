"""Memory of a member that waits inside its call, and the journal's size per call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import romanesco
from benchmarks._probe import Benchmark, Metric, Probe
from benchmarks._work import REPLY, check_journal, config_in, run_members

KIB = 1024
STATM = Path("/proc/self/statm")


class Meeting:
    """A model's answer that is held back until all members wait for it; then the memory is read."""

    def __init__(self, members: int, read: Callable[[], float]) -> None:
        self._missing = members
        self._read = read
        self._go = asyncio.Event()
        self.bytes = 0.0

    async def __call__(self, _request: object) -> str:
        """Wait for the others."""
        self._missing -= 1
        if self._missing == 0:
            # The members are all in their calls; what the journal has in hand may become durable first.
            await asyncio.sleep(0.2)
            gc.collect()
            self.bytes = self._read()
            self._go.set()
        await self._go.wait()
        return REPLY


async def _held(probe: Probe, members: int, read: Callable[[], float]) -> float:
    """Bytes of the process while so many members wait."""
    meeting = Meeting(members, read)
    model = romanesco.ScriptedModel(meeting)
    config = config_in(probe.folder, model.name)
    await run_members(probe, model, members, 1, config=config)
    probe.expect("waiting members", model.max_in_flight, members)
    return meeting.bytes


async def _slope(probe: Probe, key: str, read: Callable[[], float]) -> None:
    few, many = probe.size(1_000, 10), probe.size(11_000, 60)
    await _held(probe, 10, read)
    low = await _held(probe, few, read)
    gc.collect()
    high = await _held(probe, many, read)
    probe.add(key, (high - low) / (many - few) / KIB)


def _traced() -> float:
    return float(tracemalloc.get_traced_memory()[0])


def resident() -> float:
    """Resident memory of this process in bytes; where the system does not say, the most there ever was."""
    if STATM.exists():
        return float(STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    unit = 1 if sys.platform == "darwin" else KIB
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


async def traced(probe: Probe) -> None:
    """As Python counts it."""
    tracemalloc.start()
    try:
        await _slope(probe, "idle_traced", _traced)
    finally:
        tracemalloc.stop()


async def rss(probe: Probe) -> None:
    """As the system counts it, without tracing."""
    await _slope(probe, "idle_rss", resident)


async def journal(probe: Probe) -> None:
    """How the journal's file grows with the number of calls."""
    model = romanesco.ScriptedModel(REPLY)
    config = config_in(probe.folder, model.name)
    members, rounds = probe.size(100, 4), probe.size(20, 20)
    await run_members(probe, model, members, 1, config=config)
    before = _stored(config.home())
    await run_members(probe, model, members, rounds, config=config, run="measured")
    calls = members * rounds
    probe.add("journal_bytes", (_stored(config.home()) - before) / calls)
    await check_journal(probe, config, "measured", calls)


def _stored(home: Path) -> int:
    size = 0
    for file in home.glob("journal.db*"):
        with contextlib.suppress(FileNotFoundError):  # SQLite removes its other files on close
            size += file.stat().st_size
    return size


TRACED = Benchmark(
    "memory",
    "slope from 1,000 to 11,000 members that wait inside a call (budget reserved, call journaled), by tracemalloc; "
    "the scripted model's record of the request included",
    (Metric("idle_traced", "memory per idle member, tracemalloc", "KiB", 10.0),),
    traced,
    repeats=2,
)

RSS = Benchmark(
    "memory-rss",
    "the same slope by resident memory, in a process without tracing",
    (Metric("idle_rss", "memory per idle member, RSS", "KiB", 10.0),),
    rss,
    repeats=3,
)

JOURNAL = Benchmark(
    "journal",
    "growth of the journal's file per call of 16 tokens each way, two events a call",
    (Metric("journal_bytes", "journal per call", "bytes"),),
    journal,
    repeats=2,
)
