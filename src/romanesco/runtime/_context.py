"""The parts of one running run, wired together once and handed to everything that works on it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from romanesco.runtime._hooks import Hooks
from romanesco.runtime._limiter import Limiter
from romanesco.runtime._memo import Memo
from romanesco.runtime._recover import Spent
from romanesco.runtime._stops import Stops

if TYPE_CHECKING:
    from romanesco.budget import Ledger, Price, Stopwatch
    from romanesco.embeddings import Embedder
    from romanesco.models import ModelPool
    from romanesco.runtime._accounts import Accounts
    from romanesco.runtime._engine import Engine
    from romanesco.runtime._feed import Feed
    from romanesco.runtime._questions import Questions
    from romanesco.runtime._recorder import Recorder
    from romanesco.runtime._registry import Topologies
    from romanesco.runtime._spec import RunSpec
    from romanesco.task import CallOverrun, Plan

WRAP_UP_SHARE = 0.1
"""Share of the wall time that is held back for the wrap-up, ..."""

WRAP_UP_SECONDS = 30.0
"""... but never more than this."""


@dataclass(slots=True)
class Limiters:
    """One limiter for each endpoint and key, shared by all runs that are made of the same parts."""

    clock: Callable[[], float] = time.monotonic
    by_endpoint: dict[str, Limiter] = field(default_factory=dict)

    def of(self, endpoint: str, most: int) -> Limiter:
        """The limiter of an endpoint, made for ``most`` calls in flight by whoever asks first."""
        limiter = self.by_endpoint.get(endpoint)
        if limiter is None:
            limiter = self.by_endpoint[endpoint] = Limiter(most, self.clock)
        return limiter


@dataclass(slots=True)
class RunContext:
    """What the runtime's functions share about one run. Holds parts, decides nothing."""

    spec: RunSpec
    plan: Plan
    journal: Recorder
    memo: Memo
    ledger: Ledger
    accounts: Accounts
    stopwatch: Stopwatch
    pool: ModelPool
    prices: dict[str, Price | None]
    limiters: Limiters
    embedder: Embedder
    topologies: Topologies
    engine: Engine
    feed: Feed
    questions: Questions
    stops: Stops = field(default_factory=Stops)
    hooks: Hooks = field(default_factory=Hooks)
    clock: Callable[[], float] = field(default=lambda: 0.0)
    wall: Callable[[], float] = field(default=lambda: 0.0)
    jitter: random.Random = field(default_factory=random.Random)  # noqa: S311 - spreads retries
    spent: Spent = field(default_factory=Spent)
    overruns: list[CallOverrun] = field(default_factory=list)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float | None = None
    steering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a limit changes: the next change starts from what this one leaves."""
    solve: Callable[[str, Any], Awaitable[Any]] = field(init=False)
    """Runs the topology of a name on a payload in this run: what an engine is given to drive."""

    def time_left(self, *, wrap_up: bool) -> float | None:
        """Active seconds that are left, None for no limit; a share of them is only for the wrap-up."""
        if self.seconds is None:
            return None
        held = 0.0 if wrap_up else min(WRAP_UP_SHARE * self.seconds, WRAP_UP_SECONDS)
        return max(0.0, self.seconds - held - self.stopwatch.elapsed)
