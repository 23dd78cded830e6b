"""Steps that are not model calls: done once, journaled, and given again on resume."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from romanesco.errors import BudgetExceeded, EmbeddingFailed, ModelError, Refused, RomanescoError, StopReason
from romanesco.journal import canonical, digest
from romanesco.runtime._context import RunContext

MEMOISED_FAILURES = (BudgetExceeded, ModelError, EmbeddingFailed, Refused)
"""Errors that a topology is told and may act on. They are journaled, so that a resumed run tells it the same."""


async def step(run: RunContext, node: str, key: str, what: Any, do: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
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


_MORE = ("account", "dimension", "phase", "retry_after")
"""Attributes that some errors have beside the common ones."""


def failure_data(error: RomanescoError) -> dict[str, Any]:
    """An error as data, enough to raise it again."""
    data: dict[str, Any] = {
        "error": error.code,
        "what": error.what,
        "value": None if error.value is None else str(error.value),
        "limit": None if error.limit is None else str(error.limit),
        "advice": error.advice,
        "reason": error.reason.value,
    }
    data.update({name: getattr(error, name) for name in _MORE if hasattr(error, name)})
    return data


def failure_from(data: dict[str, Any]) -> RomanescoError:
    """The error that a failure recorded, of the same kind: topologies may tell kinds apart, or show the code."""
    kind = _kinds().get(data["error"], ModelError)
    error = kind.__new__(kind)  # each kind has arguments of its own, and all of them end as attributes
    RomanescoError.__init__(error, data["what"], value=data["value"], limit=data["limit"], advice=data["advice"])
    error.reason = StopReason(data["reason"])
    for name in _MORE:
        if name in data:
            setattr(error, name, data[name])
    return error


@cache
def _kinds() -> dict[str, type[RomanescoError]]:
    kinds: dict[str, type[RomanescoError]] = {}
    waiting: list[type[RomanescoError]] = list(MEMOISED_FAILURES)
    while waiting:
        kind = waiting.pop()
        kinds.setdefault(kind.code, kind)
        waiting.extend(kind.__subclasses__())
    return kinds
