"""How a node ended: from the record and the automaton's end to an outcome. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from romanesco.errors import StopReason
from romanesco.personas import FRAME_CHALLENGER
from romanesco.task import Decision, Outcome, Plan, Status
from romanesco.topologies.fractal._minutes import Minutes, best, deliberation
from romanesco.topologies.fractal._state import End, State

_FAILURES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Ending:
    status: Status
    reason: StopReason
    note: str


def outcome(minutes: Minutes, state: State, plan: Plan) -> Outcome:
    """The outcome of a node that has ended.

    Without a decision of the Decision Maker the engine takes the best-backed proposal as it stands, and the outcome is
    partial and says so.
    """
    minutes.decision = minutes.decision or _by_engine(minutes, state)
    ending = _ending(minutes, state)
    return Outcome(
        status=ending.status,
        reason=ending.reason,
        answer=minutes.decision.answer if minutes.decision else "",
        note=" ".join(filter(None, (ending.note, _failures(minutes)))),
        deliberation=deliberation(minutes, state),
        topology=plan.topology,
        bill=plan.bill,
        models=dict(minutes.models),
        dimension=minutes.refusal.dimension if minutes.refusal else "",
        account=minutes.refusal.account if minutes.refusal else "",
    )


def _by_engine(minutes: Minutes, state: State) -> Decision | None:
    chosen = best(state)
    if not chosen:
        return None
    others = {state.latest[member]: "no decision was made" for member in state.alive if state.latest[member] != chosen}
    proposal = minutes.proposals[chosen]
    return Decision(chosen, proposal.text, discarded=others, by="engine", model=proposal.model)


def _ending(minutes: Minutes, state: State) -> _Ending:
    spent = minutes.refusal.reason if minutes.refusal else StopReason.BUDGET
    match state.end:
        case End.DECIDED:
            return _decided(minutes, state)
        case End.UNDECIDED:
            note = "The Decision Maker gave no usable decision: the answer is the best-backed proposal as it stands."
            return _Ending(Status.PARTIAL, spent if minutes.refusal else StopReason.MODEL, note)
        case End.WRAPPED_UP:
            note = f"Cut short: {minutes.refusal or state.account} The answer was written from what there was by then."
            return _Ending(Status.PARTIAL, spent, note)
        case End.CUT_SHORT if minutes.decision:
            note = f"Cut short: {minutes.refusal or state.account} The answer is the best-backed proposal as it stands."
            return _Ending(Status.PARTIAL, spent, note)
        case End.CUT_SHORT:
            return _Ending(Status.FAILED, spent, f"Cut short before there was a proposal: {minutes.refusal or ''}")
        case _:
            return _Ending(Status.FAILED, StopReason.MODEL, "No member gave a proposal.")


def _decided(minutes: Minutes, state: State) -> _Ending:
    """A decision that was cut, or made without a role that the method can't do without, is partial."""
    cap = minutes.params.decision_tokens
    reason, notes = StopReason.COMPLETED, []
    if minutes.truncated:
        reason = StopReason.LENGTH
        notes.append(f"The answer was cut at the output cap of {cap} tokens; raise it with decision_tokens.")
    if not minutes.critiques:
        notes.append("No evaluator gave a critique: the decision was made on the proposals alone.")
    if FRAME_CHALLENGER not in state.latest:
        notes.append("The Frame Challenger, who is mandatory, gave no proposal: nobody challenged the goal's frame.")
    if not notes:
        return _Ending(Status.COMPLETED, reason, "")
    return _Ending(Status.PARTIAL, StopReason.MODEL if reason is StopReason.COMPLETED else reason, " ".join(notes))


def _failures(minutes: Minutes) -> str:
    count = len(minutes.failures)
    if not count:
        return ""
    by_reason: dict[str, list[str]] = {}
    for failure in minutes.failures:
        who, _, why = failure.partition(": ")
        by_reason.setdefault(why, []).append(who)
    reasons = [f"{' and '.join(who)}: {why}" for why, who in by_reason.items()]
    told = "; ".join(reasons[:_FAILURES_SHOWN])
    more = f"; and {len(reasons) - _FAILURES_SHOWN} more reasons" if len(reasons) > _FAILURES_SHOWN else ""
    return f"{count} call{'s' if count > 1 else ''} gave nothing usable: {told}{more}"
