"""Steps that are not model calls: done once, journaled, and given again on resume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from romanesco.errors import (
    BudgetExceeded,
    EmbeddingFailed,
    ModelError,
    OutputInvalid,
    Refused,
    RomanescoError,
)
from romanesco.journal import canonical, digest
from romanesco.runtime._context import RunContext

MEMOISED_FAILURES = (BudgetExceeded, ModelError, EmbeddingFailed, Refused)
"""Errors that a topology is told and may act on. They are journaled, so that a resumed run tells it the same."""


async def step(run: RunContext, node: str, key: str, what: Any, do: Callable[[], Awaitable[Any]]) -> Any:
    """Do something once.

    Args:
        run: The run.
        node: Path of the node.
        key: The step's key.
        what: JSON-able description of what is done: its fingerprint must be the same on resume.
        do: Does it and gives a JSON-able result.

    Returns:
        The result, recorded or new.
    """
    run.memo.claim(node, key)
    fingerprint = digest(canonical(what))
    recorded = run.memo.find(node, key, fingerprint)
    if recorded is not None:
        if recorded.failure is not None:
            raise failure_from(recorded.failure)
        assert recorded.data is not None
        return recorded.data["result"]
    run.stops.check(node)
    asked = run.journal.seq
    try:
        result = await run.stops.guard(node, run.engine.step(f"{node} {key}", do))
    except MEMOISED_FAILURES as error:
        await record_failure(run, node, key, fingerprint, asked, error)
        raise
    await run.journal.append(
        "step.finished", node=node, key=key, data={"asked": asked, "fingerprint": fingerprint, "result": result}
    )
    return result


async def record_failure(
    run: RunContext, node: str, key: str, fingerprint: str, asked: int, error: RomanescoError
) -> None:
    """Journal a failure before the topology is told of it."""
    await run.journal.append(
        "step.failed",
        node=node,
        key=key,
        data={"asked": asked, "fingerprint": fingerprint, **failure_data(error)},
    )


def failure_data(error: RomanescoError) -> dict[str, Any]:
    """An error as data, enough to raise it again."""
    data: dict[str, Any] = {
        "error": error.code,
        "what": error.what,
        "value": None if error.value is None else str(error.value),
        "limit": None if error.limit is None else str(error.limit),
        "advice": error.advice,
    }
    if isinstance(error, BudgetExceeded):
        data["account"], data["dimension"] = error.account, error.dimension
    return data


def failure_from(data: dict[str, Any]) -> RomanescoError:
    """The error that a failure recorded. Model errors of all kinds come back as what a topology tells apart."""
    told: dict[str, Any] = {"value": data["value"], "limit": data["limit"], "advice": data["advice"]}
    code = data["error"]
    if code == BudgetExceeded.code:
        return BudgetExceeded(data["what"], account=data["account"], dimension=data["dimension"], **told)
    kinds: dict[str, type[RomanescoError]] = {kind.code: kind for kind in (OutputInvalid, EmbeddingFailed, Refused)}
    return kinds.get(code, ModelError)(data["what"], **told)
