"""Callers that wait for room in an account, and the order in which they get it.

The policy. Waiters are looked at from the oldest to the newest. One that fits is granted. One that could not
be granted even if everything reserved came back unspent is refused. One that is merely too early *marks* each
account and dimension that it is short of, and nobody younger who asks for the same is granted before it. So a
large ask is never starved by small ones, and a waiter for one account doesn't block the users of another.
Waiters with the same route are strictly first come, first served. A waiter that is behind a mark makes none
of its own until its turn comes. Wrap-up asks don't queue behind ordinary ones: what is held is theirs.

The cost. Thousands may wait, and every settled step is a reason to look again. So each group of waiters with one
route is kept at a *place*: the mark that was in its way when it was last looked at. While that mark is made again by
somebody older, nobody at the place has a turn, and only the oldest there needs a look. A look at the queue costs as
many steps as there are places, and not as many as there are waiters.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

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


class Place(NamedTuple):
    """A mark, and whose way it is in: that of wrap-up asks, or of ordinary ones."""

    wrap_up: bool
    account: Account
    i: int
    covered: bool


class Marks:
    """Accounts and dimensions that older waiters are short of, as one kind of asks sees them."""

    __slots__ = ("_covered", "_direct", "_wrap_up")

    def __init__(self, *, wrap_up: bool) -> None:
        self._wrap_up = wrap_up
        self._direct: dict[Account, set[int]] = {}
        self._covered: dict[Account, set[int]] = {}

    def add(self, account: Account, i: int, *, covered: bool) -> None:
        """Mark a shortage. One that is covered is a shortage of the limit itself, and blocks both ways."""
        self._direct.setdefault(account, set()).add(i)
        if covered:
            self._covered.setdefault(account, set()).add(i)

    def __contains__(self, place: Place) -> bool:
        marked = self._covered if place.covered else self._direct
        return place.i in marked.get(place.account, ())

    def block(self, route: Route, amount: Amount) -> Place | None:
        """The mark of an older waiter, who comes first for something that this one asks for; None if there is none."""
        ask = amount.vector
        for account, direct, covered in route.parts:
            for i in self._direct.get(account, ()):
                if ask[i] and i in direct:
                    return Place(self._wrap_up, account, i, covered=False)
            for i in self._covered.get(account, ()):
                if ask[i] and i in covered:
                    return Place(self._wrap_up, account, i, covered=True)
        return None


class WaitQueue:
    """Waiters grouped by route, each group in order of arrival, and the groups by what was last in their way."""

    __slots__ = ("_groups", "_heads", "_next", "_places")

    def __init__(self) -> None:
        self._groups: dict[tuple[Route, bool], deque[Waiter]] = {}
        # The first waiter of every group by its number. Each number is at one place, in a heap; numbers of waiters
        # that have gone are dropped there when they come up.
        self._heads: dict[int, Waiter] = {}
        self._places: dict[Place | None, list[int]] = {}
        self._next = 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def add(self, route: Route, amount: Amount, *, wrap_up: bool) -> Waiter:
        """Put a caller at the end."""
        self._next += 1
        waiter = Waiter(self._next, route, amount, wrap_up)
        group = self._groups.setdefault((route, wrap_up), deque())
        group.append(waiter)
        if len(group) == 1:
            self._lead(waiter, None)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out. If it was the first of its group, the next one's turn may have come."""
        key = (waiter.route, waiter.wrap_up)
        group = self._groups[key]
        group.remove(waiter)
        if self._heads.pop(waiter.number, None) is not None and group:
            self._lead(group[0], None)
        if not group:
            del self._groups[key]

    def sweep(self, decide: Callable[[Waiter], bool]) -> None:
        """Look at every waiter whose turn may have come, oldest first.

        Args:
            decide: Grants or refuses the waiter and returns True, or returns False if it must wait on.
        """
        marks = {kind: Marks(wrap_up=kind) for kind in (False, True)}
        turns: list[tuple[int, Place | None]] = []

        def call_next(place: Place | None) -> None:
            number = self._first(place)
            if number is not None:
                heapq.heappush(turns, (number, place))

        for place in list(self._places):
            call_next(place)
        while turns:
            number, place = heapq.heappop(turns)
            if self._first(place) != number or (place is not None and place in marks[place.wrap_up]):
                continue  # it has been looked at, or somebody older is still in the way of all at this place
            waiter = self._heads[number]
            heapq.heappop(self._places[place])
            blocked = marks[waiter.wrap_up].block(waiter.route, waiter.amount)
            if blocked is not None:
                self._lead(waiter, blocked)
            elif decide(waiter):
                self.remove(waiter)
                call_next(None)
            else:
                self._lead(waiter, self._mark(waiter, marks))
            call_next(place)

    def _mark(self, waiter: Waiter, marks: dict[bool, Marks]) -> Place:
        """Mark all that a waiter is short of; gives the first of these marks."""
        first = None
        for account, i, covered in waiter.route.shortages(waiter.amount.vector, wrap_up=waiter.wrap_up):
            for kind in (False, True) if waiter.wrap_up else (False,):
                marks[kind].add(account, i, covered=covered)
            first = first or Place(waiter.wrap_up, account, i, covered)
        assert first is not None, "who fits and is not hopeless does not wait"
        return first

    def _lead(self, waiter: Waiter, place: Place | None) -> None:
        """Put the first of a group at a place; None is the place of those that were not looked at yet."""
        self._heads[waiter.number] = waiter
        heapq.heappush(self._places.setdefault(place, []), waiter.number)

    def _first(self, place: Place | None) -> int | None:
        """Number of the oldest waiter at a place."""
        numbers = self._places.get(place)
        if numbers is None:
            return None
        while numbers and numbers[0] not in self._heads:
            heapq.heappop(numbers)
        if not numbers:
            del self._places[place]
            return None
        return numbers[0]
