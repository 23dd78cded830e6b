"""The library's front door: run, resume and replay, awaited or not, with events while it happens."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from romanesco._config import Config, load_config
from romanesco.errors import InputError
from romanesco.runtime import (
    Hooks,
    Parts,
    RetryPolicy,
    RunEvent,
    RunSpec,
    Session,
    SharedAccount,
    Topologies,
    Topology,
    new_run_id,
)
from romanesco.runtime import plan_run as _plan_run
from romanesco.runtime import replay as _replay
from romanesco.runtime import resume as _resume
from romanesco.runtime import start as _start
from romanesco.task import Budget, Outcome, Plan, Source, Task

if TYPE_CHECKING:
    from romanesco.embeddings import Embedder
    from romanesco.journal import Store
    from romanesco.models import ChatModel
    from romanesco.runtime import Engine

T = TypeVar("T")
ModelChoice = "str | ChatModel | Mapping[str, str | ChatModel]"


@asynccontextmanager
async def open_parts(
    config: Config,
    *,
    models: Iterable[ChatModel] = (),
    topologies: Iterable[Topology] = (),
    store: Store | None = None,
    embedder: Embedder | None = None,
    engine: Engine | None = None,
    hooks: Hooks | None = None,
) -> AsyncIterator[Parts]:
    """Open what runs are made of, and close it again.

    Args:
        config: What is in force.
        models: Adapters of the caller's, known under their own names.
        topologies: Topologies of the caller's.
        store: A store of the caller's, which stays open; None opens the configured one.
        embedder: An embedder of the caller's; None takes the configured one.
        engine: What drives children and steps; None drives them in this process.
        hooks: Guards by hook point.
    """
    from romanesco.embeddings import StaticEmbedder
    from romanesco.journal import SQLiteStore
    from romanesco.models import ModelPool

    pool = ModelPool(config.tables)
    for model in models:
        pool.add(model)
    home = config.home()
    own_store = SQLiteStore(home / "journal.db", synchronous=config["synchronous"]) if store is None else None
    chosen_store: Store = store if store is not None else own_store  # type: ignore[assignment]
    parts = Parts(
        store=chosen_store,
        pool=pool,
        embedder=embedder if embedder is not None else StaticEmbedder(),
        topologies=Topologies(topologies),
        hooks=hooks or Hooks(),
        prices=config.tables.get("prices", {}),
        certificates=home / "certificates",
    )
    if engine is not None:
        parts.engine = engine
    try:
        yield parts
    finally:
        try:
            await pool.close()
        finally:
            if own_store is not None:
                await own_store.close()


def make_spec(
    goal: str,
    config: Config,
    *,
    models: Mapping[str, str] | None = None,
    topology: str | None = None,
    budget: Budget | None = None,
    sources: Iterable[Source] = (),
    params: Mapping[str, Any] | None = None,
    run: str | None = None,
) -> RunSpec:
    """A run as it will be journaled: the arguments, and the configuration where they are silent."""
    from romanesco.models import Deadlines

    chosen = topology or config["topology"]
    shared = []
    if config["project.name"] is not None:
        shared.append(SharedAccount(f"project:{config['project.name']}", config.shared("project")))
    if config.shared("day") != Budget():
        shared.append(SharedAccount(f"day:{datetime.now(UTC):%Y-%m-%d}", config.shared("day")))
    given = budget or Budget()
    configured = config.budget()
    merged = Budget(**{
        name: getattr(given, name) if getattr(given, name) is not None else getattr(configured, name)
        for name in Budget.__dataclass_fields__
    })
    return RunSpec(
        run=run or new_run_id(time.time),
        task=Task(goal, tuple(sources), {**config.tables.get(chosen, {}), **(params or {})}),
        topology=chosen,
        models={"default": config["model"], **config.tables.get("roles", {}), **(models or {})},
        budget=merged,
        role_limits={role: _limits(role, table) for role, table in config.tables.get("limits", {}).items()},
        shared=tuple(shared),
        embedder=config["embedder"],
        concurrency=config["concurrency"],
        deadlines=Deadlines(
            connect=config["deadlines.connect"],
            first_token=config["deadlines.first_token"],
            between_tokens=config["deadlines.between_tokens"],
            total=config["deadlines.total"],
        ),
        retry=RetryPolicy(
            attempts=config["retry.attempts"],
            rate_limited=config["retry.rate_limited"],
            base=config["retry.base"],
            cap=config["retry.cap"],
        ),
    )


def _limits(role: str, table: Any) -> Budget:
    from romanesco._codec import from_json

    allowed = ("tokens", "tokens_in", "tokens_out", "usd", "calls")
    if not isinstance(table, dict) or not set(table) <= set(allowed):
        raise InputError(f"[limits.{role}] has a wrong setting", value=str(table), limit=", ".join(allowed))
    return from_json(Budget, {name: str(value) if name == "usd" else value for name, value in table.items()})


class Run:
    """A run that is going on: its events, its plan, its outcome. Made by ``open_run``."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watcher = session.watch()
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
        return self._watcher.events()

    async def stop(self, why: str = "the caller stopped it") -> None:
        """Stop the run; when this returns, no request of it reaches a server any more."""
        await self._session.stop(f"Stopped: {why}")

    async def outcome(self) -> Outcome:
        """Wait for the end."""
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        """End the run if it still goes on."""
        if not self._task.done():
            await self.stop("the caller left")
        await asyncio.wait([self._task])


def _choose(model: Any) -> tuple[dict[str, str], list[ChatModel]]:
    """Names by role, and the adapters that came as objects."""
    if model is None:
        return {}, []
    by_role = model if isinstance(model, Mapping) else {"default": model}
    names: dict[str, str] = {}
    adapters: list[ChatModel] = []
    for role, choice in by_role.items():
        if isinstance(choice, str):
            names[role] = choice
        else:
            names[role] = choice.name
            adapters.append(choice)
    return names, adapters


@asynccontextmanager
async def open_run(
    goal: str,
    *,
    model: Any = None,
    topology: str | Topology | None = None,
    budget: Budget | None = None,
    sources: Iterable[Source | Path | str] = (),
    params: Mapping[str, Any] | None = None,
    config: Config | None = None,
    run: str | None = None,
    **parts: Any,
) -> AsyncIterator[Run]:
    """Start a run and watch it, as a context manager: leaving it ends the run.

    Args:
        goal: What is wanted.
        model: ``provider:model``, an adapter, or either by role (``default`` for the rest).
        topology: A registered name, or a topology of your own.
        budget: Limits; what is None comes from the configuration.
        sources: Texts to work from: ``Source`` records, or paths of text files.
        params: Parameters of the topology, for example ``{"k": 3, "rounds": 2}``.
        config: What is in force; None reads ``romanesco.toml`` and the environment.
        run: An id for the run; None makes one.
        **parts: ``store``, ``embedder``, ``engine``, ``hooks``, ``topologies``; see ``open_parts``.

    Raises:
        InputError: Something given can't be used; nothing was spent.
        RomanescoError: See its subclasses.
    """
    config = config or load_config()
    names, adapters = _choose(model)
    mine = [] if topology is None or isinstance(topology, str) else [topology]
    chosen = topology if isinstance(topology, str) or topology is None else topology.name
    topologies = [*parts.pop("topologies", ()), *mine]
    spec = make_spec(
        goal,
        config,
        models=names,
        topology=chosen,
        budget=budget,
        sources=[read_source(source) for source in sources],
        params=params,
        run=run,
    )
    async with open_parts(config, models=adapters, topologies=topologies, **parts) as opened:
        going = Run(await _start(spec, opened))
        try:
            yield going
        finally:
            await going.close()


def read_source(source: Source | Path | str) -> Source:
    """A source from a text file, or as it is.

    Raises:
        InputError: The file can't be read, or is not text.
    """
    if isinstance(source, Source):
        return source
    path = Path(source)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"The source can't be read: {error.strerror}", value=str(path)) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise InputError(
            "The source is not a text file", value=str(path), limit="UTF-8 text", advice="Convert it to text first."
        )
    return Source(path.name, text)


async def run(goal: str, **options: Any) -> Outcome:
    """Run a goal to its end. Options are those of ``open_run``.

    Returns:
        The outcome. A run that was cut short is an outcome too: see ``Outcome.status``.

    Raises:
        InputError: Something given can't be used; nothing was spent.
    """
    async with open_run(goal, **options) as going:
        return await going.outcome()


async def plan(goal: str, **options: Any) -> Plan:
    """Plan a goal without running it. Options are those of ``open_run``. Nothing is generated or journaled."""
    config = options.pop("config", None) or load_config()
    names, adapters = _choose(options.pop("model", None))
    sources = [read_source(source) for source in options.pop("sources", ())]
    topology = options.pop("topology", None)
    mine = [] if topology is None or isinstance(topology, str) else [topology]
    chosen = topology if isinstance(topology, str) or topology is None else topology.name
    fields = {name: options.pop(name) for name in ("budget", "params", "run") if name in options}
    spec = make_spec(goal, config, models=names, topology=chosen, sources=sources, **fields)
    async with open_parts(config, models=adapters, topologies=mine, **options) as parts:
        return await _plan_run(spec, parts)


@asynccontextmanager
async def _reopened(
    open_session: Callable[[Parts], Coroutine[Any, Any, Session]], options: dict[str, Any]
) -> AsyncIterator[Run]:
    config = options.pop("config", None) or load_config()
    _, adapters = _choose(options.pop("model", None))
    async with open_parts(config, models=adapters, **options) as parts:
        going = Run(await open_session(parts))
        try:
            yield going
        finally:
            await going.close()


async def resume(run: str, *, budget: Budget | None = None, **options: Any) -> Outcome:
    """Go on with a run from where its journal left off. Finished calls are not made again.

    Args:
        run: The run's id.
        budget: New limits, where not None.
        **options: ``model`` (adapters that came as objects), ``config``, and the parts of ``open_parts``.

    Raises:
        RunBusy: Another process owns it.
        UnknownName: No such run.
    """
    async with open_resumed(run, budget=budget, **options) as going:
        return await going.outcome()


@asynccontextmanager
async def open_resumed(run: str, *, budget: Budget | None = None, **options: Any) -> AsyncIterator[Run]:
    """Go on with a run and watch it; see ``resume`` and ``open_run``."""
    from romanesco._codec import to_json

    changes = tuple((name, value) for name, value in to_json(budget or Budget()).items() if value is not None)
    async with _reopened(lambda parts: _resume(run, parts, changes), options) as going:
        yield going


async def replay(run: str, **options: Any) -> Outcome:
    """Run a run again from its journal alone: no call is made, nothing is written. Options as for ``resume``."""
    async with _reopened(lambda parts: _replay(run, parts), options) as going:
        return await going.outcome()


def run_sync(goal: str, **options: Any) -> Outcome:
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
