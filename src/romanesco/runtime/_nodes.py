"""Nodes: how a topology is run on a task in a place of the tree."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from romanesco._codec import from_json, to_json
from romanesco.errors import RomanescoError
from romanesco.runtime._context import RunContext
from romanesco.runtime._ends import STATUS_OF, ended_by, with_answer
from romanesco.runtime._envelope import Envelope
from romanesco.runtime._hooks import HookPoint
from romanesco.runtime._scope import NodeScope
from romanesco.task import Outcome, Plan, Status, Task


async def solve_node(run: RunContext, topology: str, payload: Any) -> Any:
    """Run a topology on a payload: what an engine drives. Gives the outcome as JSON-able data.

    A library error ends the node, never its siblings; a failure of storage or a divergence goes up.
    """
    path = payload["path"]
    plan = from_json(Plan, payload["plan"])
    scope = NodeScope(run, path, plan, from_json(Envelope, payload["envelope"]))
    task = from_json(Task, payload["task"])
    try:
        if run.hooks.guards:
            data = {"goal": task.goal, "topology": topology, "path": path}
            task = replace(task, goal=(await scope.hook(HookPoint.BEFORE_DECOMPOSE, data))["goal"])
        outcome = _usable(await run.topologies[topology].solve(task, scope), topology)
    except Exception as caught:  # noqa: BLE001 - one node's fault is its outcome, never its siblings' end
        outcome = ended_by(path, caught, run.offers.get(path))
    outcome = _if_stopped(run, path, outcome)
    if outcome.status is Status.FAILED and not outcome.answer:
        outcome = replace(outcome, status=STATUS_OF.get(outcome.reason, Status.FAILED))
    if run.hooks.guards and (outcome.answer or outcome.status is Status.COMPLETED):
        outcome = await _guarded(scope, outcome)
    return to_json(replace(outcome, topology=topology))


def _usable(given: object, topology: str) -> Outcome:
    """What a topology gave, if it is an outcome that can be journaled and read again.

    Raises:
        RomanescoError: It is not.
    """
    from pydantic import ValidationError  # heavy, and loaded by now: a record has crossed a boundary

    advice = "This is a fault of the topology, not of your input."
    if not isinstance(given, Outcome):
        found = type(given).__name__
        raise RomanescoError(f"The topology {topology} gave no outcome", value=found, limit="an Outcome", advice=advice)
    try:
        outcome = from_json(Outcome, {part.name: getattr(given, part.name) for part in fields(given)})
        return from_json(Outcome, to_json(outcome))
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(str(step) for step in wrong["loc"])
        value = repr(wrong["input"])[:80]
        raise RomanescoError(
            f"The topology {topology} gave an outcome whose {where} is wrong ({wrong['msg']})",
            value=value,
            advice=advice,
        ) from None


def _if_stopped(run: RunContext, path: str, outcome: Outcome) -> Outcome:
    """What a topology gave, or failed with, in a node that was stopped: the stop is why it is not complete."""
    stopped = run.stops.mark(path)
    if stopped is None or outcome.status is Status.COMPLETED or outcome.reason is stopped.reason:
        return outcome
    status = Status.PARTIAL if outcome.answer else STATUS_OF.get(stopped.reason, Status.CANCELLED)
    return replace(outcome, status=status, reason=stopped.reason, note=f"{stopped} {outcome.note}".strip())


async def _guarded(scope: NodeScope, outcome: Outcome) -> Outcome:
    """An outcome as its parent may see it. Every answer passes here, one that was cut short too."""
    data = {"status": outcome.status.value, "answer": outcome.answer, "path": scope.node}
    try:
        answer = (await scope.hook(HookPoint.BEFORE_UPDATE_PARENT, data))["answer"]
    except Exception as caught:  # noqa: BLE001 - as above; the answer is not given, since nobody has checked it
        return ended_by(scope.node, caught, None)
    return with_answer(outcome, answer)
