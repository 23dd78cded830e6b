"""Who waits is served as the policy says, word by word: the queue against a list that is gone through as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.budget import Account, Amount, Ledger, Limits, Reservation
from romanesco.budget._account import Route
from romanesco.budget._queue import Waiter, WaitQueue
from romanesco.errors import BudgetExceeded, RomanescoError


class PlainQueue(WaitQueue):
    """The policy as the text of ``_queue`` tells it: all waiters, oldest first, at every sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Waiter] = []

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, route: Route, amount: Amount, *, wrap_up: bool) -> Waiter:
        number = self.waiting[-1].number + 1 if self.waiting else 1
        self.waiting.append(Waiter(number, route, amount, wrap_up))
        return self.waiting[-1]

    def remove(self, waiter: Waiter) -> None:
        self.waiting.remove(waiter)

    def sweep(self, decide: Callable[[Waiter], bool]) -> None:
        shut: set[tuple[Route, bool]] = set()
        short: dict[bool, set[tuple[Account, int, bool]]] = {False: set(), True: set()}
        for waiter in list(self.waiting):
            if (waiter.route, waiter.wrap_up) in shut:
                continue  # strictly first come, first served
            ask = waiter.amount.vector
            marked = short[waiter.wrap_up]
            if any(
                ask[i] and ((account, i, False) in marked if i in direct else (account, i, True) in marked)
                for account, direct, _ in waiter.route.parts
                for i in range(len(ask))
            ):
                shut.add((waiter.route, waiter.wrap_up))
            elif decide(waiter):
                self.waiting.remove(waiter)
            else:
                shut.add((waiter.route, waiter.wrap_up))
                for account, i, covered in waiter.route.shortages(ask, wrap_up=waiter.wrap_up):
                    marks = {(account, i, False), (account, i, covered)}
                    short[False] |= marks
                    if waiter.wrap_up:
                        short[True] |= marks


@dataclass(frozen=True)
class Ask:
    """Somebody asks."""

    leaves: tuple[int, ...]
    amount: Amount
    wrap_up: bool


@dataclass(frozen=True)
class Act:
    """Something is done: to the oldest, second oldest, ... of those who hold or wait, or to an account."""

    kind: str
    which: int
    value: int


asks = st.builds(
    Ask,
    leaves=st.lists(st.integers(0, 8), min_size=1, max_size=2).map(tuple),
    amount=st.builds(Amount, tokens_in=st.integers(0, 9), tokens_out=st.integers(0, 9), calls=st.integers(0, 2)),
    wrap_up=st.sampled_from([False, False, True]),
)
KINDS = ["settle", "settle", "settle", "release", "cancel", "limit", "lower", "hold", "share", "stop", "close"]
acts = st.builds(Act, kind=st.sampled_from(KINDS), which=st.integers(0, 30), value=st.integers(0, 100))


class World:
    """A ledger, its accounts, and what came of everybody who asked."""

    def __init__(self, caps: list[int], queue: WaitQueue) -> None:
        self.ledger = ledger = Ledger()
        ledger._queue = queue
        run = ledger.open("run", limits=Limits(tokens=caps[0], calls=caps[1]))
        lines = [ledger.open(f"line:{n}", parent=run, limits=Limits(tokens=caps[2 + n])) for n in range(2)]
        try:
            node = ledger.carve(run, "node:/a", Limits(tokens=caps[4] // 2))
        except BudgetExceeded:
            node = ledger.open("node:/a", parent=run)
        roles = [ledger.open(f"role:{n}", parent=node if n % 2 else run) for n in range(5)]
        self.accounts = [run, *lines, node, *roles]
        self.asked: list[tuple[asyncio.Task[Reservation], Amount]] = []

    def apply(self, step: Ask | Act) -> None:
        if isinstance(step, Ask):
            named = [self.accounts[i] for i in step.leaves]
            coming = self.ledger.acquire(named, step.amount, wrap_up=step.wrap_up)
            self.asked.append((asyncio.ensure_future(coming), step.amount))
            return
        if step.kind in ("settle", "release", "cancel"):
            self.end_one(step)
            return
        account = self.accounts[step.which % len(self.accounts)]
        try:
            if step.kind == "limit":
                self.ledger.set_limit(account, ("tokens", "calls")[step.which % 2], step.value)
            elif step.kind == "lower":
                self.ledger.set_limit(self.accounts[0], "tokens", step.value // 2)
            elif step.kind == "share":
                self.ledger.hold(self.accounts[0], Amount(step.value // 10))
            elif step.kind == "hold":
                self.ledger.hold(account, Amount(step.value // 10, step.value // 20, 1))
            elif step.kind == "stop" and step.value > 80:
                self.ledger.stop(account, "test")
            elif step.kind == "close" and step.value > 80:
                self.ledger.close(account)
        except RomanescoError:
            pass  # the same in both worlds, or the two differ from here on

    def end_one(self, step: Act) -> None:
        if step.kind == "cancel":
            waiting = [task for task, _ in self.asked if not task.done()]
            if waiting:
                waiting[step.which % len(waiting)].cancel()
            return
        held = [(task.result(), amount) for task, amount in self.asked if granted(task) and task.result().open]
        if held:
            reservation, amount = held[step.which % len(held)]
            share = 0 if step.kind == "release" else step.value
            cost = Amount(amount.tokens_in * share // 100, amount.tokens_out * share // 100, amount.calls)
            if step.kind == "settle":
                self.ledger.settle(reservation, cost)
            else:
                self.ledger.release(reservation)

    def seen(self) -> list[str]:
        return [told(task) for task, _ in self.asked]


def granted(task: asyncio.Task[Reservation]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def told(task: asyncio.Task[Reservation]) -> str:
    if not task.done():
        return "waits"
    if task.cancelled():
        return "cancelled"
    return str(task.exception() or "granted")


async def compare(caps: list[int], steps: list[Ask | Act]) -> None:
    worlds = [World(caps, WaitQueue()), World(caps, PlainQueue())]
    for step in steps:
        for world in worlds:
            world.apply(step)
        for _ in range(3):
            await asyncio.sleep(0)
        assert worlds[0].seen() == worlds[1].seen(), step
        assert worlds[0].ledger.waiting == worlds[1].ledger.waiting
        assert worlds[0].ledger.snapshot() == worlds[1].ledger.snapshot()
    for world in worlds:
        left = [task for task, _ in world.asked if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        assert world.ledger.waiting == 0


@given(
    caps=st.lists(st.integers(0, 60), min_size=5, max_size=5),
    steps=st.lists(st.one_of(asks, asks, acts), min_size=10, max_size=60),
)
@settings(max_examples=400, deadline=None)
def test_everybody_is_served_in_the_order_of_the_policy(caps: list[int], steps: list[Ask | Act]) -> None:
    asyncio.run(compare(caps, steps))
