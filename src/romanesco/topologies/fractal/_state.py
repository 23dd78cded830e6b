"""The words of the orchestrator: its phases, what happens to it, what it asks for, and what it knows. Data only."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from romanesco.topologies.fractal._stopping import StopRules, Verdict

DECISION_MAKER = "decision-maker"
"""Member name and role of the Decision Maker."""


class Mode(enum.StrEnum):
    """The paper's states (Def. 1) and an end."""

    DIVERGENT = "q_div"
    CONVERGENT = "q_conv"
    END = "q_end"


class Phase(enum.StrEnum):
    """Where in its mode the node is."""

    READY = "ready"
    PROPOSING = "proposing"
    MEASURING = "measuring"
    CRITICISING = "criticising"
    DECIDING = "deciding"
    ASKING = "asking"
    WRAPPING = "wrapping-up"
    ENDED = "ended"


class Ask(enum.StrEnum):
    """What a member is asked for."""

    GENERATE = "generate"
    INTEGRATE = "integrate"
    CRITICISE = "criticise"
    DECIDE = "decide"
    WRAP_UP = "wrap-up"


class End(enum.StrEnum):
    """Why the node ended."""

    DECIDED = "decided"
    UNDECIDED = "undecided"
    WRAPPED_UP = "wrapped-up"
    CUT_SHORT = "cut-short"
    NO_PROPOSAL = "no-proposal"


# ---- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The node may begin."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Information is missing that a person or a tool could give."""

    question: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The question was answered."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A member proposed. ``backs`` is the author of the proposal it backs, or None in the blind round.

    A member names the *id* of a version that it has read. Its author revises it at the same time, so a ballot goes to
    the author's line and counts for the author's latest version. It is not passed on: whom that author backs doesn't
    matter to it.
    """

    member: str
    proposal: str
    backs: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A member's call gave nothing usable. ``target`` is the proposal it was to criticise, else ""."""

    member: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The budget refused a member's call; ``account`` is the account that did."""

    member: str
    account: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """Diversity and ledger gain of the round; ``ratio`` is None if unknown."""

    ratio: float | None
    ledger_gain: float


@dataclass(frozen=True, slots=True)
class Criticised:
    """An evaluator gave its critiques of a proposal."""

    member: str
    target: str


@dataclass(frozen=True, slots=True)
class Decided:
    """The Decision Maker answered."""


Event = Started | Missing | Answered | Proposed | Failed | Exhausted | Measured | Criticised | Decided

# ---- actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """Ask a member. ``target`` is the proposal to criticise, else ""."""

    member: str
    ask: Ask
    round: int
    target: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure the diversity and the ledger gain of a round."""

    round: int


@dataclass(frozen=True, slots=True)
class Switch:
    """Change from the divergent to the convergent mode, for the reason and with the numbers of the verdict."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for missing information."""

    question: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """The node has ended."""

    end: End


Action = Route | Measure | Switch | Query | Terminate

# ---- state ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """All that the automaton knows.

    Attributes:
        proposers: Eligible members in their order; failed ones stay here, so that they count in the quorum.
        evaluators: The evaluators, in their order.
        stop: Thresholds of the stopping tests.
        queries: Questions that may still be asked.
        phase: The phase.
        round: The divergent round, 0 before the first.
        pending: (member, target) pairs whose answer is awaited.
        latest: Each member's latest proposal.
        ballots: Each member's latest ballot: (author that it backs, round in which it said so).
        gains: Ledger gain of each round.
        verdicts: What the stopping tests said after each round.
        account: The account that refused a call, or "".
        resume: While asking: the phase to go back to.
        end: Why the node ended, or None.
    """

    proposers: tuple[str, ...]
    evaluators: tuple[str, ...]
    stop: StopRules = field(default_factory=StopRules)
    queries: int = 0
    phase: Phase = Phase.READY
    round: int = 0
    pending: tuple[tuple[str, str], ...] = ()
    latest: Mapping[str, str] = field(default_factory=dict)
    ballots: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    gains: tuple[float, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    account: str = ""
    resume: Phase | None = None
    end: End | None = None

    @property
    def mode(self) -> Mode:
        """The paper's state; while asking, that of the phase to go back to."""
        return MODES[self.resume or self.phase]

    @property
    def alive(self) -> tuple[str, ...]:
        """Members that have a proposal, in their order."""
        return tuple(member for member in self.proposers if member in self.latest)


MODES: Mapping[Phase, Mode] = {
    Phase.READY: Mode.DIVERGENT,
    Phase.PROPOSING: Mode.DIVERGENT,
    Phase.MEASURING: Mode.DIVERGENT,
    Phase.CRITICISING: Mode.CONVERGENT,
    Phase.DECIDING: Mode.CONVERGENT,
    Phase.ASKING: Mode.DIVERGENT,
    Phase.WRAPPING: Mode.END,
    Phase.ENDED: Mode.END,
}
"""The mode that each phase lies in."""
