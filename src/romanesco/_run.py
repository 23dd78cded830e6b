"""A run that goes on, as the library hands it to its caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from decimal import Decimal
from typing import Any

from romanesco.errors import InputError
from romanesco.runtime import RunEvent, Session
from romanesco.task import Outcome, Plan, Spend


class Run:
    """A run that is going on: its events, its plan, its outcome. Made by ``open_run``."""

    def __init__(self, session: Session, *, watched: bool = True) -> None:
        self._session = session
        self._watcher = session.watch() if watched else None
        self._watched = watched
        self._told = False
        self._task = asyncio.ensure_future(session.drive())

    @property
    def id(self) -> str:
        """The run's id."""
        return self._session.id

    @property
    def plan(self) -> Plan:
        """The plan, with the bill: the worst case before the first token."""
        return self._session.plan

    def events(self) -> AsyncGenerator[RunEvent, None]:
        """What happens, as it happens, until the run ends. Events are kept until they are read.

        There is one reader. Breaking off its loop is leaving: what happens afterwards is kept for nobody. Who wants to
        go on later keeps the iterator (``events = run.events()``) and begins another loop over it.

        Raises:
            InputError: The events were asked for before.
        """
        assert self._watched, "a run whose caller only waits for the outcome keeps no events"
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            raise InputError(
                "The events of this run were asked for before",
                value=self.id,
                limit="one reader",
                advice="Keep the iterator, events = run.events(), and go on with it.",
            )
        return watcher.events()

    @property
    def spend(self) -> Spend:
        """What has been spent so far."""
        return self._session.spend()

    async def stop(self, why: str = "the caller stopped it", *, node: str = "/") -> None:
        """Stop the run, or one node and all below it; when this returns, no request of it reaches a server any more.

        Args:
            why: What the outcome's note says.
            node: Path of the node; by default the whole run.

        Raises:
            InputError: The run has no such node.
        """
        if node == "/":
            await self._session.stop(f"Stopped: {why}")
        else:
            await self._say("stop", node, why=why)

    async def answer(self, text: str, question: str | None = None) -> None:
        """Answer a question that the run has asked (an event ``question.asked``); then the answer is on record.

        Args:
            text: The answer.
            question: The question's id; may be left out while only one waits.

        Raises:
            InputError: No such question waits, several do and none is named, or it isn't one of the choices.
        """
        await self._say("answer", question=question, text=text)

    async def limit(self, **limits: float | str | Decimal | None) -> None:
        """Raise, lower or remove (None) limits while the run goes on: ``await run.limit(tokens=50_000, usd=None)``.

        Args:
            **limits: Fields of ``Budget`` and their new values.

        Raises:
            InputError: One of them is no limit, or limits money where a price is unknown.
            BudgetExceeded: An account shared with other runs can't carry it; then that limit is as it was.
        """
        for dimension, value in limits.items():
            given = str(value) if isinstance(value, Decimal) else value
            await self._say("budget", dimension=dimension, value=given)

    async def _say(self, verb: str, node: str = "/", **data: Any) -> None:
        await self._session.say(verb, node, **data)

    async def outcome(self) -> Outcome:
        """Wait for the end.

        Raises:
            RomanescoError: What made the run fail, where that can't be told as an outcome.
        """
        try:
            return await asyncio.shield(self._task)
        except BaseException as error:
            ended = self._task.done() and not self._task.cancelled()
            self._told = self._told or (ended and self._task.exception() is error)
            raise

    async def close(self) -> None:
        """End the run if it still goes on."""
        if not self._task.done():
            await self.stop("the caller left")
        await asyncio.wait([self._task])

    @property
    def untold(self) -> BaseException | None:
        """What made the run fail, if it has ended so and nobody has heard of it from ``outcome``."""
        if self._told or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()
