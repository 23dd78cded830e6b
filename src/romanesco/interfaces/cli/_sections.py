"""The parts of ``show``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from romanesco.errors import InputError
from romanesco.interfaces.cli._bill import cost_table, limits_text
from romanesco.interfaces.cli._ending import ending_parts, overrun_parts, way_on, way_part
from romanesco.interfaces.cli._grid import Grid, Labelled
from romanesco.interfaces.cli._outcome import cost_text, positions
from romanesco.interfaces.cli._read import INTERRUPTED, RUNNING, Record
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._text import clean, count, moment, one_line, ratio, seconds
from romanesco.task import Critique, Deliberation

_BAR = 30
_INDENT = "  "


def check_sections(names: Sequence[str]) -> None:
    """Refuse a section that does not exist.

    Raises:
        InputError: It does not.
    """
    for name in names:
        if name not in SECTIONS:
            raise InputError("show has no such section", value=name, limit=", ".join(SECTIONS))


def render(record: Record, names: Sequence[str]) -> list[RenderableType]:
    """The sections asked for, all of them by default; those that a run has nothing for are left out."""
    parts: list[RenderableType] = [] if names else _header(record)
    for name in names or SECTIONS:
        found = SECTIONS[name](record)
        if found and len(names) != 1:
            parts += [plain(""), plain((name, "bold underline"))]
        parts += found
        if not found and names:
            parts.append(plain((f"The run has no {name}.", "dim")))
    return parts


def _header(record: Record) -> list[RenderableType]:
    parts: list[RenderableType] = [
        plain((record.run, "bold"), f"  {record.plan.topology}  ", (record.status, "bold cyan")),
        Labelled("goal   ", one_line(record.spec.task.goal, 500)),
        *label_parts(record),
    ]
    for question in record.questions:
        parts += _question(record, question)
    return parts


def label_parts(record: Record) -> list[RenderableType]:
    """What was cut short, by which limit, and how to go on; nothing for a run that is completed."""
    if record.ended:
        return ending_parts(record.outcome, record.refusal)
    out, doubt = record.in_flight, record.outcome.spend.in_doubt
    if record.status == RUNNING:
        told = f" {count(out, 'call')} {'is' if out == 1 else 'are'} in flight." if out else ""
        running = plain((f"Running: what follows is what there is so far.{told}", "yellow"))
        return [running, *overrun_parts(record.outcome)]
    told = f" {count(doubt, 'call')} {'was' if doubt == 1 else 'were'} in flight then." if doubt else ""
    text = f"{INTERRUPTED.upper()}: its process ended first. What follows is what there is so far.{told}"
    way = way_on(record.outcome, None)
    way_parts = [] if way is None else [way_part(way)]
    return [plain((text, "bold yellow")), *way_parts, *overrun_parts(record.outcome)]


def _question(record: Record, question: dict[str, object]) -> list[RenderableType]:
    asked, command = one_line(str(question["question"]), 500), f"romanesco answer {record.run} {question['id']} TEXT"
    return [
        Labelled(f"question {question['id']}: ", asked, style="bold yellow"),
        Labelled("answer it: ", command, whole=True),
    ]


def _answer(record: Record) -> list[RenderableType]:
    if not record.outcome.answer:
        return []
    parts: list[RenderableType] = [Text(clean(record.outcome.answer))]
    if record.outcome.note and not record.ended:
        parts.append(plain((one_line(record.outcome.note), "dim")))
    return parts


def _decision(record: Record) -> list[RenderableType]:
    team = record.deliberation
    if team is None or team.decision is None:
        return []
    decision = team.decision
    author = next((one.member for one in team.proposals if one.id == decision.chosen), "")
    parts: list[RenderableType] = [
        Labelled("chosen     ", plain((decision.chosen, "bold"), f" of {author}, by {decision.by} ({decision.model})"))
    ]
    for label, others in (("absorbed   ", decision.absorbed), ("discarded  ", decision.discarded)):
        parts += [Labelled(label, plain((one, "bold"), f" {one_line(why)}")) for one, why in others.items()]
    if team.backing:
        votes = ", ".join(f"{proposal} {votes}" for proposal, votes in team.backing.items())
        parts.append(Labelled("backing    ", votes))
    return parts


def _dissent(record: Record) -> list[RenderableType]:
    dissent = record.outcome.dissent
    parts: list[RenderableType] = [
        Labelled(f"{members} ", f"for {proposal}: {one_line(position)}", style="bold")
        for members, proposal, position in positions(dissent)
    ]
    grounds = dict.fromkeys(ground for one in dissent for ground in one.grounds)
    if grounds:
        parts.append(plain(("grounds against the choice:", "dim")))
    parts += [Labelled(_INDENT, plain((one_line(ground), "dim"))) for ground in grounds]
    return parts


def _proposals(record: Record) -> list[RenderableType]:
    team = record.deliberation or Deliberation()
    parts: list[RenderableType] = []
    for number in sorted({one.round for one in team.proposals}):
        parts.append(plain((f"round {number}{' (blind)' if number == 1 else ''}", "bold")))
        for one in (proposal for proposal in team.proposals if proposal.round == number):
            backs = f", backs {one.backs}" if one.backs else ""
            cut = ", cut at the cap" if one.truncated else ""
            parts.append(plain((f"{one.id} ", "bold"), (f"{one.member}{backs}{cut} ({one.model})", "dim")))
            parts += [Labelled(_INDENT, line) for line in clean(one.text).splitlines()]
    if team.missing:
        parts.append(plain((f"nothing came from: {', '.join(team.missing)}", "yellow")))
    return parts


def _critiques(record: Record) -> list[RenderableType]:
    team = record.deliberation or Deliberation()
    if not team.critiques:
        return []
    evaluators = list(dict.fromkeys(one.evaluator for one in team.critiques))
    proposals = list(dict.fromkeys(one.proposal for one in team.critiques))
    table = Grid("proposal", *evaluators, lines=True)
    for proposal in proposals:
        cells = [_cell(team.critiques, proposal, evaluator) for evaluator in evaluators]
        table.add_row(plain((proposal, "bold")), *cells)
    return [table]


def _cell(critiques: Sequence[Critique], proposal: str, evaluator: str) -> Text:
    mine = [one for one in critiques if (one.proposal, one.evaluator) == (proposal, evaluator)]
    own = "\n(its own proposal: not weighed)" if any(one.own for one in mine) else ""
    return plain("\n".join(f"{one.index}. {one_line(one.text)}" for one in mine) + own)


def _ledger(record: Record) -> list[RenderableType]:
    team = record.deliberation or Deliberation()
    return [
        Labelled(
            one.kind.ljust(11),
            plain(
                one_line(one.text),
                (f"  {one.by}, round {one.round}{', ' + ', '.join(one.evidence) if one.evidence else ''}", "dim"),
            ),
        )
        for one in team.ledger
    ]


def _diversity(record: Record) -> list[RenderableType]:
    """Declared distance, then a bar and the observed distance for each round; unknown is no bar and says so."""
    team = record.deliberation or Deliberation()
    most = max((point.value for point in team.diversity if point.value is not None), default=0.0)
    lines: list[RenderableType] = []
    for point in team.diversity:
        filled = round(_BAR * point.value / most) if point.value is not None and most > 0 else 0
        bar = "#" * filled + "." * (_BAR - filled)
        first = point.round == 1 and point.ratio is None
        told = [f"observed distance {ratio(point.distance)}"]
        told += [] if first else [f"gain ratio {ratio(point.ratio)}", f"switch below {point.threshold:g}"]
        drawn = plain((bar, "cyan"), f"  {ratio(point.value)}", (f"  {', '.join(told)}", "dim"))
        lines.append(Labelled(f"round {point.round}  ", drawn, style=""))
    if lines:
        lines.insert(0, _declared(record.plan.params))
    if team.stop:
        lines.append(plain((f"the divergent mode ended by: {team.stop}", "dim")))
    return lines


def _declared(params: dict[str, Any]) -> Text:
    """The least distance of two proposers by the biases that they state; what was observed stands in each round."""
    delta = params.get("delta")
    wanted = "" if delta is None else f", the least that is wanted is {delta:g}"
    return plain((f"declared distance {ratio(params.get('distance'))} between the nearest two{wanted}", "dim"))


def _costs(record: Record) -> list[RenderableType]:
    spent = record.outcome.times
    own = f"{seconds(spent.own)} of its own" if spent.active else ""
    split = (
        f"summed over {count(spent.calls, 'finished call')}: {seconds(spent.queue)} waiting for a slot, "
        f"{seconds(spent.first_token)} until the first token, {seconds(spent.generating)} generating, "
        f"{seconds(spent.parse)} of it reading"
    )
    parts: list[RenderableType] = [
        cost_table(record.lines),
        Labelled("spent  ", cost_text(record.outcome, record.in_flight)),
    ]
    budget = record.spec.budget
    time = "" if budget.seconds is None else seconds(budget.seconds)
    limits = ", ".join(filter(None, (limits_text(budget), time)))
    if limits:
        parts.append(Labelled("limits ", limits))
    if own:
        parts.append(
            Labelled("time   ", f"{seconds(spent.active)} active: {seconds(spent.waiting)} with models, {own}")
        )
        parts.append(Labelled("       ", plain((split, "dim"))))
    return parts


def _about(record: Record) -> list[RenderableType]:
    spec, plan = record.spec, record.plan
    pairs = [("model", f"{role}: {name}") for role, name in spec.models.items()]
    pairs += [
        ("guard", f"{point}: {', '.join(names)}") for point, names in record.state.created.get("guards", {}).items()
    ]
    pairs += [("source", f"{one.name} ({len(one.text):,} characters)") for one in spec.task.sources]
    pairs += [("account", one.name) for one in spec.shared]
    pairs += [("reason", reason) for reason in plan.reasons]
    pairs += [
        ("started", moment(record.head.created)),
        ("updated", moment(record.head.updated)),
        ("events", f"{record.head.seq:,}"),
        ("head", record.head.hash),
    ]
    return [Labelled(f"{name.ljust(8)} ", value, whole=name == "head") for name, value in pairs]


SECTIONS: dict[str, Callable[[Record], list[RenderableType]]] = {
    "answer": _answer,
    "decision": _decision,
    "dissent": _dissent,
    "proposals": _proposals,
    "critiques": _critiques,
    "ledger": _ledger,
    "diversity": _diversity,
    "costs": _costs,
    "about": _about,
}
