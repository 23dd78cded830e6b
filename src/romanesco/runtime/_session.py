"""A run in this process, driven to its end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from romanesco._codec import from_json, to_json
from romanesco._version import __version__
from romanesco.budget import price_of, require_prices
from romanesco.errors import BudgetExceeded, Diverged, InputError, JournalError, StopReason
from romanesco.journal import Certificate, Command, Event, write_certificate
from romanesco.runtime._context import Limiters, RunContext
from romanesco.runtime._ends import cut_short
from romanesco.runtime._engine import Engine, LocalEngine
from romanesco.runtime._envelope import Envelope
from romanesco.runtime._feed import Watcher
from romanesco.runtime._hooks import Hooks
from romanesco.runtime._overruns import with_overruns
from romanesco.runtime._registry import Topologies
from romanesco.runtime._shared import settle_shared
from romanesco.runtime._spec import RunSpec, SharedAccount
from romanesco.runtime._supervise import steer, supervise
from romanesco.task import BillLine, Outcome, Plan, Spend, Status

if TYPE_CHECKING:
    from romanesco.budget import Price
    from romanesco.budget._prices import Quote
    from romanesco.embeddings import Embedder
    from romanesco.journal import Store
    from romanesco.models import ModelPool


@dataclass(slots=True)
class Parts:
    """What runs are made of: chosen once by the caller, shared by the runs of a process.

    Attributes:
        store: Where journals are kept.
        pool: Models by name.
        embedder: Turns texts into vectors.
        topologies: Topologies by name.
        engine: What drives children and steps.
        hooks: Guards by hook point.
        prices: Prices that the user set, in dollars per million tokens by ``provider:model``; others are looked up.
        certificates: Folder for certificate files, None for none.
        clock: Monotonic seconds.
        wall: Seconds since 1970.
        limiters: The slots of every endpoint.
        accounts: Gives the accounts shared by runs that a new run would draw on now; None leaves a resumed run those
            that it had.
    """

    store: Store
    pool: ModelPool
    embedder: Embedder
    topologies: Topologies = field(default_factory=Topologies)
    engine: Engine = field(default_factory=LocalEngine)
    hooks: Hooks = field(default_factory=Hooks)
    prices: Mapping[str, Mapping[str, Quote]] = field(default_factory=dict)
    certificates: Path | None = None
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    limiters: Limiters = field(default_factory=Limiters)
    accounts: Callable[[], tuple[SharedAccount, ...]] | None = None

    def prices_of(self, spec: RunSpec, plan: Plan | None = None) -> dict[str, Price | None]:
        """The price of every model of a run, None where it is unknown.

        Args:
            spec: The run.
            plan: Its plan, once there is one: then a limit of money is checked against the prices.

        Raises:
            ConfigError: Money is limited and a price is unknown.
        """
        prices = {name: price_of(name, self.prices) for name in set(spec.models.values())}
        if plan is not None:
            require_prices(prices, plan.bill, spec.budget)
        return prices


CUT_SHORT = (StopReason.STOPPED, StopReason.INTERRUPTED, StopReason.DEADLINE, StopReason.STORAGE)
"""Reasons that end a run in the middle of a step: its journal ends there too."""


class Session:
    """One run, driven in this process. Made by ``start``, ``resume`` or ``replay``.

    Args:
        run: Its parts, wired together.
        parts: What it is made of.
        ended: Data of its ``run.ended``, if there is nothing left to do.
        recorded: For a replay, data of its ``run.ended``, if there is one.
        raised: What this resume added to the bill for calls in doubt.
    """

    def __init__(
        self,
        run: RunContext,
        parts: Parts,
        *,
        ended: dict[str, Any] | None = None,
        recorded: dict[str, Any] | None = None,
        raised: BillLine | None = None,
    ) -> None:
        self._run = run
        self._parts = parts
        self._ended = ended
        self._recorded = recorded
        self.raised = raised
        # A lock of its own, and not that of the limits: a stop waits for its work under this one, and the supervisor,
        # which takes the other for words from outside, must go on watching the time meanwhile.
        self._speaking = asyncio.Lock()
        self._over = ended is not None

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.spec.run

    @property
    def plan(self) -> Plan:
        """The run's plan."""
        return self._run.plan

    @property
    def spec(self) -> RunSpec:
        """What the run was asked to be."""
        return self._run.spec

    def watch(self) -> Watcher:
        """See what happens from now on."""
        return self._run.feed.watch()

    def spend(self) -> Spend:
        """What has been spent so far."""
        return self._run.spent.spend(self._run.stopwatch.elapsed)

    async def stop(self, why: str, reason: StopReason = StopReason.STOPPED) -> None:
        """Stop the run; returns when no request of it can reach a server any more."""
        await self._run.stops.stop("/", why, reason)

    async def say(self, verb: str, node: str = "/", **data: Any) -> str:
        """Say to the run what another process would say through its inbox: the same words, recorded the same.

        Args:
            verb: ``stop``, ``answer`` or ``budget``.
            node: Path of the node it is meant for.
            **data: The command's data.

        Returns:
            What came of it.

        Raises:
            InputError: It can't be done, or the run has ended.
            BudgetExceeded: An account shared with other runs can't carry a new limit; nothing is changed.
        """
        command = Command(os.urandom(16).hex(), self.id, node, verb, data, self._parts.wall())
        async with self._speaking:
            if self._over:
                raise InputError("The run has ended", value=self.id, advice="Resume it, or look at its outcome.")
            return await steer(self._run, self._parts.store, command)

    async def drive(self) -> Outcome:
        """Work until the run ends, and give its outcome. Called once."""
        run = self._run
        try:
            if self._ended is not None:
                outcome = from_json(Outcome, self._ended["outcome"])
                await settle_shared(self._parts.store, run.spec, outcome.spend)
                return replace(outcome, head=run.journal.head)
            outcome = await (self._supervised() if run.memo.live else self._solve())
            async with self._speaking:  # what is being said is said to its end, and stands before the run's
                self._over = True
            return await self._end(outcome)
        finally:
            try:
                await run.journal.close()  # what is on its way into the journal is still shown
            finally:
                run.feed.end()

    async def _supervised(self) -> Outcome:
        run, over = self._run, asyncio.Event()
        run.stopwatch.start()
        solving = asyncio.ensure_future(self._solve())
        supervisor = asyncio.ensure_future(supervise(run, self._parts.store, over, solving.cancel))
        try:
            return await solving
        except asyncio.CancelledError:
            stopped, mine = run.stops.mark("/"), asyncio.current_task()
            if stopped is None or mine is None or mine.cancelling():
                raise
            return cut_short(run.offers.get("/"), stopped)  # its topology did not end by itself
        finally:
            run.stopwatch.stop()
            over.set()
            await _finish(supervisor)

    async def _solve(self) -> Outcome:
        run = self._run
        payload = {
            "path": "/",
            "task": to_json(run.spec.task),
            "plan": to_json(run.plan),
            "envelope": to_json(Envelope.root(run.spec.task.goal)),
        }
        try:
            run.accounts.enter("/")
            ended = await run.engine.child(run.spec.topology, payload, run.solve)
            outcome = from_json(Outcome, ended)
        except (JournalError, BudgetExceeded) as error:
            outcome = cut_short(run.offers.get("/"), error)
        except Diverged as error:
            if run.memo.diverged is None:
                run.memo.diverged = error  # a model that answers from a recording has no reply for what was asked
            outcome = self._cut_in_replay()
        if run.memo.diverged is not None:
            # A topology may have taken a divergence for the failure of one member: it is the whole run's.
            return self._cut_in_replay()
        return outcome

    def _cut_in_replay(self) -> Outcome:
        """The recorded outcome, if this replay came to the step at which the run was cut short.

        Raises:
            Diverged: The run diverged.
        """
        run, ended = self._run, self._recorded
        if not run.memo.ran_out or ended is None or StopReason(ended["reason"]) not in CUT_SHORT:
            assert run.memo.diverged is not None
            raise run.memo.diverged
        return from_json(Outcome, ended["outcome"])

    async def _end(self, outcome: Outcome) -> Outcome:
        run = self._run
        models = outcome.models or dict(run.spec.models)
        outcome = replace(
            with_overruns(outcome, run.overruns),
            run=self.id,
            bill=run.plan.bill,
            spend=self.spend(),
            times=run.journal.clockwork.times(run.stopwatch.elapsed),
            lines=self._lines(),
            reasons=run.plan.reasons,
            budget=run.spec.budget,
            models=models,
        )
        if not run.memo.live:
            return outcome
        try:
            event = await run.journal.end(end_data(outcome))
        except JournalError as error:
            status = Status.PARTIAL if outcome.status is Status.COMPLETED else outcome.status
            return replace(_in_words(outcome, error), status=status)  # resumed, it ends on record
        outcome = replace(outcome, head=event.hash)
        try:
            await settle_shared(self._parts.store, run.spec, outcome.spend)
            return replace(outcome, certificate=self._certify(event, outcome))
        except JournalError as error:
            return _in_words(outcome, error)

    def _lines(self) -> tuple[BillLine, ...]:
        """What each line of the bill came to."""
        run = self._run
        used = {purpose: run.accounts.lines[purpose].used for purpose in run.accounts.lines}
        return tuple(
            BillLine(
                purpose,
                int(spent("calls")),
                int(spent("tokens_in")),
                int(spent("tokens_out")),
                Decimal(spent("usd")) if run.spent.priced else None,
            )
            for purpose, spent in used.items()
        )

    def _certify(self, event: Event, outcome: Outcome) -> str:
        folder = self._parts.certificates
        if folder is None:
            return ""
        certificate = Certificate(
            run=self.id,
            seq=event.seq,
            head=event.hash,
            issued_at=self._parts.wall(),
            totals=to_json(outcome.spend),
            version=__version__,
        )
        return str(write_certificate(certificate, folder / f"{self.id}.json"))


def end_data(outcome: Outcome) -> dict[str, Any]:
    """Data of a ``run.ended``."""
    return {
        "status": outcome.status.value,
        "reason": outcome.reason.value,
        "spend": to_json(outcome.spend),
        "elapsed": outcome.spend.seconds,
        "outcome": to_json(outcome),
    }


def _in_words(outcome: Outcome, error: JournalError) -> Outcome:
    """An outcome that could not be kept as it should."""
    note = f"{outcome.note} {error}".strip() if str(error) not in outcome.note else outcome.note
    return replace(outcome, reason=StopReason.STORAGE, note=note)


async def _finish(supervisor: asyncio.Task[None]) -> None:
    """Let the supervisor answer the command that it has in hand. What ended it early has stopped the run too."""
    try:
        await asyncio.wait([supervisor])
    except asyncio.CancelledError:
        supervisor.cancel()
        await asyncio.wait([supervisor])
        raise
    error = None if supervisor.cancelled() else supervisor.exception()
    if error is not None and not isinstance(error, JournalError):
        raise error
