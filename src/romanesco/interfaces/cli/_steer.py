"""``stop``, ``answer`` and ``budget``: words to a run that another process is working on."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import typer

from romanesco.errors import InputError
from romanesco.interfaces.cli import _options as o
from romanesco.interfaces.cli._wait import wait_for

Target = Annotated[
    str,
    typer.Argument(
        metavar="RUN[/NODE]", help="A run's id, the start of one, or 'last'; and a node of it.", show_default=False
    ),
]
Abandon = Annotated[
    bool, typer.Option("--abandon", help="End an interrupted run with the best answer that it has so far.")
]
Words = Annotated[list[str], typer.Argument(metavar="[ID] TEXT", help="The question's id if several wait; the answer.")]
Wait = Annotated[
    int, typer.Option("--wait", parser=o.whole("--wait"), metavar="SECONDS", help="Wait so long for the owner.")
]


def _maybe(read: Any) -> Any:
    """Reads a limit, or ``none`` for no limit any more."""

    def read_or_none(text: str) -> Any:
        return "none" if text.strip().lower() == "none" else read(text)

    return read_or_none


NewTokens = Annotated[
    Any, o.limit_option("--tokens", "Tokens at most; 'none': no limit.", _maybe(o.whole("--tokens")), "N")
]
NewUsd = Annotated[Any, o.limit_option("--usd", "Dollars at most.", _maybe(o.dollars), "AMOUNT")]
NewMinutes = Annotated[Any, o.limit_option("--minutes", "Minutes at most.", _maybe(o.minutes), "N")]
NewCalls = Annotated[Any, o.limit_option("--calls", "Model calls at most.", _maybe(o.whole("--calls")), "N")]


def stop(target: Target, abandon: Abandon = False, wait: Wait = 60, json: o.Json = False) -> int:
    """Stop a run, or one node of it.

    When this is done, no request of it reaches a model any more.
    """
    from romanesco.interfaces.cli._inbox import stop_run

    return wait_for(stop_run(target, abandon=abandon, wait=wait, json=json))


def answer(run: o.RunName, words: Words, wait: Wait = 60, json: o.Json = False) -> int:
    """Answer a question that a run has asked."""
    from romanesco.interfaces.cli._inbox import answer_question

    if len(words) > 2:
        raise InputError(
            "The answer is more than one word", value=len(words), advice='Quote it: romanesco answer RUN "the answer".'
        )
    question = words[0] if len(words) == 2 else None
    return wait_for(answer_question(run, question, words[-1], wait=wait, json=json))


def budget(
    run: o.RunName,
    tokens: NewTokens = None,
    usd: NewUsd = None,
    minutes: NewMinutes = None,
    calls: NewCalls = None,
    wait: Wait = 60,
    json: o.Json = False,
) -> int:
    """Raise or lower the limits of a running run."""
    from romanesco.interfaces.cli._inbox import change_limits

    given = {"tokens": tokens, "usd": usd, "seconds": minutes, "calls": calls}
    changes = {name: _value(value) for name, value in given.items() if value is not None}
    if not changes:
        raise InputError("No limit is given", limit="--tokens, --usd, --minutes, --calls")
    return wait_for(change_limits(run, changes, wait=wait, json=json))


def _value(value: Any) -> Any:
    if value == "none":
        return None
    return str(value) if isinstance(value, Decimal) else value
