"""A place for many runs: they share a journal, connections, and the slots of every endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from romanesco._codec import to_json
from romanesco._config import Config, load_config
from romanesco._prepare import (
    GoalOptions,
    ModelOption,
    SpaceOptions,
    check_options,
    choose_models,
    open_parts,
    prepare,
)
from romanesco._run import Run
from romanesco.errors import InputError
from romanesco.runtime import Parts, Session, Topologies
from romanesco.runtime import plan_run as _plan_run
from romanesco.runtime import replay as _replay
from romanesco.runtime import resume as _resume
from romanesco.runtime import start as _start
from romanesco.task import Budget, Outcome, Plan

if TYPE_CHECKING:
    from romanesco.models import ChatModel
    from romanesco.runtime import Topology


class Workspace:
    """Runs goals side by side. Made by ``open_workspace``; its methods are those of the package of the same names.

    However many runs go on at once, an endpoint gets no more calls in flight than ``concurrency`` permits, and what one
    run hears of a rate limit slows the others down too.
    """

    def __init__(self, parts: Parts, config: Config) -> None:
        self._parts = parts
        self._config = config
        self._own: dict[str, ChatModel] = {}

    @asynccontextmanager
    async def open_run(self, goal: str, **options: Unpack[GoalOptions]) -> AsyncIterator[Run]:
        """As ``romanesco.open_run``, without the options that ``open_workspace`` takes."""
        async with self.opened(goal, options, watched=True) as going:
            yield going

    @asynccontextmanager
    async def opened(self, goal: str, options: GoalOptions, *, watched: bool) -> AsyncIterator[Run]:
        """A run, with or without events kept for its caller."""
        check_options(options, GoalOptions)
        prepared = prepare(goal, options, self._config)
        parts = self._parts_with(prepared.models, prepared.topologies)
        async with _going(await _start(prepared.spec, parts), watched=watched) as going:
            yield going

    async def run(self, goal: str, **options: Unpack[GoalOptions]) -> Outcome:
        """As ``romanesco.run``."""
        async with self.opened(goal, options, watched=False) as going:
            return await going.outcome()

    async def plan(self, goal: str, **options: Unpack[GoalOptions]) -> Plan:
        """As ``romanesco.plan``."""
        check_options(options, GoalOptions)
        prepared = prepare(goal, options, self._config)
        return await _plan_run(prepared.spec, self._parts_with(prepared.models, prepared.topologies))

    @asynccontextmanager
    async def open_resumed(
        self, run: str, *, budget: Budget | None = None, resend: bool = False, **options: Unpack[ModelOption]
    ) -> AsyncIterator[Run]:
        """As ``romanesco.open_resumed``."""
        async with self.resumed(run, budget, options, resend=resend, watched=True) as going:
            yield going

    @asynccontextmanager
    async def resumed(
        self, run: str, budget: Budget | None, options: ModelOption, *, resend: bool, watched: bool
    ) -> AsyncIterator[Run]:
        """A run that goes on, with or without events kept for its caller."""
        session = await _resume(run, self._parts_again(options), _changes(budget), resend=resend)
        async with _going(session, watched=watched) as going:
            yield going

    async def resume(
        self, run: str, *, budget: Budget | None = None, resend: bool = False, **options: Unpack[ModelOption]
    ) -> Outcome:
        """As ``romanesco.resume``."""
        async with self.resumed(run, budget, options, resend=resend, watched=False) as going:
            return await going.outcome()

    async def replay(self, run: str, **options: Unpack[ModelOption]) -> Outcome:
        """As ``romanesco.replay``."""
        async with _going(await _replay(run, self._parts_again(options)), watched=False) as going:
            return await going.outcome()

    def _parts_again(self, options: ModelOption) -> Parts:
        check_options(options, ModelOption)
        return self._parts_with(choose_models(options.get("model"))[1], ())

    def _parts_with(self, models: Iterable[ChatModel], topologies: Iterable[Topology]) -> Parts:
        """The parts, with a run's own models and topologies added.

        Raises:
            InputError: Another model of the same name was given to this workspace before.
        """
        for model in models:
            if self._own.setdefault(model.name, model) is not model:
                raise InputError(
                    "Two models of one name were given to the workspace",
                    value=model.name,
                    advice="Give each adapter a name of its own.",
                )
            self._parts.pool.add(model)
        more = tuple(topologies)
        if not more:
            return self._parts
        return replace(self._parts, topologies=Topologies([*self._parts.topologies.own, *more]))


def _changes(budget: Budget | None) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in to_json(budget or Budget()).items() if value is not None)


@asynccontextmanager
async def _going(session: Session, *, watched: bool) -> AsyncIterator[Run]:
    going = Run(session, watched=watched)
    try:
        yield going
    except BaseException as error:
        await going.close()
        if going.untold is not None:
            error.add_note(f"The run {going.id} had failed as well: {going.untold}")
        raise
    await going.close()
    if going.untold is not None:
        raise going.untold


@asynccontextmanager
async def open_workspace(**options: Unpack[SpaceOptions]) -> AsyncIterator[Workspace]:
    """Open a place for many runs; leaving it closes what they shared.

    Args:
        **options:
            ``config``: what is in force; by default ``romanesco.toml`` and the environment are read;
            ``store``, ``embedder``, ``engine``, ``hooks``, ``topologies``: parts in place of the configured ones.

    Raises:
        TypeError: There is no such option.
        RomanescoError: The configuration is wrong, or the journal can't be opened.
    """
    check_options(options, SpaceOptions)
    given: dict[str, Any] = dict(options)
    config = given.pop("config", None) or load_config()
    async with open_parts(config, **given) as parts:
        yield Workspace(parts, config)
