"""What a run is asked to be: everything that is needed to run it again, as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from romanesco._codec import from_json
from romanesco.budget import Limits
from romanesco.errors import InputError
from romanesco.models._types import Deadlines
from romanesco.task import Budget, Task


@dataclass(frozen=True, slots=True)
class SharedAccount:
    """An account that several runs draw on: ``project:web`` or ``day:2026-11-30``, with its limits.

    Attributes:
        name: Its name.
        limits: What all runs together may come to there.
        before: What the run had spent when it joined, by dimension: that is charged elsewhere.
    """

    name: str
    limits: Budget
    before: dict[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often an attempt is repeated, and how long it waits.

    Attributes:
        attempts: Attempts of one call at most, when the failures may have been paid for (5xx, cut, stall).
        rate_limited: Attempts of one call at most when the server answered 429, which costs nothing.
        base: First back-off in seconds; it doubles each time, with full jitter.
        cap: Longest back-off in seconds, unless the server's Retry-After is longer.
    """

    attempts: int = 3
    rate_limited: int = 12
    base: float = 0.5
    cap: float = 30.0


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run, as it is journaled first and read again on resume.

    Attributes:
        run: The run's id.
        task: Goal, sources and the parameters that the user set.
        topology: Registered name of the topology.
        models: ``provider:model`` by role; the role ``default`` serves every role that has none.
        budget: The user's limits.
        role_limits: Limits by role, each inside the run's.
        shared: Accounts across runs that this run draws on.
        embedder: Name of the embedder, ``static`` unless configured.
        concurrency: Calls in flight at most for an endpoint.
        deadlines: Time limits of each call.
        retry: Retry policy.
    """

    run: str
    task: Task
    topology: str
    models: dict[str, str]
    budget: Budget = field(default_factory=Budget)
    role_limits: dict[str, Budget] = field(default_factory=dict)
    shared: tuple[SharedAccount, ...] = ()
    embedder: str = "static"
    concurrency: int = 8
    deadlines: Deadlines = field(default_factory=Deadlines)
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def model(self, role: str) -> str:
        """Name of the model for a role."""
        return self.models.get(role) or self.models["default"]


def limit_of(dimension: str, value: Any) -> Budget:
    """One limit, checked: a budget with nothing else in it.

    Args:
        dimension: A field of ``Budget``.
        value: The limit as JSON-able data; None for no limit.

    Raises:
        InputError: There is no such dimension, or the value is no limit of it.
    """
    from pydantic import ValidationError

    if dimension not in Budget.__dataclass_fields__:
        raise InputError("No such dimension", value=dimension, limit=", ".join(Budget.__dataclass_fields__))
    try:
        budget = from_json(Budget, {dimension: value})
    except ValidationError:
        raise InputError(
            f"The limit of {dimension} is not a number", value=repr(value), limit="0 or more, or nothing"
        ) from None
    Limits.of(budget)
    return budget


def with_changes(spec: RunSpec, changes: list[dict[str, Any]]) -> RunSpec:
    """The spec with its budget as changed since.

    Raises:
        InputError: A limit is not one.
    """
    budget = spec.budget
    for change in changes:
        limit = limit_of(change["dimension"], change["value"])
        budget = replace(budget, **{change["dimension"]: getattr(limit, change["dimension"])})
    return replace(spec, budget=budget)


def refuse_passed(dimension: str, used: Decimal | float, budget: Budget) -> None:
    """Refuse a limit that the run has passed already: the same for a resumed run and for one that goes on.

    Raises:
        InputError: It is below what was used.
    """
    limit = getattr(budget, dimension)
    if limit is not None and used > limit:
        option = "--minutes" if dimension == "seconds" else f"--{dimension}"
        raise InputError(
            f"The limit of {dimension} is below what the run has used already",
            value=f"{used} used",
            limit=limit,
            advice=f"Give more with {option}. Nothing was changed.",
        )
