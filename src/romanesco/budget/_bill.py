"""A bill becomes accounts: one for each of its lines, and the share that is held back for the wrap-up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

from romanesco.budget._account import Account
from romanesco.budget._amount import Amount, Limits
from romanesco.budget._ledger import Ledger
from romanesco.errors import BudgetExceeded
from romanesco.task import Bill, BillLine

WRAP_UP = "wrap-up"
"""Purpose of the line whose share is held back."""

RETRY = "retry"
"""Purpose of the line of further attempts."""

_ADVICE = "it is a line of the printed bill, so plan again with a larger budget or other parameters"


def bill_accounts(
    ledger: Ledger, run_account: Account, bill: Bill, *, spent: Mapping[str, Amount] | None = None
) -> dict[str, Account]:
    """Open an account for each line of a bill, and hold the wrap-up line's share back in the run's account.

    The lines are limits inside the run's account; nothing is set aside for them but the wrap-up's share, so
    what one line leaves is there for nodes below. Lines of the same purpose become one account. A line whose
    price is unknown has no limit of money.

    On resume, call this on fresh accounts with ``spent``, and ``Ledger.restore`` the run's account after it.

    Args:
        ledger: Where.
        run_account: The account of the run or node that the bill is for.
        bill: The bill.
        spent: What was already spent by purpose, before a resume.

    Returns:
        The accounts by purpose; their names are ``line:PURPOSE`` below the run's.

    Raises:
        BudgetExceeded: The run's account can't hold the wrap-up's share back.
    """
    past = spent or {}
    shares: dict[str, BillLine] = {}
    for line in bill.lines:
        shares[line.purpose] = shares[line.purpose] + line if line.purpose in shares else line
    accounts = {}
    for purpose, line in shares.items():
        limits = Limits(calls=line.calls, tokens_in=line.tokens_in, tokens_out=line.tokens_out, usd=line.usd)
        account = ledger.open(f"line:{purpose}", parent=run_account, limits=limits, advice=_ADVICE)
        if purpose in past:
            ledger.restore(account, past[purpose])
        accounts[purpose] = account
    if WRAP_UP in shares:
        ledger.hold(run_account, _share(shares[WRAP_UP], past.get(WRAP_UP, Amount())))
    return accounts


def hold_again(ledger: Ledger, run_account: Account, lines: Mapping[str, Account], bill: Bill) -> None:
    """Hold a wrap-up back once more, in a resumed run that has used its wrap-up line up.

    The bill has one wrap-up and does not grow: another one is a further attempt, on the retry line, so it is held back
    there too. Where that line or the run's limits can't carry its worst case, nothing is held back.

    Args:
        ledger: Where.
        run_account: The account of the run, restored.
        lines: The accounts of the bill's lines, restored.
        bill: The bill.
    """
    if WRAP_UP not in lines or RETRY not in lines or lines[WRAP_UP].remaining("calls"):
        return
    line = reduce(add, (line for line in bill.lines if line.purpose == WRAP_UP))
    whole = _share(line, Amount())
    try:
        ledger.release(ledger.reserve((lines[RETRY],), whole))
    except BudgetExceeded:
        return
    for account in (run_account, lines[RETRY]):
        ledger.hold(account, whole)


def _share(line: BillLine, spent: Amount) -> Amount:
    if spent.calls >= line.calls:
        return Amount()  # without a call left its tokens would be held back for nobody
    whole = Amount(line.tokens_in, line.tokens_out, line.calls, usd=line.usd or Amount().usd)
    return Amount(
        max(0, whole.tokens_in - spent.tokens_in),
        max(0, whole.tokens_out - spent.tokens_out),
        max(0, whole.calls - spent.calls),
        usd=max(whole.usd - spent.usd, Amount().usd),
    )
