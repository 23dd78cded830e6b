"""What every topology must do, as one function to call from a test.

A topology is run through the real runtime with a scripted model, and the journal of that run is cut at many places to
see that a resume comes to the same end.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import romanesco
from romanesco._codec import to_json
from romanesco._config import Config, load_config
from romanesco.errors import InputError, ModelError, RomanescoError, StopReason
from romanesco.journal import verify
from romanesco.models import ModelRequest, ScriptedModel
from romanesco.runtime import BUILT_IN, Topology
from romanesco.task import Budget, Outcome, Plan, Source, Status
from romanesco.testing._embedder import NgramEmbedder
from romanesco.testing._engine import MemoryEngine
from romanesco.testing._store import MemoryData, MemoryStore

_CUTS = 16


async def topology_conformance(
    topology: Topology,
    *,
    goal: str = "Name three risks of moving a bakery to online orders",
    params: Mapping[str, Any] | None = None,
    sources: Sequence[Source] = (),
    others: Sequence[Topology] = (),
) -> None:
    """Check a topology against the contract of :class:`~romanesco.runtime.Topology`.

    Checked: it plans the same each time, as JSON-able data and without a generated token; it completes on a model
    that answers whatever fits, with all that crosses a boundary going through JSON; the order in which answers come
    changes neither the answer nor what is asked; every line of its bill is kept; a run cut anywhere is resumed
    to the same answer without making a finished call again; a replay gives the same outcome; a stop ends it and no
    call follows; a model that always fails, and a budget for nothing, give an outcome and no trace.

    Args:
        topology: The topology.
        goal: What it is asked.
        params: Its parameters.
        sources: Texts to work from.
        others: Further topologies that it spawns.

    Raises:
        AssertionError: It breaks the contract; the message says where.
    """
    with tempfile.TemporaryDirectory(prefix="romanesco-conformance-") as folder:
        quick = {"home": folder, "retry.base": 0.001, "retry.cap": 0.002}
        bench = _Bench(
            topology,
            goal,
            dict(params or {}),
            tuple(sources),
            tuple(others),
            load_config(_nowhere(folder), {}, quick),
        )
        await _check_plan(bench)
        whole = await _check_whole(bench)
        await _check_order(bench, whole)
        await _check_resume(bench, whole)
        await _check_stop(bench)
        await _check_failures(bench)


def _nowhere(folder: str) -> Path:
    file = Path(folder) / "romanesco.toml"
    file.touch()  # an empty file: nothing of the machine's is read
    return file


@dataclass(frozen=True, slots=True)
class _Bench:
    """What the checks run with."""

    topology: Topology
    goal: str
    params: dict[str, Any]
    sources: tuple[Source, ...]
    others: tuple[Topology, ...]
    config: Config

    def options(self, model: ScriptedModel, store: MemoryStore, seed: int | None = 1) -> dict[str, Any]:
        """Options that start, resume and replay share."""
        extra = [one for one in (self.topology, *self.others) if one.name not in BUILT_IN]
        options: dict[str, Any] = {"model": model, "store": store, "embedder": NgramEmbedder(), "config": self.config}
        options["topologies"] = extra
        if seed is not None:
            options["engine"] = MemoryEngine(seed)
        return options

    async def run(
        self, model: ScriptedModel, store: MemoryStore, *, seed: int = 1, budget: Budget | None = None
    ) -> Outcome:
        """A run of the topology from its start."""
        return await romanesco.run(self.goal, **self._asked(budget), **self.options(model, store, seed))

    def open(self, model: ScriptedModel, store: MemoryStore) -> Any:
        """The same, to be watched."""
        return romanesco.open_run(self.goal, **self._asked(None), **self.options(model, store, None))

    def _asked(self, budget: Budget | None) -> dict[str, Any]:
        return {"topology": self.topology.name, "params": self.params, "sources": self.sources, "budget": budget}


@dataclass(slots=True)
class _Whole:
    """A run that was not disturbed."""

    outcome: Outcome
    data: MemoryData
    asked: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def _model(**options: Any) -> ScriptedModel:
    return ScriptedModel(_varied, auto=True, **options)


def _varied(request: ModelRequest) -> Any:
    """An answer that depends on the prompt, so that mixed-up answers show; where a schema binds, the smallest value."""
    from romanesco.models._instance import minimal_instance

    if request.output is not None:
        return minimal_instance(request.output.schema)
    return f"answer {sum(request.messages[-1].content.encode()) % 9973}"


def _asked(model: ScriptedModel) -> Counter[tuple[str, str, str]]:
    """What was asked: node, key and prompt."""
    found: Counter[tuple[str, str, str]] = Counter()
    for call, prompt in zip(model.calls, model.prompts, strict=True):
        assert call.context is not None
        found[call.context.node, call.context.key, prompt] += 1
    return found


async def _check_plan(bench: _Bench) -> None:
    name = bench.topology.name
    _require(bool(name) and "/" not in name and name == name.strip(), f"its name can't be used: {name!r}")
    plans: list[Plan] = []
    for _ in range(2):
        model = _model()
        options = bench.options(model, MemoryStore())
        topologies = options.pop("topologies")
        asked: Any = next((one for one in topologies if one.name == name), name)
        plans.append(
            await romanesco.plan(bench.goal, topology=asked, params=bench.params, sources=bench.sources, **options)
        )
        _require(not model.calls, "plan() asks the model for an answer")
    first, second = plans
    _require(first == second, "plan() gives two plans for one task")
    _require(first.topology == name, f"the plan names the topology {first.topology!r}")
    _require(_jsonable(first.params), "the plan's params do not survive JSON")
    for line in first.bill.lines:
        _require(min(line.calls, line.tokens_in, line.tokens_out) >= 0, f"the bill's line {line.purpose} is negative")


def _jsonable(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


async def _check_whole(bench: _Bench) -> _Whole:
    model, store = _model(), MemoryStore()
    outcome = await bench.run(model, store)
    note = f"{outcome.status} ({outcome.reason}) {outcome.note}"
    _require(outcome.status is Status.COMPLETED, f"on a model that answers everything it ends as {note}")
    _require(_jsonable(to_json(outcome)), "the outcome does not survive JSON")
    verification = await verify(store, outcome.run)
    for finding in verification.findings:
        held = finding.verdict != "violated"
        _require(held, f"the journal's property {finding.property!r} is violated: {finding.detail}")
    replayed = await _hold(romanesco.replay(outcome.run, **bench.options(silent := _model(), store)), "a replay")
    _require(not silent.calls, "a replay makes a call")
    _require(_essence(replayed) == _essence(outcome), "a replay gives another outcome")
    return _Whole(outcome, store.data, _asked(model))


def _essence(outcome: Outcome) -> Any:
    return (outcome.status, outcome.answer, to_json(outcome.deliberation))


async def _hold(work: Awaitable[Outcome], what: str) -> Outcome:
    try:
        return await work
    except RomanescoError as error:
        raise AssertionError(f"{what} ends with an error: {error}") from error


async def _check_order(bench: _Bench, whole: _Whole) -> None:
    for seed in (2, 3):
        model = _model()
        outcome = await bench.run(model, MemoryStore(), seed=seed)
        _require(_essence(outcome) == _essence(whole.outcome), "the order of answers changes the outcome")
        _require(_asked(model) == whole.asked, "the order of answers changes what is asked")


async def _check_resume(bench: _Bench, whole: _Whole) -> None:
    run = whole.outcome.run
    events = whole.data.events[run]
    places = sorted({2 + round(step * (len(events) - 3) / _CUTS) for step in range(_CUTS + 1)})
    for place in places:
        kept = events[:place]
        store = MemoryStore(MemoryData(events={run: list(kept)}, blobs=dict(whole.data.blobs)))
        model = _model()
        where = f"cut after event {place} of {len(events)} ({kept[-1].kind})"
        outcome = await _hold(romanesco.resume(run, **bench.options(model, store)), f"{where}, a resume")
        _require(
            outcome.status is Status.COMPLETED, f"{where}, the resumed run ends as {outcome.status}: {outcome.note}"
        )
        _require(_essence(outcome) == _essence(whole.outcome), f"{where}, the resumed run has another outcome")
        finished = {(event.node, event.key) for event in kept if event.kind == "call.finished"}
        again = finished & {(node, key) for node, key, _ in _asked(model)}
        _require(not again, f"{where}, finished calls are made again: {sorted(again)[:3]}")
        new = _asked(model) - whole.asked
        _require(not new, f"{where}, the resumed run asks what the first one did not: {sorted(new)[:1]}")


async def _check_stop(bench: _Bench) -> None:
    model = _model(latency=30.0)
    async with bench.open(model, MemoryStore()) as going:
        async for event in going.events():
            if event.kind == "call.started":
                break
        await going.stop("the suite stops it")
        made = len(model.calls)
        outcome = await going.outcome()
    _require(len(model.calls) == made and model.in_flight == 0, "a call is made after a stop")
    _require(outcome.reason is StopReason.STOPPED, f"a stopped run ends with the reason {outcome.reason}")
    _require(outcome.status in (Status.CANCELLED, Status.PARTIAL), f"a stopped run ends as {outcome.status}")


async def _check_failures(bench: _Bench) -> None:
    broken = ScriptedModel(ModelError("The suite's model always fails"))
    outcome = await bench.run(broken, MemoryStore())
    _require(outcome.status is not Status.COMPLETED, "it is completed although every call failed")
    internal = outcome.reason is StopReason.INTERNAL
    _require(not internal, f"a model that fails is taken for a fault of the topology: {outcome.note}")
    model = _model()
    try:
        outcome = await bench.run(model, MemoryStore(), budget=Budget(calls=0))
    except InputError:
        return  # refused before anything is spent
    _require(not model.calls, "a call is made under a budget of no calls")
    _require(outcome.status is not Status.COMPLETED, "it is completed although no call was permitted")
    _require(outcome.reason is not StopReason.INTERNAL, f"a refused call is taken for a fault: {outcome.note}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
