"""What a run is asked, what it plans and what it leaves: data, no behaviour.

Every record here crosses process boundaries as JSON (``to_json`` / ``from_json`` in ``romanesco._codec``), so it
holds no live object. Money is ``Decimal``; time is in seconds.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from romanesco.errors import InputError, StopReason

Json = Any

MONEY_MAX = Decimal("1E+12")
"""Dollars that a limit or an amount may be at most."""


class Status(enum.StrEnum):
    """The outcome of a run or node as a sum type. It is never read from words in an answer."""

    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    BREACHED = "breached"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Source:
    """A text that the goal may be answered from; ``name`` is how it is cited."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run; None means that this dimension is not limited. Zero means zero.

    Attributes:
        tokens: Tokens read and generated together.
        tokens_in: Tokens read.
        tokens_out: Tokens generated.
        usd: Money in US dollars; a number or text is taken as the decimal that it prints as.
        seconds: Wall time in seconds, over all resumes, without the time spent waiting for a person.
        calls: Requests to model servers, retries included.
        nodes: Nodes of the tree, the root included.
    """

    tokens: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: Decimal | None = None
    seconds: float | None = None
    calls: int | None = None
    nodes: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "tokens_in", "tokens_out", "calls", "nodes"):
            _check_limit(name, getattr(self, name))
        _check_limit("seconds", self.seconds, whole=False)
        usd: Any = self.usd
        if usd is not None and not isinstance(usd, Decimal):
            try:
                usd = Decimal(str(usd))  # 0.1 means a tenth, not the float next to it
            except InvalidOperation:
                raise InputError("A budget of money is not a number", value=repr(usd)) from None
            object.__setattr__(self, "usd", usd)
        if usd is not None and not (usd.is_finite() and 0 <= usd <= MONEY_MAX):
            raise InputError("A budget of money is out of range", value=str(usd), limit="0 to 10^12 dollars")


def _check_limit(name: str, value: Any, *, whole: bool = True) -> None:
    if value is None:
        return
    usable = isinstance(value, int) or (not whole and isinstance(value, float))
    most = float("inf") if whole else sys.float_info.max  # seconds are reckoned with as a float
    if isinstance(value, bool) or not usable or not 0 <= value <= most:
        kind = "a whole number" if whole else "a number"
        raise InputError(f"The budget's {name} must be {kind}, 0 or more", value=repr(value))


@dataclass(frozen=True, slots=True)
class Task:
    """What a topology is asked to solve.

    Attributes:
        goal: The goal in the user's words.
        sources: Texts to work from.
        params: Parameters of the topology by name (for FRACTAL: ``k``, ``rounds``, ...); only what the user set.
    """

    goal: str
    sources: tuple[Source, ...] = ()
    params: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BillLine:
    """One line of a bill: at most ``calls`` calls for a purpose, with their worst case together.

    Attributes:
        purpose: ``proposal``, ``critique``, ``decision``, ``repair``, ``retry``, ``wrap-up``, ``answer``, ...
        calls: Calls at most.
        tokens_in: Tokens read at most, over all calls of the line.
        tokens_out: Tokens generated at most, over all calls of the line.
        usd: Money at most, or None if the price is unknown.
    """

    purpose: str
    calls: int
    tokens_in: int
    tokens_out: int
    usd: Decimal | None

    def __add__(self, other: BillLine) -> BillLine:
        """Both together, under this one's purpose."""
        return BillLine(
            self.purpose,
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
        )


@dataclass(frozen=True, slots=True)
class Bill:
    """The worst case of a plan: printed before the run, reserved by the ledger, never exceeded."""

    lines: tuple[BillLine, ...]
    nodes: int = 1

    @property
    def calls(self) -> int:
        """Requests at most."""
        return sum(line.calls for line in self.lines)

    @property
    def tokens_in(self) -> int:
        """Tokens read at most."""
        return sum(line.tokens_in for line in self.lines)

    @property
    def tokens_out(self) -> int:
        """Tokens generated at most."""
        return sum(line.tokens_out for line in self.lines)

    @property
    def tokens(self) -> int:
        """Tokens at most, read and generated."""
        return self.tokens_in + self.tokens_out

    @property
    def usd(self) -> Decimal | None:
        """Money at most, or None if any line's price is unknown."""
        total = Decimal(0)
        for line in self.lines:
            if line.usd is None:
                return None
            total += line.usd
        return total


@dataclass(frozen=True, slots=True)
class Plan:
    """What a topology intends to do with a task, before the first token.

    Attributes:
        topology: The topology's registered name.
        bill: Worst case of this plan.
        params: All parameters in force, defaults included, as the topology will receive them.
        reasons: Why it looks like this, one sentence each, and which bound was the binding one.
        fits: Whether the bill is inside the budget; if not, the run may end with a labelled partial answer.
    """

    topology: str
    bill: Bill
    params: dict[str, Json]
    reasons: tuple[str, ...] = ()
    fits: bool = True


@dataclass(frozen=True, slots=True)
class Spend:
    """What was spent.

    Attributes:
        calls: Requests sent to model servers, failed ones and retries included.
        tokens_in: Tokens read.
        tokens_out: Tokens generated.
        usd: Money, or None if a price is unknown.
        seconds: Active seconds over all resumes.
        estimated: True if some of the tokens are upper bounds because a server did not report.
        cached: Part of ``tokens_in`` that servers read from their caches.
        reasoning: Part of ``tokens_out`` that was reasoning.
        in_doubt: Calls in flight when a process died: counted in full, though they may not have been sent.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal | None = Decimal(0)
    seconds: float = 0.0
    estimated: bool = False
    cached: int = 0
    reasoning: int = 0
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class CallOverrun:
    """A call used more of something than was reserved for it, so that the bill did not bound it.

    Attributes:
        node: Path of the node.
        key: The call's key.
        dimension: ``tokens``, ``tokens_in``, ``tokens_out`` or ``usd``.
        by: How much more than was reserved.
        reported: True if its server said so, False if it is our own estimate.
    """

    node: str
    key: str
    dimension: str
    by: Decimal
    reported: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """Where a run's active seconds went.

    Attributes:
        active: Seconds that the run was active.
        waiting: Of these, seconds in which at least one call was out at a model.
        queue: Seconds that calls waited for a slot, summed over calls.
        first_token: Seconds until the first token, summed over calls.
        generating: Seconds from the first token to the last, summed over calls.
        parse: Of these, seconds spent on reading the reply, summed over calls.
        calls: Finished calls that these sums are over.
    """

    active: float = 0.0
    waiting: float = 0.0
    queue: float = 0.0
    first_token: float = 0.0
    generating: float = 0.0
    parse: float = 0.0
    calls: int = 0

    @property
    def own(self) -> float:
        """Active seconds in which no call was out: journal, embeddings, retries' pauses, the engine."""
        return max(0.0, self.active - self.waiting)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal of one member in one round.

    Attributes:
        id: For example ``P2.1``: member 2, round 1.
        member: Persona id of its author.
        round: 1 for the blind round.
        text: The proposal.
        backs: Id of the proposal that its author backs, from round 2 on.
        model: Which model wrote it.
        truncated: True if the output cap cut it.
        challenge: The Frame Challenger's three required parts, by name.
    """

    id: str
    member: str
    round: int
    text: str
    backs: str | None = None
    model: str = ""
    truncated: bool = False
    challenge: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Critique:
    """One critique of one proposal by one evaluator; ``own`` marks a critique of one's own proposal, not weighed."""

    proposal: str
    evaluator: str
    index: int
    text: str
    model: str = ""
    own: bool = False


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry of a node's ledger.

    Attributes:
        kind: ``fact`` (backed by a check or a cited source), ``claim``, ``constraint``, ``risk`` or ``discarded``.
        text: The entry.
        by: Who brought it in: a persona id or ``decision-maker``.
        round: In which round.
        evidence: Ids of proposals, critiques or sources it rests on.
    """

    kind: str
    text: str
    by: str
    round: int
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dissent:
    """A position that did not carry, with who held it and on what grounds."""

    member: str
    proposal: str
    position: str
    grounds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What the Decision Maker decided.

    Attributes:
        chosen: Id of the chosen proposal.
        answer: The deliverable.
        absorbed: Ids of other proposals of which a part went into the answer, with what was taken.
        discarded: Ids of the proposals that were not chosen, with the reason.
        by: ``decision-maker``; ``wrap-up``: written in the held-back call when the budget ended; or ``engine``: where
            the decision failed, the best-backed proposal as it stands.
        model: Which model decided.
    """

    chosen: str
    answer: str
    absorbed: dict[str, str] = field(default_factory=dict)
    discarded: dict[str, str] = field(default_factory=dict)
    by: str = "decision-maker"
    model: str = ""


@dataclass(frozen=True, slots=True)
class DiversityPoint:
    """Diversity after one round. None means unknown (the instrument failed), never zero.

    Attributes:
        round: The round.
        value: ``log det(I + K_r)`` over all proposals so far.
        gain: Increase over the round before.
        ratio: ``gain`` over the first round's gain: the number that the switch compares.
        threshold: The threshold it was compared with.
        distance: Mean pairwise cosine distance of this round's proposals, for the reader.
    """

    round: int
    value: float | None
    gain: float | None
    ratio: float | None
    threshold: float
    distance: float | None = None


@dataclass(frozen=True, slots=True)
class Deliberation:
    """All that a FRACTAL node did."""

    personas: tuple[str, ...] = ()
    rounds: int = 0
    stop: str = ""
    proposals: tuple[Proposal, ...] = ()
    critiques: tuple[Critique, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    decision: Decision | None = None
    dissent: tuple[Dissent, ...] = ()
    diversity: tuple[DiversityPoint, ...] = ()
    backing: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run or a node ended.

    Attributes:
        status: The sum type.
        reason: Why it ended.
        answer: The answer; for ``partial`` the best so far; "" if there is none.
        note: One sentence on what was cut short, or on the error: what, value, limit, what to do.
        deliberation: What a FRACTAL node did, or None for other topologies.
        run: The run's id ("" for a node that is not the root).
        topology: The topology that ran.
        spend: What it cost.
        times: Where its active seconds went.
        bill: The worst case that was printed before.
        lines: What each line of the bill came to: calls, tokens and money that were spent on it.
        reasons: Why the plan looked as it did.
        budget: The run's own limits, as they were at its end.
        head: Hash of the journal's last event.
        certificate: Path of the certificate file, or "".
        dimension: Which limit ended it (``tokens``, ``usd``, ``calls``, ``seconds``, ...), or "".
        account: Whose limit that was: ``run``, or a part of it such as ``run/line:retry`` or ``run/node:/a``; or "".
        models: Names of the models that answered, by role, as their servers gave them; where the topology doesn't say,
            ``provider:model`` by role as configured.
        overruns: What calls used beyond what was reserved for them, over all resumes; see ``docs/budget.md``. The
            status says nothing of it.
    """

    status: Status
    reason: StopReason
    answer: str = ""
    note: str = ""
    deliberation: Deliberation | None = None
    run: str = ""
    topology: str = ""
    spend: Spend = Spend()
    bill: Bill | None = None
    head: str = ""
    certificate: str = ""
    dimension: str = ""
    account: str = ""
    times: Times = Times()
    lines: tuple[BillLine, ...] = ()
    reasons: tuple[str, ...] = ()
    budget: Budget = Budget()
    models: dict[str, str] = field(default_factory=dict)
    overruns: tuple[CallOverrun, ...] = ()

    @property
    def dissent(self) -> tuple[Dissent, ...]:
        """Positions that did not carry."""
        return self.deliberation.dissent if self.deliberation else ()
