"""A bill as accounts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from romanesco.budget import RETRY, WRAP_UP, Amount, Ledger, Limits, bill_accounts, hold_again
from romanesco.errors import BudgetExceeded
from romanesco.task import Bill, BillLine

BILL = Bill((
    BillLine("proposal", 3, 300, 90, Decimal("0.03")),
    BillLine("critique", 18, 900, 180, None),
    BillLine(WRAP_UP, 1, 100, 50, Decimal("0.01")),
    BillLine("proposal", 1, 100, 30, Decimal("0.01")),
    BillLine("critique", 2, 100, 20, Decimal("0.01")),
))


def test_each_line_becomes_an_account_and_the_wrap_up_share_is_held() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=1870, calls=25, usd=Decimal(1)))
    accounts = bill_accounts(ledger, run, BILL)
    assert list(accounts) == ["proposal", "critique", WRAP_UP]
    assert accounts["proposal"] is ledger.account("run/line:proposal")
    assert accounts["proposal"].limits == Limits(calls=4, tokens_in=400, tokens_out=120, usd=Decimal("0.04"))
    assert accounts["critique"].limits == Limits(calls=20, tokens_in=1000, tokens_out=200)
    assert accounts[WRAP_UP].limits == Limits(calls=1, tokens_in=100, tokens_out=50, usd=Decimal("0.01"))
    assert (run.held("tokens"), run.held("calls"), run.held("usd")) == (150, 1, Decimal("0.01"))
    assert run.reserved("tokens") == 0


def test_the_run_ends_with_its_wrap_up_although_everything_else_is_spent() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=3))
    accounts = bill_accounts(ledger, run, BILL)
    for _ in range(2):
        ledger.settle(ledger.reserve([accounts["critique"]], Amount(10, 2, 1)), Amount(10, 2, 1))
    with pytest.raises(BudgetExceeded, match="1 held back for the wrap-up"):
        ledger.reserve([accounts["critique"]], Amount(10, 2, 1))
    last = ledger.reserve([accounts[WRAP_UP]], Amount(100, 50, 1), wrap_up=True)
    ledger.settle(last, Amount(80, 50, 1))
    assert run.used("calls") == 3
    with pytest.raises(BudgetExceeded):
        ledger.reserve([accounts[WRAP_UP]], Amount(1, 1, 1), wrap_up=True)


def test_a_line_is_a_limit_and_its_refusal_says_so() -> None:
    ledger = Ledger()
    accounts = bill_accounts(ledger, ledger.open("run"), BILL)
    with pytest.raises(BudgetExceeded, match="it is a line of the printed bill") as caught:
        ledger.reserve([accounts["proposal"]], Amount(401, 0, 1))
    assert (caught.value.account, caught.value.dimension) == ("run/line:proposal", "tokens_in")


def test_a_run_too_small_for_its_wrap_up_is_refused() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=149))
    with pytest.raises(BudgetExceeded, match="account run has no room for 150 more tokens"):
        bill_accounts(ledger, run, BILL)


def test_a_bill_without_a_wrap_up_or_with_an_unknown_price_of_it_holds_what_it_knows() -> None:
    ledger = Ledger()
    one, two = ledger.open("one"), ledger.open("two")
    bill_accounts(ledger, one, Bill((BillLine("answer", 1, 10, 10, None),)))
    bill_accounts(ledger, two, Bill((BillLine(WRAP_UP, 1, 10, 10, None),)))
    assert (one.held("tokens"), two.held("tokens"), two.held("usd")) == (0, 20, 0)


def test_br_034_after_a_resume_the_accounts_have_what_was_spent_before() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=25, tokens=1870))
    spent = {"proposal": Amount(200, 60, 2, usd=Decimal("0.02")), WRAP_UP: Amount(60, 60, 0, usd=Decimal("0.02"))}
    accounts = bill_accounts(ledger, run, BILL, spent=spent)
    ledger.restore(run, spent["proposal"] + spent[WRAP_UP])
    assert accounts["proposal"].remaining("calls") == 2
    assert run.used("calls") == 2
    assert (run.held("tokens_in"), run.held("tokens_out"), run.held("usd")) == (40, 0, 0)


@pytest.mark.parametrize(
    ("retries", "limit", "held"),
    [
        (BillLine(RETRY, 2, 100, 20, Decimal(1)), 320, 120),  # just enough
        (BillLine(RETRY, 2, 99, 20, Decimal(1)), 320, 0),
        (BillLine(RETRY, 2, 100, 20, Decimal("0.01")), 320, 0),
        (BillLine(RETRY, 0, 100, 20, Decimal(1)), 320, 0),
        (BillLine(RETRY, 2, 100, 20, Decimal(1)), 319, 0),
    ],
    ids=["all there", "tokens of the retries", "money of the retries", "calls of the retries", "the run's limit"],
)
def test_a_second_wrap_up_is_held_back_where_the_bill_and_the_limits_carry_it(
    retries: BillLine, limit: int, held: int
) -> None:
    wrap_up = BillLine(WRAP_UP, 1, 100, 20, Decimal("0.02"))
    bill = Bill((BillLine("answer", 4, 400, 80, Decimal(1)), wrap_up, retries))
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=limit))
    spent = {"answer": Amount(80, 20, 1), WRAP_UP: Amount(90, 10, 1, usd=Decimal("0.01"))}
    lines = bill_accounts(ledger, run, bill, spent=spent)
    assert not run.held("tokens")  # its call is made: what it left is for whoever goes on
    ledger.restore(run, spent["answer"] + spent[WRAP_UP])
    hold_again(ledger, run, lines, bill)
    assert (run.held("tokens"), lines[RETRY].held("tokens")) == (held, held)
    assert run.held("calls") == (1 if held else 0)


@pytest.mark.parametrize(
    "spent", [Amount(101, 50, 1), Amount(100, 51, 1), Amount(100, 50, 2), Amount(100, 50, 1, usd=Decimal("0.02"))]
)
def test_of_a_wrap_up_that_overran_nothing_more_is_held_after_a_resume(spent: Amount) -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=25, tokens=1870, usd=Decimal(1)))
    bill_accounts(ledger, run, BILL, spent={WRAP_UP: spent + Amount(usd=Decimal("0.01"))})
    assert [run.held(name) for name in ("tokens_in", "tokens_out", "calls", "usd")] == [0, 0, 0, 0]
