from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.topologies.fractal._stopping import StopRules, Verdict, judge, leader, needed, tally

TEAM = ("a", "b", "c", "d", "e")


def after(round: int, **changes: object) -> Verdict:
    given: dict[str, object] = {"ratio": 0.9, "ledger_gains": [9.0] * round, "ballots": {}, "order": TEAM}
    rules = changes.pop("rules", StopRules(r_max=9))
    return judge(rules, round=round, **{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("eligible", "backers"), [(3, 3), (4, 4), (5, 4)])
def test_supermajority_of_the_eligible(eligible: int, backers: int) -> None:
    assert needed(0.8, eligible) == backers


def test_four_of_five_backers_end_the_mode() -> None:
    ballots = {"a": "b", "b": "b", "c": "b", "d": "b", "e": "e"}
    verdict = after(2, ballots=ballots)
    assert (verdict.reason, verdict.leader) == ("supermajority", "b")
    assert (verdict.tests[0].value, verdict.tests[0].threshold) == (4, 4)
    assert after(2, ballots={**ballots, "a": "a"}).reason == ""


def test_br_143_failed_members_stay_in_the_denominator() -> None:
    verdict = after(2, ballots={"a": "b", "b": "b"})  # three of five failed: 2 of 2 is no consensus
    assert not verdict.stop
    assert (verdict.tests[0].value, verdict.tests[0].threshold, verdict.tests[0].met) == (2, 4, False)


def test_saturation_needs_the_dwell_and_a_known_ratio() -> None:
    assert after(1, ratio=0.1).reason == ""
    assert after(2, ratio=0.64).reason == "saturated"
    assert after(2, ratio=0.65).reason == ""
    assert after(2, ratio=0.1, rules=StopRules(r_max=9, r_dwell=3)).reason == ""


def test_br_145_an_instrument_that_failed_is_unknown_and_never_agreement() -> None:
    verdict = after(2, ratio=None)
    test = next(test for test in verdict.tests if test.name == "saturated")
    assert (verdict.stop, test.value, test.met) == (False, None, False)


def test_diminishing_returns_need_three_rounds_in_a_row() -> None:
    assert after(3, ledger_gains=[0.5, 0.5, 0.5]).reason == "diminishing-returns"
    assert after(4, ledger_gains=[9.0, 0.0, 0.0, 0.99]).reason == "diminishing-returns"
    assert after(4, ledger_gains=[0.0, 0.0, 1.0, 0.0]).reason == ""
    assert after(2, ledger_gains=[0.0, 0.0]).reason == ""


def test_r_max_ends_the_mode_whatever_is_known() -> None:
    assert after(3, ratio=None, rules=StopRules(r_max=3)).reason == "r_max"
    assert after(1, rules=StopRules(r_max=1)).reason == "r_max"


def test_the_first_test_that_is_met_gives_the_reason_and_all_keep_their_numbers() -> None:
    verdict = after(3, ratio=0.1, ballots=dict.fromkeys(TEAM, "c"), rules=StopRules(r_max=3))
    assert verdict.reason == "supermajority"
    assert [test.name for test in verdict.tests if test.met] == ["supermajority", "saturated", "dwell", "r_max"]


def test_the_leader_of_a_tie_is_the_first_in_order() -> None:
    votes = tally({"a": "d", "b": "c", "c": "d", "d": "c"})
    assert leader(votes, TEAM) == "c"
    assert leader({}, TEAM) == ""


@given(st.integers(1, 40), st.floats(0.05, 1.0))
def test_needed_is_a_share_of_the_eligible(eligible: int, quorum: float) -> None:
    found = needed(quorum, eligible)
    assert 1 <= found <= eligible
    assert found >= quorum * eligible - 1e-6
    assert found - 1 < quorum * eligible or math.isclose(found - 1, quorum * eligible) or found == 1
