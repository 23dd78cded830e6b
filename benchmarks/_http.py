"""Calls over HTTP against the fake server, which runs in a process of its own."""

from __future__ import annotations

import itertools
import time
from typing import Any

import romanesco
from benchmarks._probe import Benchmark, Metric, Probe
from benchmarks._work import OUTPUT, REPLY, BilledMembers, ask_alone, config_in, run_members
from romanesco.models import ChatModel, OpenAICompatible
from romanesco.runtime import Scope
from romanesco.task import Outcome, Task
from romanesco.testing import FakeServerProcess

MICRO = 1e6
LATENCY = 0.1


def _client(url: str, *, stream: bool) -> ChatModel:
    return OpenAICompatible(name="custom:bench", model="fake", base_url=url, stream=stream)


def _scenario(**fault: Any) -> dict[str, Any]:
    return {"default": {"text": REPLY, "fault": fault}}


async def calls(probe: Probe) -> None:
    """CPU of this process per call, with and without the engine, streamed and not."""
    members, rounds = probe.size(100, 4), probe.size(6, 1)
    per = members * rounds
    config = config_in(probe.folder, "custom:bench")
    for stream, name in ((False, "plain"), (True, "streamed")):
        folder = probe.folder / name
        folder.mkdir()
        with FakeServerProcess(folder, _scenario()) as server:
            asked = 0
            for number in range(1 + probe.size(3, 1)):
                # A run closes its adapter, so both pay for their own connections.
                started = time.process_time()
                await run_members(probe, _client(server.url, stream=stream), members, rounds, config=config)
                engine = time.process_time() - started
                started = time.process_time()
                client = _client(server.url, stream=stream)
                try:
                    await ask_alone(probe, client, members, rounds)
                finally:
                    await client.close()
                alone = time.process_time() - started
                asked += 2 * per
                if number > 0:
                    probe.add(f"http_{name}", engine / per * MICRO)
                    probe.add(f"http_{name}_client", alone / per * MICRO)
            ledger = server.ledger
            probe.expect("requests at the server", len(ledger.finished()), asked)
            probe.expect("requests of any kind", len(ledger.requests), asked)
            probe.expect("tokens at the server", ledger.tokens_out, asked * OUTPUT)


class Timed(BilledMembers):
    """Members whose rounds are timed: a round ends when its answers are offered."""

    def __init__(self) -> None:
        self.rounds: list[float] = []

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Take the time at each end of a round."""
        marks = [time.perf_counter()]
        outcome = await super().solve(task, _Watched(scope, marks))
        self.rounds = [end - start for start, end in itertools.pairwise(marks)]
        return outcome


class _Watched:
    """A scope that notes when something was offered."""

    def __init__(self, scope: Scope, marks: list[float]) -> None:
        self._scope = scope
        self._marks = marks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scope, name)

    async def offer(self, answer: str, *, key: str, note: str = "", deliberation: Any = None) -> None:
        """Offer, then note the time: the round ends when its answers are durable."""
        await self._scope.offer(answer, key=key, note=note, deliberation=deliberation)
        self._marks.append(time.perf_counter())


async def fan_out(probe: Probe) -> None:
    """50 members at once whose replies take 100 ms: in this process, over HTTP, and over HTTP without the engine."""
    members, rounds = probe.size(50, 4), probe.size(6, 2)
    latency = LATENCY if not probe.smoke else 0.01
    scripted = romanesco.ScriptedModel(REPLY, latency=latency)
    topology = await _timed(probe, scripted, members, rounds)
    probe.add("fan_out", *(seconds / latency for seconds in topology.rounds[1:]))
    with FakeServerProcess(probe.folder, _scenario(latency=latency)) as server:
        topology = await _timed(probe, _client(server.url, stream=False), members, rounds)
        probe.add("fan_out_http", *(seconds / latency for seconds in topology.rounds[1:]))
        probe.add("fan_out_first", topology.rounds[0] / latency)
        client = _client(server.url, stream=False)
        try:
            for number in range(rounds):
                started = time.perf_counter()
                await ask_alone(probe, client, members, 1)
                if number > 0:
                    probe.add("fan_out_client", (time.perf_counter() - started) / latency)
        finally:
            await client.close()
        ledger = server.ledger
        probe.expect("requests at the server", len(ledger.finished()), 2 * members * rounds)
        probe.expect("requests of any kind", len(ledger.requests), 2 * members * rounds)
        probe.expect("more in flight than members", ledger.max_in_flight > members, False)


async def _timed(probe: Probe, model: ChatModel, members: int, rounds: int) -> Timed:
    topology = Timed()
    config = config_in(probe.folder, model.name)
    await run_members(probe, model, members, rounds, topology=topology, config=config)
    probe.expect("rounds", len(topology.rounds), rounds)
    return topology


HTTP = Benchmark(
    "http",
    "CPU of the client process per call over HTTP: 100 at once, 6 rounds, 16 tokens of output (16 pieces when "
    "streamed), new connections included; the server is another process on the same machine",
    (
        Metric("http_plain", "call over HTTP, engine and client, not streamed", "us"),
        Metric("http_plain_client", "  the client alone", "us"),
        Metric("http_streamed", "call over HTTP, engine and client, streamed", "us"),
        Metric("http_streamed_client", "  the client alone", "us"),
    ),
    calls,
    repeats=3,
)

FAN_OUT = Benchmark(
    "fan-out",
    f"50 calls at once, {LATENCY * 1e3:.0f} ms each; from the first call to the durable join, over that time; the "
    "first round opens the connections and is shown apart; over HTTP the fake server's own work is part of it",
    (
        Metric("fan_out", "fan-out of 50: makespan / critical path", "x", 1.07),
        Metric("fan_out_http", "  over HTTP", "x"),
        Metric("fan_out_first", "  over HTTP, first round", "x"),
        Metric("fan_out_client", "  over HTTP, the client alone", "x"),
    ),
    fan_out,
    repeats=3,
)
