"""Who deliberates, in which style, and what each member reads: choices of the plan that need no counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from romanesco.personas import (
    EVALUATORS,
    FRAME_CHALLENGER,
    GENERATORS,
    Ensemble,
    Persona,
    marker,
    render_payload,
    select_ensemble,
    split,
)
from romanesco.task import Source
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._params import Params

SHORTEST_PAYLOAD = 80
"""Characters: fewer tell a reader nothing."""


def best_team(library: Mapping[str, Persona], params: Params) -> Ensemble:
    """The personas the user asks for, the paper's generators where seats are left, then the most dispersed others.

    If the paper's generators keep the ensemble below ``delta``, which a user's own biases can do, only the Frame
    Challenger among them is kept.
    """
    seated = {FRAME_CHALLENGER, *params.members, *(p.id for p in library.values() if p.mandatory)}
    if params.evaluators_propose:
        seated |= set(EVALUATORS)
    named = [one for one in GENERATORS if one not in seated][: max(0, params.k - len(seated))]
    with_named = _select(library, params, (*params.members, *named), stop=False)
    if with_named.admissible:
        return with_named
    return _select(library, params, params.members, stop=True)


def _select(library: Mapping[str, Persona], params: Params, required: Sequence[str], *, stop: bool) -> Ensemble:
    return select_ensemble(
        library,
        k=params.k,
        delta=params.delta,
        required=required,
        evaluators_propose=params.evaluators_propose,
        on_inadmissible="stop" if stop and params.on_inadmissible == "stop" else "go-on",
    )


def deal(params: Params, sources: Sequence[Source], chars: int) -> dict[str, str]:
    """Each proposer's payload as it stands in its prompt."""
    payloads = split(sources, [persona.id for persona in params.team], budget_chars=chars)
    return {member: render_payload(excerpts) for member, excerpts in payloads.by_member.items()}


def shown_again(payloads: Mapping[str, str], chars: int) -> dict[str, str]:
    """The beginning of each payload, as it stands in later rounds; nothing where there is no room for a sentence."""
    if chars < SHORTEST_PAYLOAD:
        return {}
    return {member: _beginning(text, chars) for member, text in payloads.items()}


def _beginning(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    room = chars - len(marker(len(text))) - 1
    kept = text[:room].rstrip()
    return f"{kept}\n{marker(len(text) - len(kept))}"


def coverage(params: Params, sources: Sequence[Source], chars: int) -> str:
    """How much of the sources reaches somebody, in words for the plan."""
    payloads = split(sources, [persona.id for persona in params.team], budget_chars=chars)
    covered, overlap = payloads.text_coverage or 0.0, payloads.overlap or 0.0
    left_out = f", left out in part: {', '.join(clip.source for clip in payloads.clipped)}" if payloads.clipped else ""
    return f"Sources: {covered:.0%} of the text reaches somebody, {overlap:.0%} of that several members{left_out}."


def styled(params: Params, windows: Mapping[str, int | None]) -> tuple[Params, str]:
    """Style and caps by the smallest window, where the user did not set them."""
    window = min(d.UNKNOWN_WINDOW if window is None else window for window in windows.values())
    size = "compact" if window <= d.COMPACT_WINDOW else "medium" if window <= d.MEDIUM_WINDOW else "full"
    style = params.style or ("compact" if size == "compact" else "full")
    if style == "full" and size == "compact":
        size = "medium"
    if style == "compact":
        size = "compact"
    proposal, critique, decision = d.CAPS[size]
    temperature = params.decision_temperature
    params = replace(
        params,
        style=style,
        proposal_tokens=params.proposal_tokens or proposal,
        critique_tokens=params.critique_tokens or critique,
        decision_tokens=params.decision_tokens or decision,
        decision_temperature=temperature if temperature is not None else d.DECISION_TEMPERATURE[style],
    )
    caps = params.caps
    return params, (
        f"{style.capitalize()} prompts for a window of {window:,} tokens: proposals of at most {caps.proposal} tokens, "
        f"critiques {caps.critique}, decision {caps.decision}."
    )
