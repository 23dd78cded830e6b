"""What one step took out of the accounts on its way, and what happens if it cost more."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from romanesco.budget._account import Account, Route
from romanesco.budget._amount import DIMENSIONS, Amount, Figure, Vector, figure


@dataclass(frozen=True, slots=True)
class Overrun:
    """A step cost more than was reserved for it. What was spent is kept, and the account grants nothing more.

    Attributes:
        account: The outermost account that was stopped for it.
        dimension: Of what more was spent.
        by: How much more than was reserved.
        reported_by_server: True if the server reported it; False if the number is our own estimate.
    """

    account: str
    dimension: str
    by: Figure
    reported_by_server: bool = True


class Reservation:
    """The worst case of one step, taken out of every account on its way until it is settled or released.

    Attributes:
        amount: What was reserved.
        wrap_up: Whether it may use what is held back for the wrap-up.
        open: False once it was settled or released.
    """

    __slots__ = ("_draws", "_route", "amount", "open", "wrap_up")

    def __init__(self, route: Route, amount: Amount, wrap_up: bool) -> None:
        self._route = route
        self._draws: list[tuple[Account, int, int]] = []
        self.amount = amount
        self.wrap_up = wrap_up
        self.open = True

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Every account that is charged, outermost first."""
        return self._route.accounts

    def draw(self) -> None:
        """Take as much as possible out of what is held, so that it isn't counted twice. For the ledger."""
        ask = self.amount.vector
        for account, direct, _ in self._route.parts:
            for i in direct:
                drawn = min(account._held[i], ask[i])
                if drawn:
                    account._add("_held", i, -drawn)
                    account._add("_drawn", i, drawn)
                    self._draws.append((account, i, drawn))

    def return_draws(self, cost: Vector) -> None:
        """Hold what a wrap-up step left of the held share again. For the ledger."""
        for account, i, drawn in self._draws:
            account._add("_drawn", i, -drawn)
            account._add("_held", i, max(0, drawn - cost[i]))

    def stop_overrun(self, cost: Vector, *, reported: bool) -> tuple[Overrun, ...]:
        """Stop the accounts of a step that cost more than this, and say by how much. For the ledger."""
        stopped = [account for account in self.accounts if not account.across_runs] or list(self._route.named)
        source = "the server reported" if reported else "our estimate is"
        records = []
        for i, name in enumerate(DIMENSIONS):
            excess = cost[i] - self.amount.vector[i]
            if excess > 0:
                by = figure(i, excess)
                shown = f"{by:f}" if isinstance(by, Decimal) else str(by)
                for account in stopped:
                    account._stop(f"{source} {shown} {name} more than was reserved for a call", i)
                records.append(Overrun(stopped[0].name, name, by, reported))
        return tuple(records)
