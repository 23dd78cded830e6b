"""The library's front door: run, resume and replay, awaited or not, with events while it happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, TypeVar, Unpack

from romanesco._codec import to_json
from romanesco._config import load_config
from romanesco._prepare import AgainOptions, RunOptions, check_options, choose_models, open_parts, part_options, prepare
from romanesco.runtime import Parts, RunEvent, Session
from romanesco.runtime import plan_run as _plan_run
from romanesco.runtime import replay as _replay
from romanesco.runtime import resume as _resume
from romanesco.runtime import start as _start
from romanesco.task import Budget, Outcome, Plan, Spend

T = TypeVar("T")


class Run:
    """A run that is going on: its events, its plan, its outcome. Made by ``open_run``."""

    def __init__(self, session: Session, *, watched: bool = True) -> None:
        self._session = session
        self._watcher = session.watch() if watched else None
        self._task = asyncio.ensure_future(session.drive())

    @property
    def id(self) -> str:
        """The run's id."""
        return self._session.id

    @property
    def plan(self) -> Plan:
        """The plan, with the bill: the worst case before the first token."""
        return self._session.plan

    def events(self) -> AsyncIterator[RunEvent]:
        """What happens, as it happens, until the run ends. Iterate once."""
        assert self._watcher is not None, "a run whose caller only waits for the outcome keeps no events"
        return self._watcher.events()

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
        """Wait for the end."""
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        """End the run if it still goes on."""
        if not self._task.done():
            await self.stop("the caller left")
        await asyncio.wait([self._task])


@asynccontextmanager
async def open_run(goal: str, **options: Unpack[RunOptions]) -> AsyncIterator[Run]:
    """Start a run and watch it, as a context manager: leaving it ends the run.

    Args:
        goal: What is wanted.
        **options:
            ``model``: ``provider:model``, an adapter, or either by role (``default`` for the rest);
            ``topology``: a registered name, or a topology of your own;
            ``budget``: limits; what is None comes from the configuration;
            ``sources``: texts to work from: ``Source`` records, or paths of text files;
            ``params``: parameters of the topology, for example ``{"k": 3, "rounds": 2}``;
            ``config``: what is in force; by default ``romanesco.toml`` and the environment are read;
            ``run``: an id for the run; by default one is made;
            ``store``, ``embedder``, ``engine``, ``hooks``, ``topologies``: parts in place of the configured ones.

    Raises:
        TypeError: There is no such option.
        InputError: Something given can't be used; nothing was spent.
        RomanescoError: See its subclasses.
    """
    async with _opened(goal, options, watched=True) as going:
        yield going


@asynccontextmanager
async def _opened(goal: str, options: RunOptions, *, watched: bool) -> AsyncIterator[Run]:
    prepared = prepare(goal, options)
    async with open_parts(prepared.config, models=prepared.models, **prepared.parts) as parts:
        async with _going(await _start(prepared.spec, parts), watched=watched) as going:
            yield going


@asynccontextmanager
async def _going(session: Session, *, watched: bool) -> AsyncIterator[Run]:
    going = Run(session, watched=watched)
    try:
        yield going
    finally:
        await going.close()


async def run(goal: str, **options: Unpack[RunOptions]) -> Outcome:
    """Run a goal to its end. Options are those of ``open_run``.

    Returns:
        The outcome. A run that was cut short is an outcome too: see ``Outcome.status``.

    Raises:
        InputError: Something given can't be used; nothing was spent.
    """
    async with _opened(goal, options, watched=False) as going:
        return await going.outcome()


async def plan(goal: str, **options: Unpack[RunOptions]) -> Plan:
    """Plan a goal without running it. Options are those of ``open_run``. Nothing is generated or journaled.

    Returns:
        The plan with its bill: the worst case in calls, tokens and US dollars.

    Raises:
        TypeError: There is no such option.
        InputError: Something given can't be used.
        PlanRefused: The budget or the model's window can't carry any plan.
        UnknownName: No such topology, model or persona.
        ModelError: A model's endpoint did not answer when it was asked for its window or to count tokens.
    """
    prepared = prepare(goal, options)
    async with open_parts(prepared.config, models=prepared.models, **prepared.parts) as parts:
        return await _plan_run(prepared.spec, parts)


async def resume(
    run: str, *, budget: Budget | None = None, resend: bool = False, **options: Unpack[AgainOptions]
) -> Outcome:
    """Go on with a run from where its journal left off. Finished calls are not made again.

    Args:
        run: The run's id.
        budget: New limits, where not None.
        resend: Add the worst case of the calls that were in doubt to the bill, for a run that was killed so often
            that sending them again has used up its retries.
        **options: ``model`` (adapters that came as objects), ``config``, and the parts of ``open_run``.

    Returns:
        The outcome. A run that is completed is not run again: its outcome is given, and nothing is changed.

    Raises:
        TypeError: There is no such option.
        InputError: A new limit is below what the run has used; nothing is changed.
        BudgetExceeded: An account that is shared with other runs can't carry the run's worst case.
        RunBusy: Another process owns it.
        UnknownName: No such run.
        JournalError: The journal can't be read or written.
    """
    async with _again(
        lambda parts: _resume(run, parts, _changes(budget), resend=resend), options, watched=False
    ) as going:
        return await going.outcome()


@asynccontextmanager
async def open_resumed(
    run: str, *, budget: Budget | None = None, resend: bool = False, **options: Unpack[AgainOptions]
) -> AsyncIterator[Run]:
    """Go on with a run and watch it, as a context manager: leaving it ends the run.

    Args:
        run: The run's id.
        budget: New limits, where not None.
        resend: As for ``resume``.
        **options: Those of ``resume``.

    Raises:
        TypeError: There is no such option.
        InputError: A new limit is below what the run has used; nothing is changed.
        BudgetExceeded: An account that is shared with other runs can't carry the run's worst case.
        RunBusy: Another process owns it.
        UnknownName: No such run.
        JournalError: The journal can't be read or written.
    """
    async with _again(
        lambda parts: _resume(run, parts, _changes(budget), resend=resend), options, watched=True
    ) as going:
        yield going


async def replay(run: str, **options: Unpack[AgainOptions]) -> Outcome:
    """Run a run again from its journal alone: no call is made, nothing is written.

    Args:
        run: The run's id.
        **options: Those of ``resume``.

    Returns:
        The outcome that the recorded results lead to.

    Raises:
        TypeError: There is no such option.
        Diverged: The run asks for something that is not on record, so it does not come out as it did.
        UnknownName: No such run.
        JournalError: The journal can't be read.
    """
    async with _again(lambda parts: _replay(run, parts), options, watched=False) as going:
        return await going.outcome()


@asynccontextmanager
async def _again(
    open_session: Callable[[Parts], Coroutine[Any, Any, Session]], options: AgainOptions, *, watched: bool
) -> AsyncIterator[Run]:
    check_options(options, AgainOptions)
    config = options.get("config") or load_config()
    _, adapters = choose_models(options.get("model"))
    async with open_parts(config, models=adapters, **part_options(options)) as parts:
        async with _going(await open_session(parts), watched=watched) as going:
            yield going


def _changes(budget: Budget | None) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in to_json(budget or Budget()).items() if value is not None)


def run_sync(goal: str, **options: Unpack[RunOptions]) -> Outcome:
    """Run a goal to its end from code that is not async. Works inside Jupyter and any running loop.

    Options are those of ``open_run``.
    """
    return in_thread(run(goal, **options))


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Do async work in a loop of its own, in a thread of its own, and wait for it."""
    done: list[T] = []
    failed: list[BaseException] = []

    def main() -> None:
        try:
            done.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            failed.append(error)

    thread = threading.Thread(target=main, name="romanesco", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
