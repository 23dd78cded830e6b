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
from romanesco.topologies._text import byte_cap, disarmed, fenced, fenced_list, one_line, tagged, wrap
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal import _wording as w
from romanesco.topologies.fractal._params import Caps
from romanesco.topologies.fractal._schemas import (
    CHALLENGE_JSON,
    COMPACT_DECISION_JSON,
    CRITIQUES_JSON,
    DECISION_JSON,
    EVIDENCE_JSON,
    INTEGRATION_JSON,
    STANCE_JSON,
)

Messages = tuple[Message, ...]

_WORDS_PER_TOKEN = 0.6
"""English takes 1.1 to 1.6 tokens a word, by tokenizer and text: so many words a token leave some room."""


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
class Group:
    """The critiques of one proposal by one evaluator, who is named by its persona's id."""

    evaluator: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A proposal as the Decision Maker sees it: with the critiques of each evaluator that answered."""

    id: str
    text: str
    critiques: tuple[Group, ...] = ()
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
    rules = w.GENERATION_CITED.format(count=d.EVIDENCE) if cite else w.GENERATION
    cap = form.caps.proposal - (EVIDENCE_JSON if cite else 0)
    return _full(persona, w.GENERATOR, [_goal(goal), _sources(payload), rules, _limit(cap)])


def render_blind_challenge(persona: Persona, goal: str, payload: str, form: Form) -> Messages:
    """Round 1, blind: the Frame Challenger's three parts (Def. 11)."""
    if form.compact:
        ask = w.COMPACT_CHALLENGE.format(words=_words((form.caps.proposal - CHALLENGE_JSON) // 3))
        return _compact(persona, [f"Goal: {goal}", _notes(payload), ask])
    rules = [w.CHALLENGE, _limit(form.caps.proposal - CHALLENGE_JSON)]
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
    payload: str = "",
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
        payload: The member's own excerpts of the sources, as far as the window has room for them.
    """
    cap = form.caps.proposal
    if form.compact:
        parts = [f"Goal: {goal}", _notes(payload), f"Your proposal {_short(own, cap)}"]
        if challenge:
            parts.append(f"A challenge to the goal's frame {_short(challenge, cap)}")
        if others:
            parts.append("\n".join(["Others:", *(_short(one, cap) for one in others)]))
        told = w.COMPACT_INTEGRATION if challenge else w.COMPACT_INTEGRATION_UNCHALLENGED
        ask = told.format(round=round, rounds=rounds, words=_words(cap - INTEGRATION_JSON))
        return _compact(persona, [*parts, ask])
    parts = [_goal(goal), _sources(payload), _tagged(own, cap, whose="yours")]
    if challenge:
        parts.append(tagged("challenge", challenge.text, cap, id=challenge.id))
    parts.extend(_tagged(one, cap) for one in others)
    answer = w.ANSWER_CHALLENGE if challenge else w.NO_CHALLENGE
    rules = w.INTEGRATION.format(round=round, rounds=rounds, answer=answer)
    return _full(persona, w.GENERATOR, [*parts, rules, _limit(cap - INTEGRATION_JSON)])


def render_challenge(
    persona: Persona,
    goal: str,
    own: Shown,
    others: Sequence[Shown],
    form: Form,
    *,
    round: int,
    rounds: int,
    payload: str = "",
) -> Messages:
    """Round 2 and later: the Frame Challenger's form, with its stance on its own frame."""
    cap = form.caps.proposal
    if form.compact:
        parts = [f"Goal: {goal}", _notes(payload), f"Your challenge {_short(own, cap)}"]
        if others:
            parts.append("\n".join(["Others:", *(_short(one, cap) for one in others)]))
        words = _words((cap - STANCE_JSON) // 3)
        return _compact(persona, [*parts, w.COMPACT_STANCE.format(round=round, rounds=rounds, words=words)])
    parts = [_goal(goal), _sources(payload), tagged("challenge", own.text, cap, id=own.id, whose="yours")]
    parts.extend(_tagged(one, cap) for one in others)
    rules = w.STANCE.format(round=round, rounds=rounds)
    return _full(persona, w.CHALLENGER, [*parts, rules, _limit(cap - STANCE_JSON)])


# ---- the convergent mode --------------------------------------------------------------------------------------


def render_critique(evaluator: Persona, goal: str, proposal: Shown, form: Form) -> Messages:
    """One evaluator, one proposal: exactly three critiques."""
    words = _words((form.caps.critiques - CRITIQUES_JSON) // d.CRITIQUES)
    if form.compact:
        parts = [f"Goal: {goal}", f"Proposal {_short(proposal, form.caps.proposal)}"]
        return _compact(evaluator, [*parts, w.COMPACT_CRITIQUE.format(count=d.CRITIQUES, words=words)])
    rules = w.CRITIQUE.format(count=d.CRITIQUES, words=words)
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
        left = caps.decision - COMPACT_DECISION_JSON
        ask = w.COMPACT_DECISION.format(words=_words(left // 2), few=_words(left // 6))
        return (Message("system", w.COMPACT_DECIDER), Message("user", _join([f"Goal: {goal}", rows, ask])))
    blocks = [_goal(goal), *(_full_row(row, caps) for row in matrix)]
    blocks.append(tagged("ledger", "\n".join(f"- {one_line(entry)}" for entry in ledger), caps.decision))
    words, few = decision_words(caps.decision)
    ask = w.DECISION.format(words=words, few=few, taken=d.ABSORBED, entries=d.DECISION_ENTRIES)
    return (Message("system", f"{w.DECIDER}\n\n{w.DATA}"), Message("user", _join([*blocks, ask])))


def decision_words(cap: int) -> tuple[int, int]:
    """Words of the answer, and of each note beside it, that fit the full style's decision cap together.

    The answer comes last in the reply, so what the notes take too much is cut from it.
    """
    left = cap - DECISION_JSON
    notes = d.ABSORBED + (d.K_MAX - 1) + d.DECISION_ENTRIES
    return _words(left * 3 // 4), _words(left // 4 // notes)


def render_wrap_up(goal: str, matrix: Sequence[MatrixRow], form: Form) -> Messages:
    """The one short call that is held back for a run whose budget ends: the best answer from what there is.

    Args:
        goal: The goal.
        matrix: Each proposal with the critiques that it has got so far.
        form: Style and caps.
    """
    words = _words(form.caps.decision)
    if form.compact:
        rows = "\n".join(_short_row(row, form.caps) for row in matrix)
        ask = w.COMPACT_WRAP_UP.format(words=words)
        return (Message("system", w.COMPACT_DECIDER), Message("user", _join([f"Goal: {goal}", rows, ask])))
    ask = w.WRAP_UP.format(words=words)
    blocks = [_goal(goal), *(_full_row(row, form.caps) for row in matrix), ask]
    return (Message("system", f"{w.DECIDER}\n\n{w.DATA}"), Message("user", _join(blocks)))


def label(proposal: str, form: Form) -> str:
    """What prompts call a proposal: its id in the full style, its author's letter in the compact one.

    An id such as ``P2.1`` sends a very small model into counting (``2.1.1.1``) until its cap.
    """
    return "ABCDE"[int(proposal[1]) - 1] if form.compact else proposal


# ---- pieces ---------------------------------------------------------------------------------------------------


def critique_bytes(caps: Caps, *, compact: bool) -> int:
    """UTF-8 bytes of one evaluator's critiques of one proposal in the matrix."""
    return caps.critiques * d.COMPACT_CRITIQUE_BYTES if compact else byte_cap(caps.critiques)


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
    return max(5, int(tokens * _WORDS_PER_TOKEN))


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
    lines = [f"[{row.id}] backers {row.backers}: {fenced(row.text, caps.proposal)}"]
    # One fence for an evaluator's critiques, not one each: two tokens for each fence count in a small window.
    size = critique_bytes(caps, compact=True)
    lines.extend(f"- {fenced_list(group.texts, size)}" for group in row.critiques)
    return "\n".join(lines)


def _full_row(row: MatrixRow, caps: Caps) -> str:
    proposal = tagged("proposal", row.text, caps.proposal, id=row.id, backers=str(row.backers))
    if not row.critiques:
        return proposal
    blocks = [
        tagged(
            "critiques",
            "\n".join(f"- {one_line(text)}" for text in group.texts),
            caps.critiques,
            of=row.id,
            by=group.evaluator,
        )
        for group in row.critiques
    ]
    return "\n".join([proposal, *blocks])
