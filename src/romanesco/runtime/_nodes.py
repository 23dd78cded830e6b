"""Nodes: how a topology is run on a task in a place of the tree, and what comes back when it fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json, to_json
from romanesco.errors import BudgetExceeded, InputError, RomanescoError, RunStopped, StopReason
from romanesco.journal import digest
from romanesco.task import Budget, Deliberation, Outcome, Plan, Status, Task

if TYPE_CHECKING:
    from romanesco.runtime._context import RunContext


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels with every delegation. It is runtime data: a model sees of it only the root goal, declared.

    Attributes:
        root_text: The root's goal.
        root_hash: Its digest.
        parent_hash: Digest of the parent's goal, "" at the root.
        unit_hash: Digest of this node's own goal.
        path: Roles from the root to here, never flattened.
    """

    root_text: str
    root_hash: str
    parent_hash: str
    unit_hash: str
    path: tuple[str, ...]

    @classmethod
    def root(cls, goal: str) -> Envelope:
        """The root's envelope."""
        return cls(goal, digest(goal), "", digest(goal), ())

    def below(self, name: str, goal: str) -> Envelope:
        """A child's envelope."""
        return Envelope(self.root_text, self.root_hash, self.unit_hash, digest(goal), (*self.path, name))


STATUS_OF: dict[StopReason, Status] = {
    StopReason.COMPLETED: Status.COMPLETED,
    StopReason.STOPPED: Status.CANCELLED,
    StopReason.INTERRUPTED: Status.CANCELLED,
    StopReason.DEADLINE: Status.EXPIRED,
    StopReason.REFUSED: Status.REFUSED,
}
"""Status of an outcome that has no answer, by why it ended; every other reason is ``failed``."""


def first_error(error: BaseException) -> BaseException:
    """The error that counts in a group of siblings': a stop before anything else, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [first_error(inner) for inner in error.exceptions]
    stops = [leaf for leaf in leaves if isinstance(leaf, RunStopped)]
    return (stops or leaves)[0]


def cut_short(offer: dict[str, Any] | None, error: RomanescoError) -> Outcome:
    """The outcome of a node that an error ended: its last offer, labelled, or nothing but the reason."""
    reason = error.reason
    if offer is None:
        return Outcome(status=STATUS_OF.get(reason, Status.FAILED), reason=reason, note=str(error))
    deliberation = offer["deliberation"]
    note = f"{error} What follows is the best answer so far{': ' + offer['note'] if offer['note'] else ''}."
    return Outcome(
        status=Status.PARTIAL,
        reason=reason,
        answer=offer["answer"],
        note=note,
        deliberation=None if deliberation is None else from_json(Deliberation, deliberation),
    )


async def solve_node(run: RunContext, topology: str, payload: Any) -> Any:
    """Run a topology on a payload: what an engine drives. Gives the outcome as JSON-able data.

    A library error ends the node, never its siblings; anything else is a fault of ours and goes up.
    """
    from romanesco.runtime._hooks import HookPoint
    from romanesco.runtime._scope import NodeScope

    path = payload["path"]
    plan = from_json(Plan, payload["plan"])
    scope = NodeScope(run, path, plan, from_json(Envelope, payload["envelope"]))
    task = from_json(Task, payload["task"])
    try:
        if run.hooks.guards:
            data = {"goal": task.goal, "topology": topology, "path": path}
            task = replace(task, goal=(await scope.hook(HookPoint.BEFORE_DECOMPOSE, data))["goal"])
        outcome = await run.topologies[topology].solve(task, scope)
        if run.hooks.guards:
            data = {"status": outcome.status.value, "answer": outcome.answer, "path": path}
            answer = (await scope.hook(HookPoint.BEFORE_UPDATE_PARENT, data))["answer"]
            outcome = replace(outcome, answer=answer)
    except Exception as caught:  # noqa: BLE001 - one node's fault is its outcome, never its siblings' end
        outcome = _ended_by(run, path, caught)
    return to_json(replace(outcome, topology=topology))


def _ended_by(run: RunContext, path: str, caught: BaseException) -> Outcome:
    error = first_error(caught)
    if isinstance(error, RomanescoError):
        if error.reason in (StopReason.STORAGE, StopReason.DIVERGED):
            raise error from caught  # not this node's affair: the whole run can't go on
        return cut_short(run.offers.get(path), error)
    if not isinstance(error, Exception):
        raise error from caught
    logging.getLogger("romanesco").error("A topology failed in node %s", path, exc_info=error)
    fault = RomanescoError(
        f"The topology failed with {type(error).__name__}: {error}",
        advice="This is a fault of the topology, not of your input; --debug shows where.",
    )
    return cut_short(run.offers.get(path), fault)


async def run_child(
    run: RunContext,
    parent: str,
    envelope: Envelope,
    topology: str,
    task: Task,
    *,
    key: str,
    budget: Budget | None,
) -> Outcome:
    """Open a child below a node, run it and close it. Its failure is its outcome."""
    path = f"{parent.rstrip('/')}/{key}"
    run.memo.claim(parent, f"spawn:{key}")
    recorded = run.memo.steps.get((path, "node.ended"))
    if recorded is not None and recorded.data is not None:
        return from_json(Outcome, recorded.data["outcome"])
    run.stops.check(parent)
    try:
        account = run.accounts.open_node(path, budget)
    except BudgetExceeded as error:
        return Outcome(status=Status.REFUSED, reason=error.reason, note=str(error), topology=topology)
    try:
        plan = await _plan_child(run, topology, task, budget)
        payload = {
            "path": path,
            "task": to_json(task),
            "plan": to_json(plan),
            "envelope": to_json(envelope.below(key, task.goal)),
        }
        await run.journal.append("node.opened", node=path, key="node.opened", data={"topology": topology, **payload})
        ended = await run.engine.child(topology, payload, lambda name, data: solve_node(run, name, data))
    except InputError as error:
        ended = to_json(Outcome(status=Status.REFUSED, reason=error.reason, note=str(error), topology=topology))
    finally:
        run.ledger.close(account)
    await run.journal.append("node.ended", node=path, key="node.ended", data={"outcome": ended})
    return from_json(Outcome, ended)


async def _plan_child(run: RunContext, topology: str, task: Task, budget: Budget | None) -> Plan:
    from romanesco.runtime._desk import Desk

    desk = Desk(run.spec, run.pool, run.prices, budget or Budget())
    return await run.topologies[topology].plan(task, desk)
