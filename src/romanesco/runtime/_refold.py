"""The memory of a run, folded from its events one session after another, as each session had it.

A failure is given again only if the topology went on after it (it asked for something else once it knew); otherwise
the step is tried again. ``asked`` is the journal position at which the topology asked for a step, so
``asked >= seq of a failure`` means that the topology may have acted on the failure. Refusals by a budget are forgotten
when the limits have changed since, or a person asked to go on; what was asked after a forgotten refusal is kept, but
may be replaced (``loose``), and what the topology recorded after it is dropped.

Every resume forgets by what it finds then. A later resume must start from the same memory: a refusal that was
forgotten and then granted has left no failure to tell what was asked after it. So the fold forgets where each resume
stands in the journal, and not only at its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from romanesco.errors import BudgetExceeded, StopReason
from romanesco.runtime._memo import Recorded, StepId, forget, place_of

LIMITS = ("budget.changed", "bill.raised")
"""Kinds of events after which refusals are tried again."""

WITH_A_RESUME = (*LIMITS, "accounts.changed")
"""Kinds of events that a resume writes right after its own, before anything is done."""


def memo_from(
    events: Iterable[tuple[int, str, str, str, dict[str, Any]]], *, coming: bool = False
) -> dict[StepId, Recorded]:
    """Recorded steps from ``(seq, kind, node, key, data)`` of a run's events, payloads resolved.

    Args:
        events: All events of the run.
        coming: Whether a session follows, which tries failures again. A replay tries none.
    """
    steps: dict[StepId, Recorded] = {}
    limits_changed_at = reopened_at = ended_at = 0
    resumed = False
    for seq, kind, node, key, data in events:
        if resumed and kind not in WITH_A_RESUME:
            settle_failures(steps, limits_changed_at=limits_changed_at, reopened_at=reopened_at)
            resumed = False
        if kind == "run.ended":
            ended_at = seq
        elif kind == "run.resumed":
            reopened_at, resumed = max(reopened_at, ended_at), True
        elif kind in LIMITS:
            limits_changed_at = seq
        else:
            _take(steps, seq, kind, node, key, data)
    if coming:
        settle_failures(steps, limits_changed_at=limits_changed_at, reopened_at=reopened_at)
    return steps


def _take(steps: dict[StepId, Recorded], seq: int, kind: str, node: str, key: str, data: dict[str, Any]) -> None:
    if kind == "call.started":
        step = steps.setdefault((node, key), Recorded(fingerprint=data["fingerprint"]))
        step.renew(data["fingerprint"])
        step.attempts += 1
        step.open += 1
        step.asked = data["asked"]
    elif kind == "call.failed":
        if (node, key) in steps:
            steps[node, key].open -= 1
    elif kind == "call.finished":
        step = steps[node, key]
        step.open -= 1
        step.seq, step.data, step.failure, step.loose = seq, data, None, False
    elif kind in ("step.finished", "step.failed"):
        step = steps.setdefault((node, key), Recorded(fingerprint=data["fingerprint"]))
        step.renew(data["fingerprint"])
        step.seq, step.asked, step.loose = seq, data["asked"], False
        if kind == "step.finished":
            step.data, step.failure = data, None
        else:
            step.failure = data
    elif kind in ("node.opened", "node.ended"):
        _take_node(steps, seq, kind, node, key, data)
    elif key.startswith("record:"):
        steps[node, key] = Recorded(seq=seq, data=data)


def _take_node(steps: dict[StepId, Recorded], seq: int, kind: str, node: str, key: str, data: dict[str, Any]) -> None:
    place = place_of(node)
    if kind == "node.opened" and place in steps and steps[place].fingerprint != data["fingerprint"]:
        forget(steps, node)  # as the session did that opened it for another task
    steps[node, key] = Recorded(seq=seq, data=data)
    # Opening a child is a question of its parent's; a refused child was never opened.
    if kind == "node.opened" or place not in steps:
        steps[place] = Recorded(seq=seq, asked=seq, fingerprint=data["fingerprint"], data=data)


def settle_failures(steps: dict[StepId, Recorded], *, limits_changed_at: int, reopened_at: int) -> None:
    """Drop the failures that are to be tried again; mark what was asked after a dropped refusal as loose.

    Args:
        steps: Recorded steps, changed in place.
        limits_changed_at: Position of the last change of limits, 0 if none.
        reopened_at: Position of the last ``run.ended`` that a resume follows, 0 if none: a person asked to go on.
    """
    latest_question: dict[str, int] = {}
    for (node, _), recorded in steps.items():
        latest_question[node] = max(latest_question.get(node, 0), recorded.asked)
    dropped: dict[str, int] = {}
    for (node, _), recorded in steps.items():
        failure = recorded.failure
        if failure is None or recorded.data is not None:
            continue
        refusal = failure["error"] == BudgetExceeded.code
        went_on = latest_question[node] >= recorded.seq
        if (refusal and recorded.seq < max(limits_changed_at, reopened_at)) or not went_on:
            dropped[node] = min(dropped.get(node, recorded.seq), recorded.seq)
            recorded.failure = None
    for (node, key), recorded in list(steps.items()):
        if key == "node.ended" and recorded.data is not None:
            outcome = recorded.data["outcome"]
            cut = outcome["reason"] in (StopReason.BUDGET, StopReason.DEADLINE) and recorded.seq < limits_changed_at
            if outcome["status"] != "completed" and (recorded.seq < reopened_at or cut):
                del steps[node, key]
                parent, _ = place_of(node)
                dropped[parent] = min(dropped.get(parent, recorded.seq), recorded.seq)
    for (node, key), recorded in list(steps.items()):
        if node in dropped and max(recorded.asked, recorded.seq if not recorded.asked else 0) >= dropped[node]:
            if key.startswith("record:"):
                del steps[node, key]  # decided without what is tried again now
            else:
                recorded.loose = True
