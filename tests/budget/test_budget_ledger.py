"""Accounts, reservations and settlement, one rule at a time."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from romanesco.budget import Account, Amount, Ledger, Limits, Overrun
from romanesco.errors import BudgetExceeded, InputError, RomanescoError, StopReason, UnknownName

CALL = Amount(100, 20, 1, usd=Decimal("0.01"))


def tree() -> tuple[Ledger, Account, Account, Account]:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=1000, calls=10, usd=Decimal(1)))
    line = ledger.open("line:critique", parent=run, limits=Limits(calls=3))
    node = ledger.open("node:/a", parent=run)
    return ledger, run, line, node


def test_every_account_on_the_way_is_charged_once() -> None:
    ledger, run, line, node = tree()
    member = ledger.open("member:1", parent=node)
    held = ledger.reserve([member, line, node, run], CALL)
    assert set(held.accounts) == {run, line, node, member}
    assert held.accounts[0] is run
    assert [account.reserved("tokens") for account in (run, line, node, member)] == [120] * 4
    assert ledger.settle(held, Amount(90, 5, 1, usd=Decimal("0.004"))) == ()
    assert [account.used("tokens") for account in (run, line, node, member)] == [95] * 4
    assert [account.reserved("tokens") for account in (run, line, node, member)] == [0] * 4
    assert run.used("usd") == Decimal("0.004")
    assert (run.remaining("tokens"), run.remaining("usd"), run.remaining("nodes")) == (905, Decimal("0.996"), None)


def test_a_released_reservation_leaves_nothing() -> None:
    ledger, run, line, _ = tree()
    before = ledger.snapshot()
    held = ledger.reserve([line], CALL)
    assert ledger.snapshot() != before
    ledger.release(held)
    assert ledger.snapshot() == before
    assert run.used("calls") == 0


def test_a_refusal_changes_nothing_and_names_account_dimension_value_and_limit() -> None:
    ledger, _, line, _ = tree()
    for _ in range(3):
        ledger.reserve([line], CALL)
    before = ledger.snapshot()
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([line], CALL)
    assert ledger.snapshot() == before
    error = caught.value
    assert (error.account, error.dimension, error.value, error.limit) == ("run/line:critique", "calls", 4, 3)
    assert error.reason is StopReason.BUDGET
    assert str(error) == (
        "account run/line:critique has no room for 1 more call (0 used, 3 reserved); got 4; limit 3. "
        "At most 0 would fit; raise the budget's calls."
    )


def test_the_message_says_what_would_fit_and_which_option_raises_it() -> None:
    ledger, run, _, _ = tree()
    ledger.settle(ledger.reserve([run], Amount(400)), Amount(400))
    ledger.hold(run, Amount(50))
    with pytest.raises(BudgetExceeded, match=r"\(400 used, 0 reserved, 50 held back for the wrap-up\)") as caught:
        ledger.reserve([run], Amount(551))
    assert caught.value.advice == "At most 550 would fit; raise --tokens."
    with pytest.raises(BudgetExceeded) as dollars:
        ledger.reserve([run], Amount(usd=Decimal("1.0000001")))
    assert str(dollars.value).startswith("account run has no room for 1.0000001 more usd (0 used, 0 reserved); got 1.0")
    assert dollars.value.advice == "At most 1 would fit; raise --usd."


def test_of_several_the_outermost_account_is_named() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=1))
    leaf = ledger.open("leaf", parent=run, limits=Limits(calls=1), advice="ask for less")
    ledger.reserve([leaf], CALL)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([leaf], CALL)
    assert caught.value.account == "run"
    ledger.set_limit(run, "calls", 9)
    with pytest.raises(BudgetExceeded, match=r"At most 0 would fit; ask for less\.") as inner:
        ledger.reserve([leaf], CALL)
    assert inner.value.account == "run/leaf"


@pytest.mark.parametrize("dimension", ["tokens", "tokens_in", "tokens_out", "usd", "calls", "nodes"])
def test_zero_means_zero_and_touches_nothing_else(dimension: str) -> None:
    ledger = Ledger()
    limits: dict[str, Any] = {dimension: 0}
    run = ledger.open("run", limits=Limits(**limits))
    one = {"tokens": Amount(1), "tokens_in": Amount(1), "tokens_out": Amount(0, 1)}
    ask = one.get(dimension) or Amount(**{dimension: 1})  # type: ignore[arg-type]  # a name from the list above
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([run], ask)
    assert caught.value.dimension == dimension
    assert ledger.reserve([run], Amount()).open


def test_a_reservation_is_settled_once() -> None:
    ledger, run, _, _ = tree()
    held = ledger.reserve([run], CALL)
    ledger.settle(held, CALL)
    assert not held.open
    with pytest.raises(RomanescoError, match="settled twice"):
        ledger.settle(held, CALL)
    with pytest.raises(RomanescoError, match="settled twice"):
        ledger.release(held)
    assert run.used("calls") == 1


def test_an_overrun_is_kept_marked_and_stops_the_account() -> None:
    ledger, run, line, node = tree()
    held = ledger.reserve([line], CALL)
    overruns = ledger.settle(held, Amount(100, 25, 1, usd=Decimal("0.0125")))
    assert overruns == (
        Overrun("run", "tokens", 5, True),
        Overrun("run", "tokens_out", 5, True),
        Overrun("run", "usd", Decimal("0.0025"), True),
    )
    assert run.used("tokens_out") == 25
    with pytest.raises(
        BudgetExceeded, match="account run is stopped: the server reported 5 tokens more than"
    ) as caught:
        ledger.reserve([node], Amount(1))
    assert (caught.value.account, caught.value.dimension, caught.value.value) == ("run", "tokens", 125)
    assert caught.value.limit == 1000


def test_an_overrun_may_pass_the_limit() -> None:
    ledger, run, _, _ = tree()
    ledger.settle(ledger.reserve([run], Amount(990)), Amount(1100))
    assert run.used("tokens") == 1100
    assert run.remaining("tokens") == 0


def test_our_own_estimate_is_told_from_a_report() -> None:
    ledger, run, _, _ = tree()
    (overrun,) = ledger.settle(ledger.reserve([run], Amount(calls=1)), Amount(calls=2), reported=False)
    assert not overrun.reported_by_server
    assert run.stopped == "our estimate is 1 calls more than was reserved for a call"


def test_an_overrun_of_money_is_told_in_plain_digits() -> None:
    ledger, run, _, _ = tree()
    ledger.settle(ledger.reserve([run], Amount()), Amount(usd=Decimal("0.0000001")))
    assert "0.0000001 usd" in run.stopped


def test_an_overrun_in_one_run_does_not_stop_the_day() -> None:
    ledger = Ledger()
    day = ledger.open("day", across_runs=True, limits=Limits(tokens=500))
    one, two = (ledger.open(name, parent=day) for name in ("run1", "run2"))
    (overrun, _) = ledger.settle(ledger.reserve([one], Amount(10)), Amount(11))
    assert overrun.account == "day/run1"
    assert ledger.reserve([two], Amount(10)).open
    ledger.settle(ledger.reserve([day], Amount(10)), Amount(11))
    with pytest.raises(BudgetExceeded, match="account day is stopped"):
        ledger.reserve([two], Amount(10))


def test_an_account_can_be_stopped_by_hand_and_the_first_reason_stays() -> None:
    ledger, run, line, _ = tree()
    ledger.stop(line, "told so", dimension="calls")
    ledger.stop(line, "told again")
    with pytest.raises(BudgetExceeded, match="account run/line:critique is stopped: told so; got 0; limit 3"):
        ledger.reserve([line], CALL)
    ledger.stop(run, "no limit there", dimension="nodes")
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([run], CALL)
    assert caught.value.limit is None


def test_a_limit_is_raised_and_lowered_while_work_goes_on() -> None:
    ledger, run, _, _ = tree()
    held = ledger.reserve([run], Amount(600))
    ledger.set_limit(run, "tokens", 500)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([run], Amount(1))
    assert "At most 0 would fit" in caught.value.advice
    assert run.remaining("tokens") == 0
    ledger.settle(held, Amount(400))
    assert run.remaining("tokens") == 100
    ledger.set_limit(run, "tokens", None)
    assert run.remaining("tokens") is None
    ledger.set_limit(run, "usd", "0.25")
    assert run.limits == Limits(usd=Decimal("0.25"), calls=10)


def test_a_limit_that_was_not_carved_takes_nothing_from_the_parent() -> None:
    ledger, run, line, _ = tree()
    ledger.set_limit(line, "tokens", 5000)
    assert run.reserved("tokens") == 0
    ledger.set_limit(line, "calls", None)
    assert line.remaining("calls") is None


@pytest.mark.parametrize(
    "cost", [Amount(101, 0, 1), Amount(0, 21, 1), Amount(calls=2), Amount(nodes=1), Amount(usd=Decimal("0.011"))]
)
def test_each_dimension_alone_can_be_overrun(cost: Amount) -> None:
    ledger, run, _, _ = tree()
    assert len(ledger.settle(ledger.reserve([run], CALL), cost)) == 1
    assert run.stopped


@pytest.mark.parametrize(
    ("dimension", "value", "match"),
    [
        ("tokens", -1, "the limit of tokens is negative"),
        ("calls", 1.5, "not a whole number"),
        ("usd", "nan", "not a finite number"),
        ("minutes", 1, "no such dimension of an account; got minutes; limit tokens, tokens_in"),
        ("seconds", 1, "stopwatch"),
    ],
)
def test_a_wrong_limit_is_refused(dimension: str, value: Any, match: str) -> None:
    ledger, run, _, _ = tree()
    with pytest.raises(InputError, match=match):
        ledger.set_limit(run, dimension, value)


def test_names_are_found_and_taken_once() -> None:
    ledger, run, line, _ = tree()
    assert ledger.account("run/line:critique") is line
    assert repr(line) == "Account('run/line:critique')"
    with pytest.raises(UnknownName, match=r"got run/x. There are: run, run/line:critique, run/node:/a"):
        ledger.account("run/x")
    with pytest.raises(UnknownName, match="There are: none"):
        Ledger().account("run")
    with pytest.raises(RomanescoError, match="opened before; got run/line:critique"):
        ledger.open("line:critique", parent=run)


def test_accounts_of_another_ledger_or_none_at_all_are_refused() -> None:
    ledger, _, _, _ = tree()
    stranger = Ledger().open("elsewhere")
    with pytest.raises(RomanescoError, match="accounts of this ledger; got elsewhere"):
        ledger.reserve([stranger], CALL)
    with pytest.raises(RomanescoError, match="accounts of this ledger; got none"):
        ledger.reserve([], CALL)


def test_a_snapshot_is_json_with_dollars_as_text() -> None:
    ledger, run, line, _ = tree()
    ledger.hold(run, Amount(10))
    ledger.reserve([line], CALL)
    shown = json.loads(json.dumps(ledger.snapshot()))
    assert list(shown) == ["run", "run/line:critique", "run/node:/a"]
    assert shown["run"]["reserved"] == {
        "tokens": 120, "tokens_in": 100, "tokens_out": 20, "usd": "0.01", "calls": 1, "nodes": 0,
    }  # fmt: skip
    assert shown["run"]["held"]["tokens"] == 10
    assert shown["run"]["limits"]["usd"] == "1"
    assert shown["run/line:critique"]["limits"]["usd"] is None
    assert (shown["run"]["stopped"], shown["run"]["closed"]) == ("", False)


# Carving


def carved() -> tuple[Ledger, Account, Account]:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=100, calls=10))
    return ledger, run, ledger.carve(run, "node:/a", Limits(tokens=60))


def test_carving_takes_from_the_remainder_not_from_the_cap() -> None:
    ledger, run, child = carved()
    assert run.reserved("tokens") == 60
    with pytest.raises(BudgetExceeded) as caught:
        ledger.carve(run, "node:/b", Limits(tokens=41))
    assert (caught.value.account, caught.value.value, caught.value.limit) == ("run", 101, 100)
    with pytest.raises(UnknownName):
        ledger.account("run/node:/b")
    assert child.remaining("tokens") == 60


def test_what_a_carved_account_spends_was_set_aside_already() -> None:
    ledger, run, child = carved()
    held = ledger.reserve([child], Amount(50, 0, 1))
    assert (run.reserved("tokens"), run.reserved("calls")) == (60, 1)
    ledger.settle(held, Amount(30, 0, 1))
    assert (run.used("tokens"), run.reserved("tokens")) == (30, 30)
    assert (run.used("calls"), run.reserved("calls")) == (1, 0)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([child], Amount(31))
    assert caught.value.account == "run/node:/a"


def test_closing_gives_back_what_is_unspent_now_and_the_rest_when_it_is_settled() -> None:
    ledger, run, child = carved()
    ledger.settle(ledger.reserve([child], Amount(10)), Amount(10))
    held = ledger.reserve([child], Amount(20))
    assert ledger.close(child) == Limits(tokens=30)
    assert (run.used("tokens"), run.reserved("tokens")) == (10, 20)
    ledger.settle(held, Amount(5))
    assert (run.used("tokens"), run.reserved("tokens")) == (15, 0)
    assert ledger.close(child) == Limits(tokens=45)
    assert run.remaining("tokens") == 85


def test_a_closed_account_grants_and_changes_nothing() -> None:
    ledger, _, child = carved()
    ledger.close(child)
    with pytest.raises(RomanescoError, match="account run/node:/a is closed"):
        ledger.reserve([child], Amount(1))
    with pytest.raises(RomanescoError, match="account run/node:/a is closed"):
        ledger.open("member", parent=child)
    with pytest.raises(RomanescoError, match="account run/node:/a is closed"):
        ledger.carve(child, "node", Limits(tokens=1))
    with pytest.raises(RomanescoError, match="account run/node:/a is closed"):
        ledger.set_limit(child, "tokens", 1)


def test_carving_from_a_carved_account() -> None:
    ledger, run, child = carved()
    grandchild = ledger.carve(child, "node:/b", Limits(tokens=40))
    assert (run.reserved("tokens"), child.reserved("tokens")) == (60, 40)
    ledger.settle(ledger.reserve([grandchild], Amount(40)), Amount(25))
    assert (run.used("tokens"), run.reserved("tokens")) == (25, 35)
    assert (child.used("tokens"), child.reserved("tokens")) == (25, 15)
    ledger.close(grandchild)
    assert (child.used("tokens"), child.reserved("tokens"), run.reserved("tokens")) == (25, 0, 35)
    ledger.close(child)
    assert (run.used("tokens"), run.reserved("tokens")) == (25, 0)


def test_two_ways_to_the_same_account_count_once() -> None:
    """A carved node and a shared bill line: the run pays out of what the node has, and once."""
    ledger, run, child = carved()
    line = ledger.open("line:critique", parent=run, limits=Limits(tokens=100))
    held = ledger.reserve([child, line], Amount(50))
    assert (run.reserved("tokens"), line.reserved("tokens"), child.reserved("tokens")) == (60, 50, 50)
    ledger.settle(held, Amount(50))
    assert (run.used("tokens"), run.reserved("tokens")) == (50, 10)


def test_a_carved_limit_is_raised_from_and_lowered_to_the_parents_remainder() -> None:
    ledger, run, child = carved()
    ledger.set_limit(child, "tokens", 100)
    assert run.reserved("tokens") == 100
    with pytest.raises(BudgetExceeded, match="account run has no room for 1 more token "):
        ledger.set_limit(child, "tokens", 101)
    held = ledger.reserve([child], Amount(30))
    ledger.set_limit(child, "tokens", 10)
    assert run.reserved("tokens") == 30
    ledger.set_limit(child, "tokens", 40)
    assert run.reserved("tokens") == 40
    ledger.set_limit(child, "tokens", 10)
    ledger.settle(held, Amount(5))
    assert (run.used("tokens"), run.reserved("tokens")) == (5, 5)
    with pytest.raises(InputError, match="is set aside in run; got no limit"):
        ledger.set_limit(child, "tokens", None)
    ledger.set_limit(child, "calls", 1)
    assert run.reserved("calls") == 0


def test_a_raise_of_a_carved_limit_asks_for_the_difference_only() -> None:
    ledger, run, child = carved()
    ledger.settle(ledger.reserve([child], Amount(50)), Amount(50))
    ledger.set_limit(child, "tokens", 100)
    assert (run.used("tokens"), run.reserved("tokens"), run.remaining("tokens")) == (50, 50, 0)


def test_lowering_the_parent_binds_what_was_carved_before() -> None:
    ledger, run, child = carved()
    ledger.set_limit(run, "tokens", 20)
    held = ledger.reserve([child], Amount(20))
    with pytest.raises(BudgetExceeded, match=r"account run has no room for 1 more token \(0 used, 20 reserved\)"):
        ledger.reserve([child], Amount(1))
    ledger.settle(held, Amount(20))
    assert run.used("tokens") == 20


def test_a_stopped_parent_carves_nothing() -> None:
    ledger, run, _ = carved()
    ledger.stop(run, "told so")
    with pytest.raises(BudgetExceeded, match="is stopped"):
        ledger.carve(run, "node:/b", Limits(calls=1))
    assert ledger.carve(run, "node:/c", Limits(calls=0)).remaining("calls") == 0


def test_an_overrun_below_a_carved_account_reaches_the_parent_once() -> None:
    ledger, run, child = carved()
    ledger.settle(ledger.reserve([child], Amount(60)), Amount(70))
    assert (run.used("tokens"), run.reserved("tokens")) == (70, 0)
    assert run.stopped


# The held-back share


def test_what_is_held_back_is_only_for_the_wrap_up() -> None:
    ledger, run, line, _ = tree()
    ledger.hold(run, Amount(100, 50, 1))
    with pytest.raises(BudgetExceeded):
        ledger.reserve([run], Amount(851))
    ledger.settle(ledger.reserve([run], Amount(850)), Amount(850))
    assert run.remaining("tokens") == 0
    assert run.remaining("tokens", wrap_up=True) == 150
    with pytest.raises(BudgetExceeded):
        ledger.reserve([run], Amount(1))
    held = ledger.reserve([line], Amount(100, 50, 1), wrap_up=True)
    assert (run.held("tokens"), run.reserved("tokens")) == (0, 150)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([run], Amount(1), wrap_up=True)
    assert "held back" not in caught.value.what
    ledger.settle(held, Amount(60, 20, 1))
    assert (run.held("tokens"), run.used("tokens")) == (70, 930)
    ledger.release(ledger.reserve([run], Amount(40, 30), wrap_up=True))
    assert run.held("tokens") == 70


def test_a_wrap_up_uses_the_free_remainder_too() -> None:
    ledger, run, _, _ = tree()
    ledger.hold(run, Amount(100))
    held = ledger.reserve([run], Amount(1000), wrap_up=True)
    assert run.remaining("tokens") == 0
    ledger.settle(held, Amount(1000))
    assert run.held("tokens") == 0


def test_holding_more_than_remains_is_refused() -> None:
    ledger, run, _, _ = tree()
    held = ledger.reserve([run], Amount(901))
    with pytest.raises(BudgetExceeded, match="account run has no room for 100 more tokens"):
        ledger.hold(run, Amount(100))
    assert run.held("tokens") == 0
    ledger.hold(run, Amount(99))
    ledger.release(held)
    assert (run.held("tokens"), run.remaining("tokens")) == (99, 901)


def test_carving_leaves_the_held_share_alone() -> None:
    ledger, run, _, _ = tree()
    ledger.hold(run, Amount(100))
    with pytest.raises(BudgetExceeded):
        ledger.carve(run, "node:/b", Limits(tokens=901))
    assert ledger.carve(run, "node:/c", Limits(tokens=900)).remaining("tokens") == 900


# Resume


def test_accounts_are_restored_one_by_one() -> None:
    ledger, run, line, _ = tree()
    ledger.restore(run, Amount(500, 0, 5))
    ledger.restore(line, Amount(100, 0, 2))
    child = ledger.carve(run, "node:/b", Limits(tokens=600), used=Amount(300, 0, 1))
    assert (run.used("tokens"), run.reserved("tokens"), child.remaining("tokens")) == (500, 300, 300)
    assert (run.used("calls"), line.remaining("calls")) == (5, 1)
    with pytest.raises(RomanescoError, match="account run is in use"):
        ledger.restore(run, Amount(1))


def test_a_carved_account_restored_later_claims_less() -> None:
    ledger, run, child = carved()
    ledger.restore(child, Amount(10))
    assert run.reserved("tokens") == 50
    ledger.restore(run, Amount(10))
    assert run.remaining("tokens") == 40


def test_an_account_with_something_in_flight_is_not_restored() -> None:
    ledger, run, _, _ = tree()
    ledger.reserve([run], Amount(1))
    with pytest.raises(RomanescoError, match="in use"):
        ledger.restore(run, Amount(1))


def test_a_reservation_that_is_open_is_not_to_be_used_once_its_account_is_stopped() -> None:
    ledger, _, line, node = tree()
    waiting = ledger.reserve([node], CALL)
    assert ledger.passed(waiting) is None
    ledger.settle(ledger.reserve([line], CALL), Amount(100, 25, 1))
    fault = ledger.passed(waiting)
    assert fault is not None and fault.account == "run"
    assert "is stopped: the server reported 5 tokens more" in str(fault) and "lowered" not in str(fault)


def test_a_limit_is_said_to_be_lowered_only_if_it_was() -> None:
    ledger = Ledger()
    day = ledger.open("day", across_runs=True, limits=Limits(calls=3))
    one, two = (ledger.open(name, parent=day) for name in ("run1", "run2"))
    waiting = ledger.reserve([two], Amount(calls=1))
    ledger.settle(ledger.reserve([one], Amount(calls=1)), Amount(calls=5))
    assert "the limit of calls of account day was passed while" in str(ledger.passed(waiting))
    ledger.set_limit(day, "calls", 9)
    assert ledger.passed(waiting) is None
    ledger.set_limit(day, "calls", 5)
    assert "the limit of calls of account day was lowered while" in str(ledger.passed(waiting))
