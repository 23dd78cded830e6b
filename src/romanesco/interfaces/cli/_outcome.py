"""An outcome as text: what was cut short and how to go on, the answer, the dissent, what it cost. Pure."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from romanesco.interfaces.cli._ending import Refusal, ending_parts
from romanesco.interfaces.cli._grid import Labelled
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._spent import spent_parts, time_part
from romanesco.interfaces.cli._text import clean, count, one_line
from romanesco.runtime import overrun_text
from romanesco.task import Dissent, Outcome, Status

_LINE = 160


def outcome_parts(outcome: Outcome, refusal: Refusal | None = None) -> list[RenderableType]:
    """What a run ends with on the screen.

    Args:
        outcome: How it ended.
        refusal: The limit that cut it short, if one did.
    """
    parts = ending_parts(outcome, refusal)
    if parts:
        parts.append(plain(""))
    completed = outcome.status is Status.COMPLETED  # the label of any other tells its note
    note = outcome.note.replace(overrun_text(outcome.overruns), "").strip() if completed else ""
    if note:
        parts += [plain((f"Note: {one_line(note)}", "dim")), plain("")]
    parts.append(Text(clean(outcome.answer)) if outcome.answer else plain(("(no answer)", "dim")))
    parts.append(plain(""))
    parts += dissent_lines(outcome.dissent)
    parts.append(Labelled("cost  ", cost_text(outcome)))
    if outcome.head:
        parts.append(Labelled("head  ", outcome.head, whole=True))
    if outcome.certificate:
        parts.append(Labelled("cert  ", outcome.certificate, whole=True))
    if outcome.run:
        parts.append(Labelled("more  ", f"romanesco show {outcome.run}", whole=True))
    return parts


def dissent_lines(dissent: tuple[Dissent, ...]) -> list[RenderableType]:
    """One line for each position that did not carry, with all who held it."""
    return [
        Labelled("dissent  ", plain((members, "bold"), f" for {proposal}: {one_line(position, _LINE)}"))
        for members, proposal, position in positions(dissent)
    ]


def positions(dissent: tuple[Dissent, ...]) -> list[tuple[str, str, str]]:
    """Who held it, the proposal, and the position: once for each position, in the order of who held it first."""
    held: dict[tuple[str, str], list[str]] = {}
    for one in dissent:
        held.setdefault((one.proposal, one.position), []).append(one.member)
    return [(", ".join(members), proposal, position) for (proposal, position), members in held.items()]


def cost_text(outcome: Outcome, in_flight: int = 0) -> str:
    """What it cost, of what at most.

    Args:
        outcome: How it ended, or how it stands.
        in_flight: Calls that a living process has out; the spend holds them at their worst case.
    """
    spend = outcome.spend
    tokens = spend.tokens_in + spend.tokens_out
    told = [*spent_parts(spend.calls, tokens, spend.usd, outcome.bill, outcome.budget)]
    told.append(time_part(spend.seconds, outcome.budget))
    if spend.cached:
        told.append(f"{spend.cached:,} tokens in from a cache")
    if spend.estimated:
        told.append("estimated in part")
    if in_flight:
        told.append(f"{count(in_flight, 'call')} in flight, counted in full until {_it(in_flight)} done")
    if spend.in_doubt:
        told.append(f"{count(spend.in_doubt, 'call')} in doubt, counted in full")
    return ", ".join(told)


def _it(number: int) -> str:
    return "it is" if number == 1 else "they are"
