"""An outcome as text: the answer, what was cut short and how to go on, the dissent, the cost against the bill. Pure."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from romanesco.errors import StopReason
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._text import clean, count, money, one_line, seconds
from romanesco.task import Dissent, Outcome, Spend, Status

_LINE = 160

_GO_ON: dict[StopReason, str] = {
    StopReason.DEADLINE: "Go on with more time: romanesco resume {run} --minutes N",
    StopReason.STOPPED: "Go on: romanesco resume {run}",
    StopReason.INTERRUPTED: "Go on: romanesco resume {run}",
    StopReason.MODEL: "Go on when the model answers: romanesco resume {run}",
    StopReason.STORAGE: "Go on when the journal can be written: romanesco resume {run}",
    StopReason.DIVERGED: "Start a new run; this one stays readable: romanesco show {run}",
    StopReason.INTERNAL: "What happened: romanesco show {run}; try again: romanesco resume {run}",
}

_RESEND = "Go on, with the calls in doubt on the bill once more: romanesco resume {run} --resend"

_PLAN_AGAIN = "A line of its bill is used up; a new run with other parameters has another bill: romanesco plan GOAL"


def status_text(outcome: Outcome) -> Text | None:
    """The label of an outcome that is not completed: what was cut short, and how to go on. None if it is completed."""
    if outcome.status is Status.COMPLETED:
        return None
    reason = "" if outcome.reason.value == outcome.status.value else f" ({outcome.reason.value})"
    text = plain((f"{outcome.status.value.upper()}{reason}: ", "bold yellow"), one_line(outcome.note) or "cut short")
    go_on = _go_on(outcome)
    if go_on and outcome.run:
        text.append(f"\n{go_on.format(run=outcome.run)}")
    return text


def _go_on(outcome: Outcome) -> str:
    """How to go on. A line of the bill is no limit of the reader's, so no higher limit of theirs helps against it."""
    if outcome.reason is not StopReason.BUDGET:
        return _GO_ON.get(outcome.reason, "")
    if "/line:" in outcome.account:
        return _RESEND if outcome.spend.in_doubt else _PLAN_AGAIN
    dimension = outcome.dimension if outcome.dimension in ("tokens", "usd", "calls") else "tokens"
    return f"Go on with a higher limit: romanesco resume {{run}} --{dimension} N"


def outcome_parts(outcome: Outcome) -> list[RenderableType]:
    """What a run ends with on the screen."""
    parts: list[RenderableType] = []
    label = status_text(outcome)
    if label is not None:
        parts += [label, plain("")]
    elif outcome.note:
        parts += [plain((f"Note: {one_line(outcome.note)}", "dim")), plain("")]
    parts.append(Text(clean(outcome.answer)) if outcome.answer else plain(("(no answer)", "dim")))
    parts.append(plain(""))
    parts += dissent_lines(outcome.dissent)
    parts.append(plain(("cost  ", "dim"), cost_text(outcome)))
    if outcome.head:
        parts.append(plain(("head  ", "dim"), outcome.head))
    if outcome.certificate:
        parts.append(plain(("cert  ", "dim"), outcome.certificate))
    if outcome.run:
        parts.append(plain(("more  ", "dim"), f"romanesco show {outcome.run}"))
    return parts


def dissent_lines(dissent: tuple[Dissent, ...]) -> list[RenderableType]:
    """One line for each position that did not carry."""
    return [
        plain(("dissent  ", "dim"), (one.member, "bold"), f" for {one.proposal}: {one_line(one.position, _LINE)}")
        for one in dissent
    ]


def cost_text(outcome: Outcome) -> str:
    """What it cost, of what at most."""
    spend, bill = outcome.spend, outcome.bill
    tokens = spend.tokens_in + spend.tokens_out
    if bill is None or not bill.lines:
        return ", ".join((count(spend.calls, "call"), count(tokens, "token"), money(spend.usd), _rest(spend)))
    usd = money(spend.usd) + ("" if bill.usd is None or spend.usd is None else f" of {money(bill.usd)}")
    return f"{spend.calls:,} of {bill.calls:,} calls, {tokens:,} of {bill.tokens:,} tokens, {usd}, {_rest(spend)}"


def _rest(spend: Spend) -> str:
    rest = [seconds(spend.seconds)]
    if spend.cached:
        rest.append(f"{spend.cached:,} tokens in from a cache")
    if spend.estimated:
        rest.append("estimated in part")
    if spend.in_doubt:
        rest.append(f"{count(spend.in_doubt, 'call')} in doubt, counted in full")
    return ", ".join(rest)
