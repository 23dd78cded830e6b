"""The parts of ``show``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.text import Text

from romanesco.errors import InputError
from romanesco.interfaces.cli._bill import cost_table, limits_text, make_table
from romanesco.interfaces.cli._outcome import cost_text, status_text
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
        plain(("goal  ", "dim"), one_line(record.spec.task.goal, 500)),
    ]
    label = status_text(record.outcome) if record.ended else _open_text(record)
    if label is not None:
        parts.append(label)
    parts += [_question(record, one) for one in record.questions]
    return parts


def _open_text(record: Record) -> Text:
    if record.status == RUNNING:
        return plain(("Running: what follows is what there is so far.", "yellow"))
    return plain(
        (
            f"{INTERRUPTED.upper()}: its process ended first. What follows is what there is so far. ",
            "bold yellow",
        ),
        f"Go on: romanesco resume {record.run}",
    )


def _question(record: Record, question: dict[str, object]) -> Text:
    return plain(
        (f"question {question['id']}: ", "bold yellow"),
        one_line(str(question["question"]), 500),
        (f"  answer it: romanesco answer {record.run} {question['id']} TEXT", "dim"),
    )


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
        plain(("chosen     ", "dim"), (decision.chosen, "bold"), f" of {author}, by {decision.by} ({decision.model})")
    ]
    parts += [
        plain(("absorbed   ", "dim"), (one, "bold"), f" {one_line(why)}") for one, why in decision.absorbed.items()
    ]
    parts += [
        plain(("discarded  ", "dim"), (one, "bold"), f" {one_line(why)}") for one, why in decision.discarded.items()
    ]
    if team.backing:
        votes = ", ".join(f"{proposal} {votes}" for proposal, votes in team.backing.items())
        parts.append(plain(("backing    ", "dim"), votes))
    return parts


def _dissent(record: Record) -> list[RenderableType]:
    dissent = record.outcome.dissent
    parts: list[RenderableType] = [
        plain((one.member, "bold"), f" for {one.proposal}: {one_line(one.position)}") for one in dissent
    ]
    grounds = dict.fromkeys(ground for one in dissent for ground in one.grounds)
    if grounds:
        parts.append(plain(("grounds against the choice:", "dim")))
    parts += [plain((f"{_INDENT}{one_line(ground)}", "dim")) for ground in grounds]
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
            parts.append(Text("\n".join(_INDENT + line for line in clean(one.text).splitlines())))
    if team.missing:
        parts.append(plain((f"nothing came from: {', '.join(team.missing)}", "yellow")))
    return parts


def _critiques(record: Record) -> list[RenderableType]:
    team = record.deliberation or Deliberation()
    if not team.critiques:
        return []
    evaluators = list(dict.fromkeys(one.evaluator for one in team.critiques))
    proposals = list(dict.fromkeys(one.proposal for one in team.critiques))
    table = make_table("proposal", *evaluators)
    table.show_lines = True
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
        plain(
            (one.kind.ljust(11), "dim"),
            one_line(one.text),
            (f"  {one.by}, round {one.round}{', ' + ', '.join(one.evidence) if one.evidence else ''}", "dim"),
        )
        for one in team.ledger
    ]


def _diversity(record: Record) -> list[RenderableType]:
    """A bar for each round; unknown is no bar and says so."""
    team = record.deliberation or Deliberation()
    most = max((point.value for point in team.diversity if point.value is not None), default=0.0)
    lines: list[RenderableType] = []
    for point in team.diversity:
        filled = round(_BAR * point.value / most) if point.value is not None and most > 0 else 0
        bar = "#" * filled + "." * (_BAR - filled)
        first = point.round == 1 and point.ratio is None
        against = "" if first else f"gain ratio {ratio(point.ratio)}, the switch is below {point.threshold:g}"
        lines.append(plain(f"round {point.round}  ", (bar, "cyan"), f"  {ratio(point.value)}", (f"  {against}", "dim")))
    if team.stop:
        lines.append(plain((f"the divergent mode ended by: {team.stop}", "dim")))
    return lines


def _costs(record: Record) -> list[RenderableType]:
    spent = record.outcome.times
    own = f"{seconds(spent.own)} of its own" if spent.active else ""
    split = (
        f"summed over {count(spent.calls, 'finished call')}: {seconds(spent.queue)} waiting for a slot, "
        f"{seconds(spent.first_token)} until the first token, {seconds(spent.generating)} generating, "
        f"{seconds(spent.parse)} of it reading"
    )
    parts: list[RenderableType] = [cost_table(record.lines), plain(("spent  ", "dim"), cost_text(record.outcome))]
    budget = record.spec.budget
    time = "" if budget.seconds is None else seconds(budget.seconds)
    limits = ", ".join(filter(None, (limits_text(budget), time)))
    if limits:
        parts.append(plain(("limits ", "dim"), limits))
    if own:
        parts.append(
            plain(("time   ", "dim"), f"{seconds(spent.active)} active: {seconds(spent.waiting)} with models, {own}")
        )
        parts.append(plain((f"       {split}", "dim")))
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
    return [plain((f"{name.ljust(8)} ", "dim"), value) for name, value in pairs]


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
