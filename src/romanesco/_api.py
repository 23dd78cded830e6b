"""The library's front door: run, resume and replay, awaited or not, with events while it happens.

Each of these opens a workspace for one run and closes it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, Unpack

from romanesco._prepare import (
    AgainOptions,
    RunOptions,
    check_options,
    goal_options,
    model_option,
    space_options,
)
from romanesco._run import Run
from romanesco._workspace import open_workspace
from romanesco.task import Budget, Outcome, Plan

T = TypeVar("T")


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
    check_options(options, RunOptions)
    async with (
        open_workspace(**space_options(options)) as space,
        space.opened(goal, goal_options(options), watched=watched) as going,
    ):
        yield going


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
        BudgetExceeded: A project's or a day's account could not carry the plan as it stands.
        UnknownName: No such topology, model or persona.
        ModelError: A model's endpoint did not answer when it was asked for its window or to count tokens.
    """
    check_options(options, RunOptions)
    async with open_workspace(**space_options(options)) as space:
        return await space.plan(goal, **goal_options(options))


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
    async with _resumed(run, budget, options, resend=resend, watched=False) as going:
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
    async with _resumed(run, budget, options, resend=resend, watched=True) as going:
        yield going


@asynccontextmanager
async def _resumed(
    run: str, budget: Budget | None, options: AgainOptions, *, resend: bool, watched: bool
) -> AsyncIterator[Run]:
    check_options(options, AgainOptions)
    async with (
        open_workspace(**space_options(options)) as space,
        space.resumed(run, budget, model_option(options), resend=resend, watched=watched) as going,
    ):
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
    check_options(options, AgainOptions)
    async with open_workspace(**space_options(options)) as space:
        return await space.replay(run, **model_option(options))


def run_sync(goal: str, **options: Unpack[RunOptions]) -> Outcome:
    """Run a goal to its end from code that is not async. Works inside Jupyter and any running loop.

    Options are those of ``open_run``. Ctrl-C stops the run: when ``KeyboardInterrupt`` leaves this function, no
    request of the run reaches a server any more, what was done is in the journal, and ``resume`` goes on with it.
    """
    return in_thread(run(goal, **options))


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Do async work in a loop of its own, in a thread of its own, and wait for it.

    What interrupts the wait (Ctrl-C, or a signal handler of the caller's that raises) cancels the work, and is raised
    when the work has ended. Each further interrupt cancels once more what the work still waits for.
    """
    thread = _Threaded(work)
    interrupt: BaseException | None = None
    with _ctrl_c(thread.cancel) as pressed:
        thread.start()
        while not thread.ended.is_set():
            try:
                # Not join: interrupted, it takes a thread that goes on for one that has ended (CPython 3.11).
                thread.ended.wait()
            except BaseException as error:  # noqa: BLE001 - raised below, when the work has ended
                interrupt = interrupt or error
                thread.cancel()
        thread.join()
    if pressed:
        interrupt = interrupt or KeyboardInterrupt()
    if interrupt is not None:
        failed = thread.failed
        raise interrupt from (None if isinstance(failed, asyncio.CancelledError) else failed)
    if thread.failed is not None:
        raise thread.failed
    return thread.done[0]


@contextlib.contextmanager
def _ctrl_c(cancel: Callable[[], None]) -> Iterator[list[int]]:
    """While entered, Ctrl-C calls ``cancel`` and is noted, in the place of an exception that could come anywhere.

    Only where Ctrl-C would raise ``KeyboardInterrupt``: a handler of the caller's, and other threads, stay as they are.
    """
    pressed: list[int] = []

    def hit(number: int, _frame: object) -> None:
        pressed.append(number)
        cancel()

    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    signal.signal(signal.SIGINT, hit)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Threaded(threading.Thread, Generic[T]):
    """Async work in a thread. ``cancel`` may be called from any other thread at any time, more than once."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        super().__init__(name="romanesco", daemon=True)
        self.done: list[T] = []
        self.failed: BaseException | None = None
        self.ended = threading.Event()
        self._work = work
        self._asked = False
        self._going: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            self.failed = error
        finally:
            self.ended.set()

    async def _main(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine that asyncio.run drives
        self._going = (asyncio.get_running_loop(), task)
        if self._asked:  # before there was a loop to tell; the other order is told by ``cancel``
            self._work.close()
            raise asyncio.CancelledError
        self.done.append(await self._work)

    def cancel(self) -> None:
        """Cancel the work, now or as soon as it would begin."""
        self._asked = True
        if self._going is not None:
            loop, task = self._going
            with contextlib.suppress(RuntimeError):  # the loop has closed: the work has ended
                loop.call_soon_threadsafe(task.cancel)
