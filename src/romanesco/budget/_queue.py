"""Callers that wait for room in an account, and the order in which they get it.

The policy. Waiters are looked at from the oldest to the newest. One that fits is granted. One that could not
be granted even if everything reserved came back unspent is refused. One that is merely too early *marks* each
account and dimension that it is short of, and nobody younger who asks for the same is granted before it. So a
large ask is never starved by small ones, and a waiter for one account doesn't block the users of another.
Waiters with the same route are strictly first come, first served. A waiter that is behind a mark makes none
of its own until its turn comes. Wrap-up asks don't queue behind ordinary ones: what is held is theirs.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable

from romanesco.budget._account import Account, Route
from romanesco.budget._amount import Amount
from romanesco.budget._reservation import Reservation
from romanesco.errors import RomanescoError


class Waiter:
    """One caller that waits: its ask, its place in the queue, the future that wakes it and the answer."""

    __slots__ = ("amount", "answer", "future", "number", "route", "wrap_up")

    def __init__(self, number: int, route: Route, amount: Amount, wrap_up: bool) -> None:
        self.number = number
        self.route = route
        self.amount = amount
        self.wrap_up = wrap_up
        self.answer: Reservation | RomanescoError | None = None
        # Made by the caller that waits, so that no ledger is bound to a loop before somebody waits in one.
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Marks:
    """Accounts and dimensions that older waiters are short of."""

    __slots__ = ("_direct", "_under")

    def __init__(self) -> None:
        self._direct: dict[Account, set[int]] = {}
        self._under: dict[Account, set[int]] = {}

    def add(self, account: Account, i: int, *, covered: bool) -> None:
        """Mark a shortage. One that is covered is a shortage of the limit itself, and blocks both ways."""
        self._direct.setdefault(account, set()).add(i)
        if covered:
            self._under.setdefault(account, set()).add(i)

    def block(self, route: Route, amount: Amount) -> bool:
        """Whether an older waiter comes first for something that this one asks for."""
        ask = amount.vector
        for account, direct, covered in route.parts:
            if account in self._direct and any(ask[i] and i in direct for i in self._direct[account]):
                return True
            if account in self._under and any(ask[i] and i in covered for i in self._under[account]):
                return True
        return False


class WaitQueue:
    """Waiters grouped by route, each group in order of arrival."""

    __slots__ = ("_groups", "_next")

    def __init__(self) -> None:
        self._groups: dict[tuple[Route, bool], deque[Waiter]] = {}
        self._next = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def add(self, route: Route, amount: Amount, *, wrap_up: bool) -> Waiter:
        """Put a caller at the end."""
        self._next += 1
        waiter = Waiter(self._next, route, amount, wrap_up)
        self._groups.setdefault((route, wrap_up), deque()).append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out."""
        key = (waiter.route, waiter.wrap_up)
        group = self._groups[key]
        group.remove(waiter)
        if not group:
            del self._groups[key]

    def sweep(self, decide: Callable[[Waiter], bool]) -> None:
        """Look at every waiter whose turn may have come, oldest first.

        Args:
            decide: Grants or refuses the waiter and returns True, or returns False if it must wait on.
        """
        ordinary, wrapping = Marks(), Marks()
        heads = [(group[0].number, key) for key, group in self._groups.items()]
        heapq.heapify(heads)
        while heads:
            _, key = heapq.heappop(heads)
            group = self._groups[key]
            waiter = group[0]
            if (wrapping if waiter.wrap_up else ordinary).block(waiter.route, waiter.amount):
                continue
            if decide(waiter):
                group.popleft()
                if group:
                    heapq.heappush(heads, (group[0].number, key))
                else:
                    del self._groups[key]
                continue
            for account, i, covered in waiter.route.shortages(waiter.amount.vector, wrap_up=waiter.wrap_up):
                ordinary.add(account, i, covered=covered)
                if waiter.wrap_up:
                    wrapping.add(account, i, covered=covered)
