"""One suite for all engines, and determinism: the order in which steps finish changes nothing that is journaled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from romanesco import Outcome, Scope, Status, StopReason, Task
from romanesco.errors import RomanescoError
from romanesco.runtime import Engine, LocalEngine
from romanesco.testing import Chain, Members, MemoryEngine, Tree, engine_conformance
from romanesco.testing._engine_conformance import trace_of
from tests.runtime.topologies import Plain, done, say


@pytest.mark.parametrize("make", [LocalEngine, MemoryEngine, lambda: MemoryEngine(7, 50)])
async def test_engine(make: Callable[[], Engine]) -> None:
    await engine_conformance(make)


class Twice(LocalEngine):
    """Does every step's work twice, as an engine that delivers at least once might."""

    async def step(self, name: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        await perform()
        return await perform()


class OneByOne(LocalEngine):
    """Lets nothing run at the same time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def step(self, name: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        async with self._lock:
            return await perform()


class Deserter(LocalEngine):
    """Does not wait for what it cancels."""

    async def child(self, topology: str, payload: Any, start: Callable[[str, Any], Awaitable[Any]]) -> Any:
        self.task = asyncio.ensure_future(start(topology, payload))
        return await asyncio.shield(self.task)


class Swallower(LocalEngine):
    """Gives no errors back."""

    async def step(self, name: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await perform()
        except LookupError:
            return None


@pytest.mark.parametrize("make", [Twice, OneByOne, Deserter, Swallower])
async def test_the_suite_finds_engines_that_break_the_contract(
    make: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romanesco.testing._engine_conformance._PATIENCE", 0.5)
    engine = make()
    with pytest.raises((AssertionError, TimeoutError)):
        await engine_conformance(lambda: engine)
    if isinstance(engine, Deserter):
        engine.task.cancel()
        await asyncio.wait([engine.task])


@pytest.mark.parametrize(
    ("topology", "params"),
    [(Members(), {"rounds": 2}), (Tree(), {"depth": 2}), (Chain(), {})],
    ids=lambda x: str(x)[:9],
)
async def test_seeds_finish_in_other_orders_and_leave_the_same(topology: Any, params: dict[str, Any]) -> None:
    expected, known = await trace_of(LocalEngine(), topology, params)
    orders = set()
    for seed in range(21):
        engine = MemoryEngine(seed)
        trace, outcome = await trace_of(engine, topology, params)
        assert trace == expected
        assert (outcome.status, outcome.answer, outcome.spend.tokens_in) == (
            known.status,
            known.answer,
            known.spend.tokens_in,
        )
        orders.add(tuple(engine.order))
    assert len(orders) > 10 or isinstance(topology, Chain)


@pytest.mark.parametrize(
    "smuggled", [threading.Lock(), lambda: 1, object(), {1, 2}], ids=["lock", "closure", "object", "set"]
)
@pytest.mark.parametrize("engine", [LocalEngine(), MemoryEngine()], ids=["local", "memory"])
async def test_br_058_a_live_object_does_not_cross_a_spawn(engine: Engine, smuggled: object) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node == "/":
            child = await scope.spawn("plain", Task("child", params={"deep": {"in": [smuggled]}}), key="child")
            return done(child.answer, child.status, note=child.note)
        return done(str(type(task.params["deep"]["in"][0])))

    _, outcome = await trace_of(engine, Plain(solve), {})
    assert outcome.status is Status.FAILED and outcome.reason is StopReason.INTERNAL, outcome
    assert "$.deep.in[0]" in outcome.note


async def test_br_056_a_record_that_is_not_json_names_the_place() -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        await say(scope, "hello", "ask")
        await scope.record("plain.noted", {"deep": {"in": [1, threading.Lock()]}}, key="note")
        return done()

    _, outcome = await trace_of(LocalEngine(), Plain(solve), {})
    assert outcome.status is Status.FAILED and outcome.reason is StopReason.INTERNAL
    assert "deep" in outcome.note and "lock" in outcome.note.lower()


def test_errors_cross_a_process_boundary() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(RomanescoError("what", value=1, limit=2, advice="do")))
    assert str(error) == str(RomanescoError("what", value=1, limit=2, advice="do"))
