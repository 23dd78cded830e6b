"""The budget: what a step may cost, the accounts that reserve it before it starts, and what models charge."""

from romanesco.budget._account import Account
from romanesco.budget._amount import DIMENSIONS, Amount, Limits, money, seconds_limit
from romanesco.budget._bill import RETRY, WRAP_UP, bill_accounts, hold_again
from romanesco.budget._ledger import Ledger
from romanesco.budget._prices import Price, Quote, Tier, price_of, require_price, require_prices
from romanesco.budget._reservation import Overrun, Reservation
from romanesco.budget._stopwatch import Stopwatch

__all__ = [
    "DIMENSIONS",
    "RETRY",
    "WRAP_UP",
    "Account",
    "Amount",
    "Ledger",
    "Limits",
    "Overrun",
    "Price",
    "Quote",
    "Reservation",
    "Stopwatch",
    "Tier",
    "bill_accounts",
    "hold_again",
    "money",
    "price_of",
    "require_price",
    "require_prices",
    "seconds_limit",
]
