"""Engine CPU per model call, and how it grows along a chain."""

from __future__ import annotations

import time
from typing import Any

import romanesco
from benchmarks._probe import Benchmark, Metric, Probe
from benchmarks._work import GOAL, REPLY, budget_for, check_journal, check_outcome, config_in, run_members
from romanesco.testing import Chain, MemoryStore

MICRO = 1e6


async def members(probe: Probe) -> None:
    """100 concurrent members; journal in a file and in memory take turns."""
    model = romanesco.ScriptedModel(REPLY)
    config = config_in(probe.folder, model.name)
    many, rounds = probe.size(100, 4), probe.size(20, 2)
    calls = many * rounds
    await run_members(probe, model, many, 2, config=config)
    for number in range(probe.size(4, 1)):
        model.calls.clear()
        run = f"measured-{number}"
        loop, process = time.thread_time(), time.process_time()
        outcome = await run_members(probe, model, many, rounds, config=config, run=run)
        loop, process = time.thread_time() - loop, time.process_time() - process
        probe.add("engine", process / calls * MICRO)
        probe.add("engine_loop", loop / calls * MICRO)
        probe.expect("requests", len(model.calls), calls)
        probe.expect("input tokens", outcome.spend.tokens_in, _tokens_in(model))
        in_memory: Any = MemoryStore()
        memory = time.process_time()
        await run_members(probe, model, many, rounds, config=config, run=run, store=in_memory)
        memory = time.process_time() - memory
        probe.add("engine_in_memory", memory / calls * MICRO)
        probe.add("durable_ratio", process / memory)
    await check_journal(probe, config, "measured-0", calls)


def _tokens_in(model: romanesco.ScriptedModel) -> int:
    return sum(-(-len(request.messages[0].content) // 4) for request in model.requests)


async def chain(probe: Probe) -> None:
    """Chains of growing length, each call reading the answer of the one before."""
    model = romanesco.ScriptedModel(REPLY)
    config = config_in(probe.folder, model.name)
    lengths = (probe.size(100, 2), probe.size(1000, 20))

    async def cpu_of(length: int) -> float:
        started = time.process_time()
        outcome = await romanesco.run(
            GOAL,
            model=model,
            topology=Chain(),
            budget=budget_for(length),
            params={"length": length, "max_output_tokens": 16},
            config=config,
        )
        spent = time.process_time() - started
        check_outcome(probe, outcome, length, REPLY)
        return spent

    await cpu_of(lengths[0])
    for _ in range(probe.size(2, 1)):
        short = sorted([await cpu_of(lengths[0]) for _ in range(probe.size(3, 1))])
        long = await cpu_of(lengths[1])
        middle = short[len(short) // 2]
        probe.add("chain_slope", long / middle)
        probe.add("chain_call", (long - middle) / (lengths[1] - lengths[0]) * MICRO)


ENGINE = Benchmark(
    "engine",
    "CPU of the whole process per model call: 100 members at once, 20 rounds; plan, open and end of the run "
    "included; scripted model; bill, limits and prices on; journal in a file (WAL, NORMAL)",
    (
        Metric("engine", "engine CPU per call, all accounting on", "us", 150.0),
        Metric("engine_loop", "  of this the event loop's thread", "us"),
        Metric("engine_in_memory", "  the same, journal in memory", "us"),
        Metric("durable_ratio", "  durable / in memory", "x", 1.5),
    ),
    members,
)

CHAIN = Benchmark(
    "chain",
    "process CPU of a chain of 1,000 calls over that of 100; durable, an offer after each call",
    (
        Metric("chain_slope", "chain CPU(1000) / CPU(100)", "x", 10.0),
        Metric("chain_call", "  CPU per further call and its offer", "us"),
    ),
    chain,
)
