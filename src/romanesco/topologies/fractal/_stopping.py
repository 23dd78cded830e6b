"""When the divergent rounds end: pure functions that return their numbers along with their answer.

``STOP = supermajority or saturation or diminishing returns or r >= r_max`` (section 5 of the paper). Each test
keeps the value that it saw and the threshold that it compared it with, because the journal holds every decision
with its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from romanesco.topologies.fractal import _defaults as d

SUPERMAJORITY = "supermajority"
SATURATED = "saturated"
DIMINISHING = "diminishing-returns"
R_MAX = "r_max"


@dataclass(frozen=True, slots=True)
class StopRules:
    """Thresholds of the tests; none of them changes during a run.

    Attributes:
        r_max: Rounds at most.
        r_dwell: No saturation before this round.
        tau_sat: Saturation is a ratio of diversity gains below this.
        quorum: Share of the eligible members that must back one proposal.
        eps: A round with a smaller ledger gain counts towards diminishing returns.
        dr_rounds: How many such rounds in a row end the mode.
    """

    r_max: int = d.R_MAX
    r_dwell: int = d.R_DWELL
    tau_sat: float = d.TAU_SAT
    quorum: float = d.QUORUM
    eps: float = d.EPS
    dr_rounds: int = d.DR_ROUNDS


@dataclass(frozen=True, slots=True)
class Test:
    """One test: what was measured (None: unknown, so not met), the threshold, and whether it is met."""

    name: str
    value: float | None
    threshold: float
    met: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said after a round.

    Attributes:
        round: The round.
        reason: Name of the test that ends the divergent mode, or "" to go on.
        tests: All tests, met or not, in the order in which they take precedence.
        leader: The member whose proposal has the most backers, or "" if nobody backed any.
    """

    round: int
    reason: str
    tests: tuple[Test, ...]
    leader: str = ""

    @property
    def stop(self) -> bool:
        """Whether the divergent mode ends."""
        return bool(self.reason)


def needed(quorum: float, eligible: int) -> int:
    """Backers that make a supermajority: ``ceil(quorum * eligible)``; 3 of 3, 4 of 4, 4 of 5 at 0.8 (Thm. 12)."""
    return max(1, math.ceil(quorum * eligible - 1e-9))  # 0.8 * 5 must not become 5 by a rounding error


def tally(ballots: Mapping[str, str]) -> dict[str, int]:
    """Backers by the member whose proposal they back."""
    votes: dict[str, int] = {}
    for author in ballots.values():
        votes[author] = votes.get(author, 0) + 1
    return votes


def leader(votes: Mapping[str, int], order: Sequence[str]) -> str:
    """The member with the most backers; ties go to the earlier in ``order``; "" without any vote."""
    backed = [member for member in order if votes.get(member, 0) > 0]
    return max(backed, key=lambda member: votes[member], default="")


def judge(
    rules: StopRules,
    *,
    round: int,
    ratio: float | None,
    ledger_gains: Sequence[float],
    ballots: Mapping[str, str],
    order: Sequence[str],
) -> Verdict:
    """Whether the divergent mode ends after a round.

    Args:
        rules: The thresholds.
        round: The round that just ended, from 1.
        ratio: Ratio of diversity gains, or None if unknown.
        ledger_gains: Ledger gain of each round so far.
        ballots: This round's ballots: backing member to the author of the backed proposal. A member that failed has
            none, and still counts in the quorum's denominator.
        order: All eligible members.
    """
    votes = tally(ballots)
    first = leader(votes, order)
    quorum = needed(rules.quorum, len(order))
    weak = 0
    for gain in reversed(ledger_gains):
        if gain >= rules.eps:
            break
        weak += 1
    dwelt = round >= rules.r_dwell
    tests = (
        Test(SUPERMAJORITY, votes.get(first, 0), quorum, votes.get(first, 0) >= quorum),
        Test(SATURATED, ratio, rules.tau_sat, dwelt and ratio is not None and ratio < rules.tau_sat),
        Test("dwell", round, rules.r_dwell, dwelt),
        Test(DIMINISHING, weak, rules.dr_rounds, weak >= rules.dr_rounds),
        Test(R_MAX, round, rules.r_max, round >= rules.r_max),
    )
    reason = next((test.name for test in tests if test.met and test.name != "dwell"), "")
    return Verdict(round, reason, tests, first)
