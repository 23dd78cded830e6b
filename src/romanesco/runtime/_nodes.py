"""Nodes: how a topology is run on a task in a place of the tree, and what is left of it when it fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json, to_json
from romanesco.errors import Diverged, JournalError, RomanescoError, RunStopped, StopReason
from romanesco.journal import digest
from romanesco.runtime._hooks import HookPoint
from romanesco.task import Deliberation, Outcome, Plan, Status, Task

if TYPE_CHECKING:
    from romanesco.runtime._context import RunContext
    from romanesco.runtime._scope import NodeScope


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
    StopReason.INPUT: Status.REFUSED,
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
    when = f": {offer['note'].rstrip('.')}" if offer["note"] else ""
    note = f"{str(error).rstrip('.')}. What follows is the best answer so far{when}."
    return Outcome(
        status=Status.PARTIAL,
        reason=reason,
        answer=offer["answer"],
        note=note,
        deliberation=None if deliberation is None else from_json(Deliberation, deliberation),
    )


async def solve_node(run: RunContext, topology: str, payload: Any) -> Any:
    """Run a topology on a payload: what an engine drives. Gives the outcome as JSON-able data.

    A library error ends the node, never its siblings; a failure of storage or a divergence goes up.
    """
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
    except Exception as caught:  # noqa: BLE001 - one node's fault is its outcome, never its siblings' end
        outcome = ended_by(run, path, caught, run.offers.get(path))
    outcome = _if_stopped(run, path, outcome)
    if run.hooks.guards and (outcome.answer or outcome.status is Status.COMPLETED):
        outcome = await _guarded(scope, outcome)
    return to_json(replace(outcome, topology=topology))


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
        return ended_by(scope.run, scope.node, caught, None)
    return replace(outcome, answer=answer)


def ended_by(run: RunContext, path: str, caught: Exception, offer: dict[str, Any] | None) -> Outcome:
    """The outcome of a node that an error ended.

    Raises:
        RomanescoError: It is not this node's affair: the whole run can't go on.
    """
    error = first_error(caught)
    if isinstance(error, RomanescoError):
        if isinstance(error, JournalError | Diverged):
            raise error from caught
        return cut_short(offer, error)
    if not isinstance(error, Exception):
        raise error from caught
    logging.getLogger("romanesco").error("A topology failed in node %s", path, exc_info=error)
    fault = RomanescoError(
        f"The topology failed with {type(error).__name__}: {error}",
        advice="This is a fault of the topology, not of your input; --debug shows where.",
    )
    return cut_short(offer, fault)
