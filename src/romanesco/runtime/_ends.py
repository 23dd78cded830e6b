"""How an error that ends a node becomes the node's outcome: pure decisions, and one line in the log."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from romanesco._codec import from_json
from romanesco.errors import BudgetExceeded, Diverged, JournalError, Refused, RomanescoError, RunStopped, StopReason
from romanesco.task import Deliberation, Outcome, Status

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


def with_answer(outcome: Outcome, answer: str) -> Outcome:
    """The outcome with another answer, as a guard left it, wherever the answer stands in it."""
    if answer == outcome.answer:
        return outcome
    team = outcome.deliberation
    if team is not None and team.decision is not None and team.decision.answer == outcome.answer:
        team = replace(team, decision=replace(team.decision, answer=answer))
    return replace(outcome, answer=answer, deliberation=team)


def cut_short(offer: dict[str, Any] | None, error: RomanescoError) -> Outcome:
    """The outcome of a node that an error ended: its last offer, labelled, or nothing but the reason."""
    reason = error.reason
    dimension, account = (error.dimension, error.account) if isinstance(error, BudgetExceeded) else ("", "")
    if offer is None:
        status = STATUS_OF.get(reason, Status.FAILED)
        return Outcome(status=status, reason=reason, note=str(error), dimension=dimension, account=account)
    deliberation = offer["deliberation"]
    when = f": {offer['note'].rstrip('.')}" if offer["note"] else ""
    note = f"{str(error).rstrip('.')}. What follows is the best answer so far{when}."
    return Outcome(
        status=Status.PARTIAL,
        reason=reason,
        answer=offer["answer"],
        note=note,
        dimension=dimension,
        account=account,
        deliberation=None if deliberation is None else from_json(Deliberation, deliberation),
    )


def ended_by(path: str, caught: Exception, offer: dict[str, Any] | None) -> Outcome:
    """The outcome of a node that an error ended.

    Raises:
        RomanescoError: It is not this node's affair: the whole run can't go on.
    """
    error = first_error(caught)
    if isinstance(error, RomanescoError):
        if isinstance(error, JournalError | Diverged):
            raise error from caught
        # What a guard refused must not come back as the best answer so far.
        return cut_short(None if isinstance(error, Refused) else offer, error)
    if not isinstance(error, Exception):
        raise error from caught
    logging.getLogger("romanesco").error("A topology failed in node %s", path, exc_info=error)
    fault = RomanescoError(
        f"The topology failed with {type(error).__name__}: {error}",
        advice="This is a fault of the topology, not of your input; --debug shows where.",
    )
    return cut_short(offer, fault)
