"""Which accounts of the ledger a step is charged to.

::

    run                         the user's limits, and the wrap-up share
    ├── line:proposal           one account a line of the bill: calls, tokens and money of that purpose
    ├── line:retry
    ├── role:proposer           one account a role that the user limits, over all nodes
    └── node:/                  a node; its limits are carved from its parent's remainder, if it has any
        ├── role:frame-challenger
        └── node:/signals       a child
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from romanesco.budget import RETRY, WRAP_UP, Amount, Limits
from romanesco.task import Budget

if TYPE_CHECKING:
    from romanesco.budget import Account, Ledger

REPAIR = "repair"
"""The line of re-asks after a reply that did not fit its schema."""

ONE_NODE = Amount(nodes=1)


@dataclass(slots=True)
class Past:
    """What a resumed run had spent before, by node (its subtree included), by role and by line."""

    run: Amount = field(default_factory=Amount)
    nodes: dict[str, Amount] = field(default_factory=dict)
    roles: dict[tuple[str, str], Amount] = field(default_factory=dict)
    lines: dict[str, Amount] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)

    def open(self, node: str) -> None:
        """Count a node that was opened."""
        self.opened.add(node)
        self._up(node, ONE_NODE)

    def _up(self, node: str, amount: Amount) -> None:
        self.run += amount
        path = node
        while True:
            self.nodes[path] = self.nodes.get(path, Amount()) + amount
            if path == "/":
                break
            path = parent_of(path)

    def add(self, node: str, role: str, line: str, call_line: str, amount: Amount) -> None:
        """Count one attempt: its tokens and money on ``line``, its call on ``call_line``."""
        self._up(node, amount)
        self.roles[node, role] = self.roles.get((node, role), Amount()) + amount
        calls = Amount(calls=amount.calls)
        self.lines[line] = self.lines.get(line, Amount()) + (amount - calls)
        self.lines[call_line] = self.lines.get(call_line, Amount()) + calls


def parent_of(path: str) -> str:
    """Path of the node above."""
    return path.rsplit("/", 1)[0] or "/"


@dataclass(slots=True)
class Accounts:
    """Looks up, and opens when first needed, the accounts of one run."""

    ledger: Ledger
    run: Account
    lines: dict[str, Account]
    past: Past = field(default_factory=Past)
    nodes: dict[str, Account] = field(default_factory=dict)
    roles: dict[tuple[str, str], Account] = field(default_factory=dict)
    caps: dict[str, Account] = field(default_factory=dict)
    role_limits: dict[str, Budget] = field(default_factory=dict)

    def open_node(self, path: str, budget: Budget | None = None) -> Account:
        """Open a node's account: carved from its parent's remainder if it has limits, else within the parent's.

        Raises:
            BudgetExceeded: The parent's remainder is too small.
        """
        parent = self.run if path == "/" else self.node(parent_of(path))
        used = self.past.nodes.get(path, Amount())
        name = f"node:{path}"
        if budget is None:
            account = self.ledger.open(name, parent=parent)
            self.ledger.restore(account, used)
        else:
            account = self.ledger.carve(parent, name, Limits.of(budget), used=used)
        self.nodes[path] = account
        return account

    def enter(self, path: str) -> None:
        """Charge a node that is opened for the first time; it stays charged for good.

        Raises:
            BudgetExceeded: An account has no room for another node.
        """
        if path not in self.past.opened:
            reservation = self.ledger.reserve((self.node(path),), ONE_NODE)
            self.ledger.settle(reservation, ONE_NODE)

    def node(self, path: str) -> Account:
        """A node's account."""
        return self.nodes.get(path) or self.open_node(path)

    def member(self, path: str, role: str) -> tuple[Account, ...]:
        """A role's account within a node, and where the user limits the role, its account over all nodes."""
        account = self.roles.get((path, role))
        if account is None:
            account = self.ledger.open(f"role:{role}", parent=self.node(path))
            self.ledger.restore(account, self.past.roles.get((path, role), Amount()))
            self.roles[path, role] = account
        if role not in self.role_limits:
            return (account,)
        return account, self._capped(role)

    def _capped(self, role: str) -> Account:
        account = self.caps.get(role)
        if account is None:
            limits = Limits.of(self.role_limits[role])
            advice = f"raise its limit in [limits.{role}]"
            account = self.ledger.open(f"role:{role}", parent=self.run, limits=limits, advice=advice)
            past = [amount for (_, who), amount in self.past.roles.items() if who == role]
            self.ledger.restore(account, sum(past, Amount()))
            self.caps[role] = account
        return account

    def line(self, purpose: str) -> tuple[Account, ...]:
        """The bill line of a purpose; nothing where the plan made no bill."""
        if not self.lines:
            return ()
        account = self.lines.get(purpose)
        if account is None:
            # A purpose that the bill does not name may not spend: it was not in the printed worst case.
            limits = Limits(calls=0, tokens=0)
            account = self.lines[purpose] = self.ledger.open(f"line:{purpose}", parent=self.run, limits=limits)
        return (account,)


__all__ = ["REPAIR", "RETRY", "WRAP_UP", "Accounts", "Past", "parent_of"]
