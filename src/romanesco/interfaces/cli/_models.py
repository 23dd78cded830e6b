"""``models``: what can be called, whether it answers, and what to set for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from romanesco.interfaces.cli import _options as o
from romanesco.interfaces.cli._wait import wait_for

if TYPE_CHECKING:
    from rich.console import RenderableType

    from romanesco._config import Config
    from romanesco.models import ModelPool, ProviderStatus
    from romanesco.models._openai_discovery import Discovery
    from romanesco.models._probe import ProbeReport

Probe = Annotated[
    bool,
    typer.Option(
        "--probe/--no-probe",
        help="Ask whether they answer. Models in use get up to four calls of 16 tokens; the others none.",
    ),
]
Fetch = Annotated[bool, typer.Option("--fetch", help="Fetch the files of the embedded model and embedder.")]
Into = Annotated[
    Path | None, typer.Option("--into", metavar="DIR", help="With --fetch: folder for the files.", show_default=False)
]
_LISTED = 4


def models(probe: Probe = True, fetch: Fetch = False, into: Into = None, json: o.Json = False) -> int:
    """List model providers, and what to set for them."""
    if fetch:
        from romanesco.models._fetch import main as fetch_files

        return fetch_files([] if into is None else ["--into", str(into)])
    return wait_for(_models(probe, json))


@dataclass(slots=True)
class Asked:
    """What was found out about one provider.

    Attributes:
        status: What is set for it.
        in_use: Model strings of the configuration that it serves.
        reports: Probes of these.
        discovery: What it says of itself, if it was only asked that.
        error: Why it could not be asked.
    """

    status: ProviderStatus
    in_use: tuple[str, ...] = ()
    reports: tuple[ProbeReport, ...] = ()
    discovery: Discovery | None = None
    error: str = ""


async def _models(probing: bool, json: bool) -> None:
    import asyncio
    import os

    from romanesco._config import load_config
    from romanesco.interfaces.cli._screen import Screen
    from romanesco.models import ModelPool, configured

    config = load_config()
    screen = Screen(json=json)
    listed = [Asked(status, _in_use(status, config)) for status in configured(os.environ, config.tables)]
    if probing:
        screen.say("Asking the models that are ready (--no-probe leaves it out) ...")
        pool = ModelPool(config.tables)
        try:
            async with asyncio.TaskGroup() as group:
                for asked in listed:
                    if asked.status.ready:
                        group.create_task(_ask(asked, pool))
        finally:
            await pool.close()
    screen.result(lambda: [_data(asked) for asked in listed], lambda: _render(listed, config))


def _in_use(status: ProviderStatus, config: Config) -> tuple[str, ...]:
    """Models of the configuration that a provider serves; custom endpoints and the embedded model always count."""
    names = [config["model"], *map(str, config.tables.get("roles", {}).values()), *status.models]
    prefix = f"{status.name}:"
    return tuple(dict.fromkeys(name for name in names if name.startswith(prefix) or name in status.models))


async def _ask(asked: Asked, pool: ModelPool) -> None:
    from romanesco.errors import RomanescoError
    from romanesco.models import OpenAICompatible
    from romanesco.models._probe import probe

    try:
        if asked.in_use:
            asked.reports = tuple([await probe(pool.get(name)) for name in asked.in_use])
            return
        model = pool.get(f"{asked.status.name}:none")  # only its list is asked for, which needs no model's name
        if isinstance(model, OpenAICompatible):
            asked.discovery = await model.discover()
    except RomanescoError as error:
        asked.error = str(error)


def _data(asked: Asked) -> dict[str, Any]:
    from dataclasses import asdict

    status = asked.status
    data: dict[str, Any] = {
        "provider": status.name,
        "address": status.base_url,
        "needs_key": status.needs_key,
        "key_set": status.key_set,
        "ready": status.ready,
        "advice": status.advice,
        "note": status.note,
        "in_use": list(asked.in_use),
        "answers": None,
        "error": asked.error or None,
        "models": None,
        "probes": [],
    }
    if asked.discovery is not None:
        data["answers"], data["models"] = True, asked.discovery.models
    if asked.error:
        data["answers"] = False
    for report in asked.reports:
        data["answers"] = report.reachable
        data["models"] = report.models
        data["probes"].append({**asdict(report), "error": None if report.error is None else str(report.error)})
    return data


def _render(listed: list[Asked], config: Config) -> list[RenderableType]:
    from romanesco.interfaces.cli._grid import Grid, Labelled
    from romanesco.interfaces.cli._screen import plain

    table = Grid("provider", "state", "", whole=("state",))
    for asked in listed:
        state, style, detail = describe(asked)
        table.add_row(plain((asked.status.name, "bold" if asked.in_use else "")), plain((state, style)), plain(detail))
    used = plain(f"{config['model']} ", (f"({config.values['model'].source})", "dim"))
    return [table, Labelled("in use  ", used)]


def describe(asked: Asked) -> tuple[str, str, str]:
    """State, style and detail of one provider."""
    status = asked.status
    if not status.ready:
        return "not set up", "dim", status.advice
    if asked.reports:
        return _probed(asked.reports)
    if asked.error:
        silent = "not running" if not status.needs_key else "no answer"
        return silent, "dim" if not status.needs_key else "yellow", asked.error if status.needs_key else status.base_url
    found = asked.discovery
    if found is None:
        return "key set" if status.key_set else "ready", "green", status.note
    if found.models is None:
        return "answers", "green", "it lists no models"
    more = f" and {len(found.models) - _LISTED} more" if len(found.models) > _LISTED else ""
    return "answers", "green", f"models: {', '.join(found.models[:_LISTED]) or 'none'}{more}"


def _probed(reports: tuple[ProbeReport, ...]) -> tuple[str, str, str]:
    details = []
    failed = [report for report in reports if report.error is not None]
    for report in reports:
        if report.error is not None:
            details.append(f"{report.name}: {report.error}")
            continue
        can = {
            "schema": report.json_schema,
            "grammar": report.grammar,
            "tools": report.tools,
            "usage": report.usage_in_stream,
            "exact counts": report.tokenizer,
        }
        window = "window unknown" if report.window is None else f"window {report.window:,}"
        verdicts = ", ".join(f"{name} {verdict.value}" for name, verdict in can.items())
        details.append(f"{report.name}: {window}, {verdicts}")
    state = "no answer" if len(failed) == len(reports) else "works in part" if failed else "works"
    return state, "yellow" if failed else "green", "\n".join(details)
