"""What every engine must do, as one function to call from a test."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from romanesco.models import ModelPool, ScriptedModel
from romanesco.runtime import Engine, LocalEngine, Parts, RunSpec, Topologies, Topology, read_events, start
from romanesco.task import Outcome, Task
from romanesco.testing._embedder import NgramEmbedder
from romanesco.testing._store import MemoryStore
from romanesco.testing._topologies import Chain, Members, Tree

_PAYLOAD = {"path": "/a", "task": {"goal": "ä 漢 \U0001f966", "params": {"n": 1, "x": [None, True, 0.5, {"y": []}]}}}
_CROWD = 8
_PATIENCE = 120.0

Trace = Counter[tuple[str, str, str, str]]
"""How often each (kind, node, key, fingerprint) stands in a journal."""


async def engine_conformance(make: Callable[[], Engine]) -> None:
    """Check an engine against the contract of ``romanesco.runtime.Engine``.

    Checked: a child gets its topology's name and its payload as JSON, and its outcome comes back; a step's work is
    done once and its result given; errors come back as they are; children and steps of one parent run at the same
    time; a cancelled child or step is cancelled, waited for, and leaves no task behind; and whole runs leave the
    same journal, whatever the order in which steps finish, as under the engine that ships.

    Args:
        make: Makes a new engine.

    Raises:
        AssertionError: It breaks the contract; the message says where.
    """
    async with asyncio.timeout(_PATIENCE):
        await _passes_on(make())
        await _gives_errors_back(make())
        await _is_concurrent(make())
        await _cancels(make())
        for topology, params in ((Members(), {"rounds": 2}), (Chain(), {}), (Tree(), {"depth": 2})):
            trace, outcome = await trace_of(make(), topology, params)
            expected, known = await trace_of(LocalEngine(), topology, params)
            _require(trace == expected, f"{topology.name}: another journal than under LocalEngine")
            _require(
                (outcome.status, outcome.answer) == (known.status, known.answer), f"{topology.name}: another outcome"
            )


async def trace_of(engine: Engine, topology: Topology, params: dict[str, Any]) -> tuple[Trace, Outcome]:
    """What a run under an engine leaves in its journal, its order aside, and how it ends.

    Args:
        engine: Drives it.
        topology: Runs with a scripted model that answers every prompt with a text of its own.
        params: The topology's parameters.
    """
    pool = ModelPool({})
    pool.add(ScriptedModel(lambda request: f"<{request.messages[-1].content}>"))
    store = MemoryStore()
    parts = Parts(store, pool, NgramEmbedder(), Topologies([topology]), engine=engine)
    spec = RunSpec("r", Task("a goal", params=params), topology.name, {"default": "scripted:test"}, concurrency=64)
    outcome = await (await start(spec, parts)).drive()
    events = await read_events(store, "r")
    return Counter((kind, node, key, str(data.get("fingerprint", ""))) for _, kind, node, key, data in events), outcome


async def _passes_on(engine: Engine) -> None:
    got: list[tuple[str, Any]] = []

    async def start_child(name: str, payload: Any) -> Any:
        got.append((name, payload))
        return {"status": "completed", "payload": payload}

    outcome = await engine.child("tree", _PAYLOAD, start_child)
    _require(got == [("tree", _PAYLOAD)], f"the child was started with {got}")
    _require(outcome == {"status": "completed", "payload": _PAYLOAD}, f"the outcome came back as {outcome}")
    done: list[int] = []

    async def perform() -> str:
        done.append(1)
        return "result"

    _require(await engine.step("a/step", perform) == "result", "a step's result was changed")
    _require(len(done) == 1, f"a step's work was done {len(done)} times")


async def _gives_errors_back(engine: Engine) -> None:
    async def fail(*_: Any) -> Any:
        raise LookupError("as it is")

    for work in (engine.child("tree", _PAYLOAD, fail), engine.step("a/step", fail)):
        try:
            await work
        except LookupError as error:
            _require(str(error) == "as it is", f"the error was changed to {error}")
        else:
            raise AssertionError("an error did not come back")


async def _is_concurrent(engine: Engine) -> None:
    barrier = asyncio.Barrier(2 * _CROWD)

    async def meet(*_: Any) -> None:
        await barrier.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(_CROWD):
            group.create_task(engine.child("tree", {"number": number}, meet))
            group.create_task(engine.step(f"step/{number}", meet))


async def _cancels(engine: Engine) -> None:
    for kind in ("child", "step"):
        before = asyncio.all_tasks()
        begun, ended = asyncio.Event(), asyncio.Event()

        async def hang(*_: Any, begun: asyncio.Event = begun, ended: asyncio.Event = ended) -> None:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()

        work: Awaitable[Any] = engine.child("tree", _PAYLOAD, hang) if kind == "child" else engine.step("a/step", hang)
        task = asyncio.ensure_future(work)
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        _require(task.cancelled(), f"a cancelled {kind} did not end as cancelled")
        _require(ended.is_set(), f"a cancelled {kind} was not waited for")
        _require(asyncio.all_tasks() <= before, f"a cancelled {kind} left a task behind")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
