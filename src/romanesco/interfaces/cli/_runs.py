"""``runs`` and ``show``: what there is, and what became of it."""

from __future__ import annotations

from typing import Annotated

import typer

from romanesco.interfaces.cli import _options as o
from romanesco.interfaces.cli._wait import wait_for

Interrupted = Annotated[bool, typer.Option("--interrupted", help="Only runs whose process died before they ended.")]
Most = Annotated[
    int,
    typer.Option(
        "--limit", "-n", parser=o.whole("--limit", "0 shows all."), metavar="N", help="Show so many at most; 0: all."
    ),
]
Section = Annotated[
    list[str] | None,
    typer.Option(
        "--section",
        metavar="NAME",
        help="Only this part: answer, decision, dissent, proposals, critiques, ledger, diversity, costs, about. "
        "Repeatable.",
        show_default=False,
    ),
]

AccountOf = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="Another project than the configured one.", show_default=False),
]


def runs(interrupted: Interrupted = False, limit: Most = 20, json: o.Json = False) -> int:
    """List runs, newest first."""
    return wait_for(_runs(interrupted, limit, json))


async def _runs(interrupted: bool, limit: int, json: bool) -> None:
    from romanesco.errors import UnknownName
    from romanesco.interfaces.cli._list import Listed, list_runs
    from romanesco.interfaces.cli._read import open_store
    from romanesco.interfaces.cli._screen import Screen
    from romanesco.interfaces.cli._tables import listing, listing_advice, listing_data

    screen = Screen(json=json)
    listed: list[Listed] = []
    more, missing = 0, ""
    try:
        async with open_store() as store:
            listed, more = await list_runs(store, interrupted=interrupted, limit=limit)
    except UnknownName as error:  # before the first run there is no journal, which is no fault
        missing = f" There is no journal at {error.value}."
    screen.result(lambda: listing_data(listed), lambda: listing(listed))
    if not listed and not json:
        which = "No interrupted runs." if interrupted else 'No runs yet. Start one: romanesco run "..."'
        which = which.replace(".", f".{missing}", 1)
        screen.say(which)
    advice = None if json else listing_advice(listed)
    if advice is not None:
        screen.say(advice)
    if more:
        screen.say(f"{more} more: romanesco runs --limit 0")


def show(run: o.RunName, section: Section = None, json: o.Json = False) -> int:
    """Show what a run did, decided and cost.

    Answer, decision, dissent, proposals, critiques, ledger, diversity, costs against the bill. A run that goes on, or
    was interrupted, is shown as far as it has come.
    """
    return wait_for(_show(run, section or [], json))


async def _show(name: str, sections: list[str], json: bool) -> None:
    from romanesco.interfaces.cli._read import find_run, load_record, open_store, record_data
    from romanesco.interfaces.cli._screen import Screen
    from romanesco.interfaces.cli._sections import check_sections, label_parts, render

    check_sections(sections)
    screen = Screen(json=json)
    async with open_store() as store:
        record = await load_record(store, await find_run(store, name))
    if sections and not json:
        for part in label_parts(record):  # a part of a run that was cut short is labelled too, beside the result
            screen.say(part)
    screen.result(lambda: record_data(record), lambda: render(record, sections))


def accounts(project: AccountOf = None, json: o.Json = False) -> int:
    """Show what the accounts that runs share have used and have left.

    Those of the configured project and of today, as a new run would draw on them.
    """
    return wait_for(_accounts(project, json))


async def _accounts(project: str | None, json: bool) -> None:
    from romanesco._config import load_config
    from romanesco._prepare import shared_accounts
    from romanesco.errors import UnknownName
    from romanesco.interfaces.cli._accounts import Holder, accounts_data, accounts_table, stand, standings
    from romanesco.interfaces.cli._read import open_store
    from romanesco.interfaces.cli._screen import Screen

    screen = Screen(json=json)
    shared = shared_accounts(load_config(overrides={"project.name": project}))
    holders: list[Holder] = []
    try:
        async with open_store() as store:
            found, holders = await standings(store, shared)
    except UnknownName:  # before the first run there is no journal: nothing is used
        found = [one for account in shared for one in stand(account, {}, {})]
    screen.result(lambda: accounts_data(found, holders), lambda: accounts_table(found, holders))
    if not found and not json:
        names = ", ".join(account.name for account in shared)
        told = f"Nothing is limited or used: {names}." if shared else "Runs share no account."
        screen.say(f"{told} Set project.name, project.tokens, day.usd, ...: romanesco config")
