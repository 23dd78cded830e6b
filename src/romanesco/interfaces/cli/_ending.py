"""What cut a run short: which account, what it held, its limit; and the command that goes on from there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from romanesco.errors import BudgetExceeded, StopReason
from romanesco.interfaces.cli._grid import Labelled
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._text import money, one_line
from romanesco.runtime import overrun_text
from romanesco.task import Outcome, Status

OPTIONS = {"tokens": "--tokens N", "usd": "--usd AMOUNT", "calls": "--calls N", "seconds": "--minutes N"}
"""The option of ``resume`` that sets a limit, by dimension."""
_RUN = "run"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an account refused, as the journal holds it.

    Attributes:
        account: Full name of the account: ``run`` is the user's own limit, ``run/line:retry`` a line of the bill.
        dimension: Of what there was too little.
        value: What the account would have held.
        limit: What it may hold.
        what: The refusal's own words.
    """

    account: str
    dimension: str
    value: str
    limit: str
    what: str = ""


def refusal_of(kind: str, data: Mapping[str, Any]) -> Refusal | None:
    """The refusal that an event tells of, if it does."""
    if kind != "step.failed" or data.get("error") != BudgetExceeded.code:
        return None
    value, limit = (str(data.get(name)) for name in ("value", "limit"))
    return Refusal(str(data["account"]), str(data["dimension"]), value, limit, str(data.get("what", "")))


def cut_by(outcome: Outcome, refusals: Iterable[Refusal]) -> Refusal | None:
    """The refusal that ended a run, None if no limit did.

    A run may have met several; the outcome says of what there was too little, and its note which of them it was.
    """
    if outcome.reason not in (StopReason.BUDGET, StopReason.DEADLINE):
        return None
    dimension = "seconds" if outcome.reason is StopReason.DEADLINE else outcome.dimension
    met = [one for one in refusals if one.dimension == dimension]
    told = [one for one in met if one.what and one.what in outcome.note]
    if found := told or met:
        return found[-1]
    if dimension == "seconds" and outcome.budget.seconds is not None:  # a run whose time ends while it waits
        return Refusal(_RUN, dimension, f"{outcome.spend.seconds:.1f} s", f"{outcome.budget.seconds} s")
    return None


@dataclass(frozen=True, slots=True)
class Way:
    """How to go on: in words, and the command; "" if there is none."""

    words: str
    command: str


_BY_REASON: dict[StopReason, Way] = {
    StopReason.DEADLINE: Way("Go on with more time", "romanesco resume {run} --minutes N"),
    StopReason.STOPPED: Way("Go on", "romanesco resume {run}"),
    StopReason.INTERRUPTED: Way("Go on", "romanesco resume {run}"),
    StopReason.MODEL: Way("Go on when the model answers", "romanesco resume {run}"),
    StopReason.STORAGE: Way("Go on when the journal can be written", "romanesco resume {run}"),
    StopReason.DIVERGED: Way("Start a new run; this one stays readable", "romanesco show {run}"),
    StopReason.INTERNAL: Way("What happened stands in its journal; try again", "romanesco resume {run}"),
}


def way_on(outcome: Outcome, refusal: Refusal | None) -> Way | None:
    """How a run that was cut short goes on; None if a resume would end as it did."""
    if outcome.status is Status.COMPLETED or not outcome.run:
        return None
    if outcome.status is Status.CANCELLED and outcome.bill is None:
        return None  # it was never planned; its note says what to do
    if refusal is not None and refusal.account != _RUN:
        return _beyond(refusal, outcome)
    if outcome.reason is not StopReason.BUDGET:
        way = _BY_REASON.get(outcome.reason)
        return None if way is None else Way(way.words, way.command.format(run=outcome.run))
    dimension = outcome.dimension or "tokens"
    if dimension not in OPTIONS:  # a limit that only the library can set
        return Way("Go on from Python", f'await romanesco.resume("{outcome.run}", budget=Budget({dimension}=N))')
    return Way(f"Go on with a higher limit{_above(outcome, dimension)}", _resume(outcome.run, dimension))


def _resume(run: str, dimension: str) -> str:
    return f"romanesco resume {run} {OPTIONS[dimension]}"


def _above(outcome: Outcome, dimension: str) -> str:
    """What the new limit must be above, and what is enough."""
    limit = getattr(outcome.budget, dimension, None)
    bill = outcome.bill if outcome.bill is not None and outcome.bill.lines else None
    most = getattr(bill, dimension, None)
    show = money if dimension == "usd" else "{:,}".format
    told = [] if limit is None else [f"above {show(limit)}"]
    told += [] if most is None or limit is None or most <= limit else [f"{show(most)} is the whole bill"]
    return f" ({'; '.join(told)})" if told else ""


def _beyond(refusal: Refusal, outcome: Outcome) -> Way:
    """A limit that stays as it is for as long as the run lives; but for a bill that kills have used up."""
    kind, _, name = refusal.account.removeprefix(f"{_RUN}/").partition(":")
    if kind == "line" and outcome.spend.in_doubt:
        return Way("Go on, with the calls in doubt on the bill once more", f"romanesco resume {outcome.run} --resend")
    if kind == "line":
        return Way("A printed bill does not grow, so a resume ends here too. Plan a larger run", "romanesco plan GOAL")
    if kind == "role":
        where = f"[limits.{name}] of romanesco.toml"
        return Way(f"{where} counts from a run's start. Raise it and start a new run", "romanesco run GOAL")
    return Way("A node's share stays as it was given. Start a new run with more", "romanesco run GOAL")


def limit_text(refusal: Refusal) -> str:
    """The account, the value and the limit in one line."""
    kind, _, name = refusal.account.removeprefix(f"{_RUN}/").partition(":")
    whose = {
        "line": f"the bill's line {name}",
        "role": f"the role {name}",
        "node": f"the node {name}",
        _RUN: "the run's own limit",
    }.get(kind, refusal.account)
    account = f"(account {refusal.account}: {whose})"
    if refusal.dimension == "seconds":
        return f"{refusal.limit} of time, the wrap-up's share included; {refusal.value} were used {account}"
    value = _number(refusal.dimension, refusal.value)
    noun = "" if refusal.dimension == "usd" else f" {refusal.dimension.replace('tokens_', 'tokens ')}"
    return f"{_number(refusal.dimension, refusal.limit)}{noun}; {value} would have been needed {account}"


def _number(dimension: str, text: str) -> str:
    if dimension == "usd":
        return f"${text}"
    return f"{int(text):,}" if text.isdecimal() else text


def ending_parts(outcome: Outcome, refusal: Refusal | None = None) -> list[RenderableType]:
    """What was cut short, by which limit, and how to go on; or what a completed run used beyond its bill."""
    if outcome.status is Status.COMPLETED:
        return overrun_parts(outcome)  # any other has it in its note
    reason = "" if outcome.reason.value == outcome.status.value else f" ({outcome.reason.value})"
    label = f"{outcome.status.value.upper()}{reason}: "
    parts: list[RenderableType] = [
        plain((label, "bold yellow"), one_line(outcome.note) or "cut short"),
    ]
    if refusal is not None:
        parts.append(Labelled("limit  ", limit_text(refusal)))
    way = way_on(outcome, refusal)
    return parts if way is None else [*parts, way_part(way)]


def overrun_parts(outcome: Outcome) -> list[RenderableType]:
    """What was used beyond what was reserved, so that the bill did not bound it; nothing if nothing was."""
    said = overrun_text(outcome.overruns)
    return [plain(("OVERRUN: ", "bold yellow"), one_line(said))] if said else []


def way_part(way: Way) -> Labelled:
    """How to go on, the command in one piece."""
    return Labelled(f"{way.words}: ", way.command, style="", whole=True)
