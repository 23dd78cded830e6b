"""From arguments and configuration to what a run is and what it is made of."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from romanesco._config import DEFAULT, Config
from romanesco.errors import InputError
from romanesco.models import ChatModel
from romanesco.runtime import (
    Engine,
    Hooks,
    Parts,
    RetryPolicy,
    RunSpec,
    SharedAccount,
    Topologies,
    Topology,
    new_run_id,
)
from romanesco.task import Budget, Source, Task

if TYPE_CHECKING:
    from romanesco.embeddings import Embedder
    from romanesco.journal import Store


LAST = "last"
"""What the command line calls the newest run, so no run can have it as its id."""

SOURCE_BYTES = 16_000_000
"""Largest source file."""


class SpaceOptions(TypedDict, total=False):
    """What runs are made of, where the configured parts are not wanted; see ``open_parts``."""

    config: Config | None
    store: Store
    embedder: Embedder
    engine: Engine
    hooks: Hooks
    topologies: Iterable[Topology]


class ModelOption(TypedDict, total=False):
    """Which models answer."""

    model: str | ChatModel | Mapping[str, str | ChatModel] | None


class GoalOptions(ModelOption, total=False):
    """Options of one run."""

    topology: str | Topology | None
    budget: Budget | None
    sources: Iterable[Source | Path | str]
    params: Mapping[str, Any] | None
    run: str | None


class AgainOptions(ModelOption, SpaceOptions, total=False):
    """Options of ``resume`` and ``replay``."""


class RunOptions(GoalOptions, SpaceOptions, total=False):
    """Options of ``run``, ``run_sync``, ``plan`` and ``open_run``."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run before anything is opened: what it is, and the caller's own models and topology."""

    spec: RunSpec
    models: tuple[ChatModel, ...]
    topologies: tuple[Topology, ...]


def prepare(goal: str, options: GoalOptions, config: Config) -> Prepared:
    """Turn the arguments of the library's functions into a run.

    Raises:
        InputError: Something given can't be used.
    """
    if not isinstance(goal, str):
        raise InputError("The goal is not a text", value=repr(goal)[:80])
    budget = options.get("budget")
    if budget is not None and not isinstance(budget, Budget):
        raise InputError("The budget is not a Budget", value=repr(budget)[:80], advice="Write Budget(tokens=...).")
    names, adapters = choose_models(options.get("model"))
    topology = options.get("topology")
    if isinstance(topology, type):
        raise InputError("The topology is a class", value=topology.__name__, advice="Give an instance of it.")
    own = () if topology is None or isinstance(topology, str) else (topology,)
    spec = make_spec(
        goal,
        config,
        models=names,
        topology=topology if topology is None or isinstance(topology, str) else topology.name,
        budget=budget,
        sources=read_sources(options.get("sources", ())),
        params=options.get("params"),
        run=options.get("run"),
    )
    return Prepared(spec, adapters, own)


def check_options(options: Mapping[str, Any], kind: type[Any]) -> None:
    """Refuse an option that does not exist: a misspelt budget must not be no budget.

    Raises:
        TypeError: One does not.
    """
    known = sorted(option_names(kind))
    unknown = sorted(set(options) - set(known))
    if unknown:
        near = get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise TypeError(f"unexpected option {unknown[0]!r}; {hint}")


def option_names(kind: type[Any]) -> set[str]:
    """Names of a typed dictionary's keys, its bases' included."""
    return set(kind.__required_keys__ | kind.__optional_keys__)


def space_options(options: Mapping[str, Any]) -> SpaceOptions:
    """The options that say what runs are made of."""
    return cast("SpaceOptions", {name: options[name] for name in option_names(SpaceOptions) if name in options})


def model_option(options: Mapping[str, Any]) -> ModelOption:
    """The option that says which models answer."""
    return {"model": options["model"]} if "model" in options else {}


def goal_options(options: Mapping[str, Any]) -> GoalOptions:
    """The options of one run."""
    return cast("GoalOptions", {name: options[name] for name in option_names(GoalOptions) if name in options})


def choose_models(
    model: str | ChatModel | Mapping[str, str | ChatModel] | None,
) -> tuple[dict[str, str], tuple[ChatModel, ...]]:
    """Names of models by role, and the adapters that came as objects."""
    if model is None:
        return {}, ()
    by_role: Mapping[str, str | ChatModel] = model if isinstance(model, Mapping) else {"default": model}
    for role, choice in by_role.items():
        if not isinstance(choice, str | ChatModel):
            raise InputError(
                f"The model of {role} is neither a name nor an adapter", value=repr(choice)[:80], limit="provider:model"
            )
    names = {role: choice if isinstance(choice, str) else choice.name for role, choice in by_role.items()}
    return names, tuple(choice for choice in by_role.values() if not isinstance(choice, str))


@asynccontextmanager
async def open_parts(
    config: Config,
    *,
    topologies: Iterable[Topology] = (),
    store: Store | None = None,
    embedder: Embedder | None = None,
    engine: Engine | None = None,
    hooks: Hooks | None = None,
    read_only: bool = False,
) -> AsyncIterator[Parts]:
    """Open what runs are made of, and close it again.

    Args:
        config: What is in force.
        topologies: Topologies of the caller's.
        store: A store of the caller's, which stays open; None opens the configured one.
        embedder: An embedder of the caller's; None takes the configured one.
        engine: What drives children and steps; None drives them in this process.
        hooks: Guards by hook point.
        read_only: The configured journal is only read, so it may lie where nothing can be written.
    """
    from romanesco.embeddings import StaticEmbedder
    from romanesco.journal import SQLiteStore
    from romanesco.models import ModelPool

    pool = ModelPool(config.tables, connections=max(256, config["concurrency"]))
    home = config.home()
    own_store = None
    if store is None:
        own_store = SQLiteStore(home / "journal.db", synchronous=config["synchronous"], read_only=read_only)
    # Who keeps the journal elsewhere and names no home has asked for no files in the user's own folder.
    keeps = store is None or config.values["home"].source != DEFAULT
    chosen = store or own_store
    assert chosen is not None
    parts = Parts(
        store=chosen,
        pool=pool,
        embedder=embedder if embedder is not None else StaticEmbedder(),
        topologies=Topologies(topologies),
        hooks=hooks or Hooks(),
        prices={**endpoint_prices(config), **config.tables.get("prices", {})},
        certificates=home / "certificates" if keeps else None,
        accounts=partial(shared_accounts, config),
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

    if run == LAST:
        raise InputError(
            "A run can't have that id",
            value=repr(run),
            limit="any other",
            advice=f"{LAST!r} is a keyword of the command line: it means the newest run.",
        )
    if params is not None and not isinstance(params, Mapping):
        raise InputError("The parameters are not a mapping", value=repr(params)[:80], advice='Write {"k": 3}.')
    chosen = topology or config["topology"]
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
        models=_models(config, models or {}),
        budget=merged,
        role_limits=config.role_limits(),
        shared=shared_accounts(config),
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


def shared_accounts(config: Config) -> tuple[SharedAccount, ...]:
    """The accounts across runs that a run draws on which starts or goes on now."""
    shared = []
    if config["project.name"] is not None:
        shared.append(SharedAccount(f"project:{config['project.name']}", config.shared("project")))
    if config.shared("day") != Budget():
        shared.append(SharedAccount(f"day:{datetime.now(UTC):%Y-%m-%d}", config.shared("day")))
    return tuple(shared)


def _models(config: Config, given: Mapping[str, str]) -> dict[str, str]:
    """Models by role. A default that the caller names also takes the place of the configured roles' models.

    Else a test with a scripted model, or a run on a local one, would call the configured paid ones for some roles.
    """
    configured = {} if "default" in given else config.tables.get("roles", {})
    wrong = [role for role, name in configured.items() if not isinstance(name, str)]
    if wrong:
        raise InputError("A model in [roles] is not a text", value=wrong[0], advice='Write ROLE = "provider:model".')
    return {"default": config["model"], **configured, **given}


def endpoint_prices(config: Config) -> dict[str, dict[str, Any]]:
    """Prices that stand beside endpoints: ``price_in`` and ``price_out`` of ``[models.NAME]``."""
    from romanesco.models import CUSTOM, custom_endpoints

    return {
        f"{CUSTOM}:{name}": {"input": endpoint.price_in, "output": endpoint.price_out}
        for name, endpoint in custom_endpoints(config.tables).items()
        if endpoint.price_in is not None and endpoint.price_out is not None
    }


def read_sources(sources: Iterable[Source | Path | str]) -> list[Source]:
    """Sources from text files, or as they are; files of one name in several folders are named with their paths.

    Raises:
        InputError: One of them can't be used.
    """
    if isinstance(sources, str | Path | Source):
        raise InputError("The sources must be a list", value=repr(sources)[:80], advice="Write [SOURCE].")
    given = list(sources)
    found = [read_source(source) for source in given]
    names = [source.name for source in found]
    return [
        replace(source, name=str(origin)) if names.count(source.name) > 1 and not isinstance(origin, Source) else source
        for source, origin in zip(found, given, strict=True)
    ]


def read_source(source: Source | Path | str) -> Source:
    """A source from a text file, or as it is.

    Raises:
        InputError: The file can't be read, or is not text.
    """
    if isinstance(source, Source):
        return source
    path = Path(source)
    if path.is_fifo() and not str(path).startswith("/dev/"):
        raise InputError("The source is not a file", value=str(path), advice="Nobody may ever write into this pipe.")
    try:
        with path.open("rb") as file:
            raw = file.read(SOURCE_BYTES + 1)
    except OSError as error:
        raise InputError(f"The source can't be read: {error.strerror}", value=str(path)) from None
    if len(raw) > SOURCE_BYTES:
        raise InputError(
            "The source is too large",
            value=str(path),
            limit=f"{SOURCE_BYTES // 1_000_000} MB",
            advice="Give the part that matters: no model's window holds so much.",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise InputError(
            "The source is not a text file", value=str(path), limit="UTF-8 text", advice="Convert it to text first."
        )
    if not text.strip():
        raise InputError("The source is empty", value=str(path), advice="Leave it out.")
    return Source(path.name, text)
