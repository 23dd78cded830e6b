"""What each member is shown, one small function a form of asking.

Blindness is in the signatures: ``render_generation`` and ``render_blind_challenge`` have no parameter through which
another member's text could come; ``render_critique`` sees one proposal and nothing of who made it. Text that somebody
else wrote (sources, proposals, critiques) is clipped and delimited as data.

Two styles: ``compact`` for windows up to about 4,000 tokens, short asks in plain words; ``full`` says all that a big
model needs to do the role well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from romanesco.models._types import Message
from romanesco.personas import Persona
from romanesco.topologies._text import disarmed, fenced, one_line, tagged, wrap
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal import _wording as w
from romanesco.topologies.fractal._params import Caps

Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """How prompts are written: the style and the output caps that they state."""

    style: str
    caps: Caps

    @property
    def compact(self) -> bool:
        """Whether the short style is used."""
        return self.style == "compact"


@dataclass(frozen=True, slots=True)
class Shown:
    """A proposal as another member sees it: its id and text, not its author."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A proposal as the Decision Maker sees it: with the critiques of each evaluator that answered."""

    id: str
    text: str
    critiques: tuple[tuple[str, ...], ...] = ()
    backers: int = 0


# ---- the divergent mode ---------------------------------------------------------------------------------------


def render_generation(persona: Persona, goal: str, payload: str, form: Form, *, cite: bool = False) -> Messages:
    """Round 1, blind: the member's own proposal from the goal and its own payload.

    Args:
        persona: Who is asked.
        goal: The goal.
        payload: The member's own excerpts of the sources, "" for none.
        form: Style and caps.
        cite: Whether the reply lists the statements that it takes from the sources.
    """
    if form.compact:
        ask = w.COMPACT_GENERATION.format(words=_words(form.caps.proposal))
        return _compact(persona, [f"Goal: {goal}", _notes(payload), ask])
    rules = w.GENERATION_CITED if cite else w.GENERATION
    return _full(persona, w.GENERATOR, [_goal(goal), _sources(payload), rules, _limit(form.caps.proposal)])


def render_blind_challenge(persona: Persona, goal: str, payload: str, form: Form) -> Messages:
    """Round 1, blind: the Frame Challenger's three parts (Def. 11)."""
    if form.compact:
        ask = w.COMPACT_CHALLENGE.format(words=_words((form.caps.proposal - 28) // 3))
        return _compact(persona, [f"Goal: {goal}", _notes(payload), ask])
    rules = [w.CHALLENGE, _limit(form.caps.proposal)]
    return _full(persona, w.CHALLENGER, [_goal(goal), _sources(payload), *rules])


def render_integration(
    persona: Persona,
    goal: str,
    own: Shown,
    challenge: Shown | None,
    others: Sequence[Shown],
    form: Form,
    *,
    round: int,
    rounds: int,
) -> Messages:
    """Round 2 and later: answer the challenge, improve the own proposal, name the proposal that is backed.

    Args:
        persona: Who is asked.
        goal: The goal.
        own: Its latest proposal.
        challenge: The Frame Challenger's latest proposal, or None if it has none.
        others: The other members' latest proposals, without the challenge.
        form: Style and caps.
        round: This round.
        rounds: Rounds at most.
    """
    cap = form.caps.proposal
    if form.compact:
        parts = [f"Goal: {goal}", f"Your proposal {_short(own, cap)}"]
        if challenge:
            parts.append(f"A challenge to the goal's frame {_short(challenge, cap)}")
        if others:
            parts.append("\n".join(["Others:", *(_short(one, cap) for one in others)]))
        ask = w.COMPACT_INTEGRATION.format(round=round, rounds=rounds, words=_words(cap - 20))
        return _compact(persona, [*parts, ask])
    parts = [_goal(goal), _tagged(own, cap, whose="yours")]
    if challenge:
        parts.append(tagged("challenge", challenge.text, cap, id=challenge.id))
    parts.extend(_tagged(one, cap) for one in others)
    rules = w.INTEGRATION.format(round=round, rounds=rounds)
    return _full(persona, w.GENERATOR, [*parts, rules, _limit(cap)])


def render_challenge(
    persona: Persona,
    goal: str,
    own: Shown,
    others: Sequence[Shown],
    form: Form,
    *,
    round: int,
    rounds: int,
) -> Messages:
    """Round 2 and later: the Frame Challenger's form, with its stance on its own frame."""
    cap = form.caps.proposal
    if form.compact:
        parts = [f"Goal: {goal}", f"Your challenge {_short(own, cap)}"]
        if others:
            parts.append("\n".join(["Others:", *(_short(one, cap) for one in others)]))
        words = _words((cap - 42) // 3)
        return _compact(persona, [*parts, w.COMPACT_STANCE.format(round=round, rounds=rounds, words=words)])
    parts = [_goal(goal), tagged("challenge", own.text, cap, id=own.id, whose="yours")]
    parts.extend(_tagged(one, cap) for one in others)
    rules = w.STANCE.format(round=round, rounds=rounds)
    return _full(persona, w.CHALLENGER, [*parts, rules, _limit(cap)])


# ---- the convergent mode --------------------------------------------------------------------------------------


def render_critique(evaluator: Persona, goal: str, proposal: Shown, form: Form) -> Messages:
    """One evaluator, one proposal: exactly three critiques."""
    if form.compact:
        words = _words((form.caps.critiques - 15) // d.CRITIQUES)
        parts = [f"Goal: {goal}", f"Proposal {_short(proposal, form.caps.proposal)}"]
        return _compact(evaluator, [*parts, w.COMPACT_CRITIQUE.format(count=d.CRITIQUES, words=words)])
    rules = w.CRITIQUE.format(count=d.CRITIQUES, words=_words(form.caps.critique))
    return _full(evaluator, w.EVALUATOR, [_goal(goal), _tagged(proposal, form.caps.proposal), rules])


def render_decision(goal: str, matrix: Sequence[MatrixRow], ledger: Sequence[str], form: Form) -> Messages:
    """The Decision Maker: goal, the flat matrix proposal x evaluator x critique, and the ledger (full style only).

    Args:
        goal: The goal.
        matrix: Each proposal with its critiques; an evaluator's critique of its own proposal is not among them,
            because it is not weighed.
        ledger: Entries so far, one text each.
        form: Style and caps.
    """
    caps = form.caps
    if form.compact:
        rows = "\n".join(_short_row(row, caps) for row in matrix)
        words = _words((caps.decision - 50) // 2)
        ask = w.COMPACT_DECISION.format(words=words, few=_words((caps.decision - 50) // 6))
        return (Message("system", w.COMPACT_DECIDER), Message("user", _join([f"Goal: {goal}", rows, ask])))
    blocks = [_goal(goal), *(_full_row(row, caps) for row in matrix)]
    blocks.append(tagged("ledger", "\n".join(f"- {one_line(entry)}" for entry in ledger), caps.decision))
    ask = w.DECISION.format(words=_words(caps.decision))
    return (Message("system", f"{w.DECIDER}\n\n{w.DATA}"), Message("user", _join([*blocks, ask])))


def render_wrap_up(goal: str, proposals: Sequence[Shown], form: Form) -> Messages:
    """The one short call that is held back for a run whose budget ends: the best answer from what there is."""
    cap = form.caps.proposal
    words = _words(form.caps.decision)
    if form.compact:
        rows = "\n".join(_short(one, cap) for one in proposals)
        ask = w.COMPACT_WRAP_UP.format(words=words)
        return (Message("system", w.COMPACT_DECIDER), Message("user", _join([f"Goal: {goal}", rows, ask])))
    ask = w.WRAP_UP.format(words=words)
    blocks = [_goal(goal), *(_tagged(one, cap) for one in proposals), ask]
    return (Message("system", f"{w.DECIDER}\n\n{w.DATA}"), Message("user", _join(blocks)))


def label(proposal: str, form: Form) -> str:
    """What prompts call a proposal: its id in the full style, its author's letter in the compact one.

    An id such as ``P2.1`` sends a very small model into counting (``2.1.1.1``) until its cap.
    """
    return "ABCDE"[int(proposal[1]) - 1] if form.compact else proposal


# ---- pieces ---------------------------------------------------------------------------------------------------


def challenge_text(parts: Mapping[str, str]) -> str:
    """The Frame Challenger's parts as one text: what the others read and what is decided on."""
    return (
        f"This fails: {parts['failure_scenario'].strip()} Instead: {parts['alternative_mechanism'].strip()} "
        f"Change: {parts['modification'].strip()}"
    )


def _compact(persona: Persona, parts: Sequence[str]) -> Messages:
    return (Message("system", f"You are the {persona.name}. {persona.brief}"), Message("user", _join(parts)))


def _full(persona: Persona, role: str, parts: Sequence[str]) -> Messages:
    system = f"You are the {persona.name}. {persona.charter}\n\n{role}\n\n{w.DATA}"
    return (Message("system", system), Message("user", _join(parts)))


def _join(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _words(tokens: int) -> int:
    """Words that fit so many tokens with some room: what a model is told, since it can't count tokens."""
    return max(5, tokens * 6 // 10)


def _limit(tokens: int) -> str:
    return f"Write at most {_words(tokens)} words in all."


def _goal(goal: str) -> str:
    return f"Goal:\n{goal}"


def _notes(payload: str) -> str:
    # Sized by the plan and not clipped here; one line a paragraph would lose tables and code.
    return f'Notes:\n"""\n{payload.replace(chr(34) * 3, chr(39) * 3)}\n"""' if payload else ""


def _sources(payload: str) -> str:
    return wrap("sources", disarmed(payload)) if payload else ""


def _short(one: Shown, tokens: int) -> str:
    return f"[{one.id}] {fenced(one.text, tokens)}"


def _tagged(one: Shown, tokens: int, **attributes: str) -> str:
    return tagged("proposal", one.text, tokens, id=one.id, **attributes)


def _short_row(row: MatrixRow, caps: Caps) -> str:
    lines = [f"[{row.id}] {fenced(row.text, caps.proposal)}"]
    # One fence for an evaluator's critiques, not one each: two tokens for each fence count in a small window.
    lines.extend(f"- {fenced(' | '.join(texts), caps.critiques)}" for texts in row.critiques)
    return "\n".join(lines)


def _full_row(row: MatrixRow, caps: Caps) -> str:
    proposal = tagged("proposal", row.text, caps.proposal, id=row.id, backers=str(row.backers))
    if not row.critiques:
        return proposal
    blocks = [
        tagged("critiques", "\n".join(f"- {one_line(text)}" for text in texts), caps.critiques, of=row.id)
        for texts in row.critiques
    ]
    return "\n".join([proposal, *blocks])
