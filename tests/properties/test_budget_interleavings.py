"""Concurrent callers of one ledger, interleaved at random: nothing overshoots and everybody gets an answer."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.budget import DIMENSIONS, Account, Amount, Ledger, Limits
from romanesco.errors import BudgetExceeded
from tests.support import PATIENCE


@dataclass(frozen=True)
class Member:
    """What one caller does: a few calls in turn, each with its worst case and its cost in per cent."""

    leaves: tuple[int, ...]
    calls: tuple[tuple[int, int, int], ...]
    start: int
    patience: int
    wrap_up: bool


@dataclass(frozen=True)
class Change:
    """Something done to the tree while the members work."""

    at: int
    kind: str
    target: int
    value: int


members = st.builds(
    Member,
    leaves=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
    calls=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-20, 100)), min_size=1, max_size=3).map(
        tuple
    ),
    start=st.integers(0, 5),
    patience=st.sampled_from([2, 5, 1000, 1000, 1000]),
    wrap_up=st.sampled_from([False, False, False, True]),
)
changes = st.builds(
    Change,
    at=st.integers(0, 20),
    kind=st.sampled_from(["limit", "limit", "hold", "carve", "close"]),
    target=st.integers(0, 9),
    value=st.integers(0, 60),
)


class Town:
    """A ledger with a tree of accounts, its callers, and a book of their own of what was spent."""

    def __init__(self, caps: list[int], seed: int) -> None:
        self.ledger = Ledger()
        run = self.ledger.open("run", limits=Limits(tokens=caps[0], calls=caps[1]))
        line = self.ledger.open("line:a", parent=run, limits=Limits(tokens=caps[2]))
        other = self.ledger.open("line:b", parent=run, limits=Limits(calls=caps[3]))
        node = self.ledger.open("node:/a", parent=run)
        inner = self.ledger.open("member:1", parent=node, limits=Limits(tokens_out=caps[4]))
        self.leaves: list[Account] = [line, other, node, inner, run, run]
        self.accounts: list[Account] = [run, line, other, node, inner]
        self.lowered: set[tuple[Account, str]] = set()
        self.flying: dict[Account, list[Amount]] = {}
        self.spent: dict[Account, Amount] = {}
        self.answers = 0
        self.random = random.Random(seed)

    def on_way(self, named: list[Account]) -> set[Account]:
        found: set[Account] = set()
        for account in named:
            step: Account | None = account
            while step is not None:
                found.add(step)
                step = step.parent
        return found

    def check(self) -> None:
        for account in self.accounts:
            for name in DIMENSIONS:
                limit = getattr(account.limits, name)
                used, reserved, held = account.used(name), account.reserved(name), account.held(name)
                assert min(used, reserved, held) >= 0
                assert used == getattr(self.spent.get(account, Amount()), name)
                flying = sum(getattr(amount, name) for amount in self.flying.get(account, []))
                assert reserved >= flying if not self.has_carved(account, name) else True
                if limit is not None and (account, name) not in self.lowered:
                    assert used + reserved + held <= limit
                    assert used + flying <= limit

    def has_carved(self, account: Account, name: str) -> bool:
        """Its own claim on a parent is not a call in flight there, and the other way round."""
        return any(one.parent is account and getattr(one.limits, name) is not None for one in self.accounts[5:])

    async def work(self, member: Member) -> None:
        for _ in range(member.start):
            await asyncio.sleep(0)
        named = [self.leaves[i] for i in member.leaves]
        for read, written, share in member.calls:
            worst = Amount(read, written, 1)
            try:
                async with asyncio.timeout(None) as limit:
                    if member.patience < 1000:
                        limit.reschedule(asyncio.get_running_loop().time() + member.patience / 10_000)
                    held = await self.ledger.acquire(named, worst, wrap_up=member.wrap_up)
            except BudgetExceeded as error:
                assert error.account and error.dimension in DIMENSIONS
                self.check()
                break
            except TimeoutError:
                self.check()
                break
            way = self.on_way(named)
            assert set(held.accounts) == way
            for account in way:
                self.flying.setdefault(account, []).append(worst)
            self.check()
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
            actual = Amount(read * max(share, 0) // 100, written * max(share, 0) // 100, 1)
            for account in way:
                self.flying[account].remove(worst)
                if share >= 0:
                    self.spent[account] = self.spent.get(account, Amount()) + actual
            if share < 0:
                self.ledger.release(held)
            else:
                assert self.ledger.settle(held, actual) == ()
            self.check()
        self.answers += 1

    async def change(self, plan: list[Change]) -> None:
        for step in range(21):
            for one in plan:
                if one.at == step:
                    self.apply(one)
                    self.check()
            await asyncio.sleep(0)

    def apply(self, one: Change) -> None:
        account = self.accounts[one.target % len(self.accounts)]
        if one.kind == "close":
            if account in self.accounts[5:] and not account.closed:
                self.ledger.close(account)
                self.lowered.update((account, name) for name in DIMENSIONS)
            return
        if account.closed:
            return
        try:
            if one.kind == "limit":
                old = account.limits.tokens
                self.ledger.set_limit(account, "tokens", one.value)
                if old is None or one.value < old:
                    self.lowered.add((account, "tokens"))
            elif one.kind == "hold":
                self.ledger.hold(account, Amount(one.value // 8, one.value // 8, one.value // 20))
            else:
                name = f"node:/{len(self.accounts)}"
                carved = self.ledger.carve(account, name, Limits(tokens=one.value // 2, calls=one.value // 10))
                self.accounts.append(carved)
                self.leaves[2] = carved  # members that come later work in it
        except BudgetExceeded:
            pass


async def live(caps: list[int], team: list[Member], plan: list[Change], seed: int) -> None:
    town = Town(caps, seed)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for member in team:
            group.create_task(town.work(member))
        group.create_task(town.change(plan))
    assert town.answers == len(team)
    assert town.ledger.waiting == 0
    for account in reversed(town.accounts[5:]):
        town.ledger.close(account)
    for account in town.accounts:
        assert {account.reserved(name) for name in DIMENSIONS} == {0}
    run = town.accounts[0]
    assert run.used("calls") == town.spent.get(run, Amount()).calls


@given(
    caps=st.lists(st.integers(0, 40), min_size=5, max_size=5),
    team=st.lists(members, min_size=1, max_size=10),
    plan=st.lists(changes, max_size=5),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=250, deadline=None)
def test_no_interleaving_overshoots_and_every_waiter_gets_an_answer(
    caps: list[int], team: list[Member], plan: list[Change], seed: int
) -> None:
    asyncio.run(live(caps, team, plan, seed))


@given(
    cap=st.integers(0, 60),
    asks=st.lists(st.integers(1, 20), min_size=1, max_size=20),
    shares=st.lists(st.integers(0, 100), min_size=20, max_size=20),
)
@settings(max_examples=150, deadline=None)
def test_a_caller_is_refused_only_if_all_settled_spending_left_no_room_for_it(
    cap: int, asks: list[int], shares: list[int]
) -> None:
    """Who waited is refused only when even the true costs, not the worst cases, leave too little."""

    async def one(ledger: Ledger, run: Account, ask: int, share: int) -> None:
        try:
            held = await ledger.acquire([run], Amount(0, ask))
        except BudgetExceeded:
            used = run.used("tokens")
            assert used + ask > cap
            return
        await asyncio.sleep(0)
        ledger.settle(held, Amount(0, ask * share // 100))

    async def everybody() -> None:
        ledger = Ledger()
        run = ledger.open("run", limits=Limits(tokens=cap))
        async with asyncio.TaskGroup() as group:
            for ask, share in zip(asks, shares, strict=False):
                group.create_task(one(ledger, run, ask, share))
        assert run.used("tokens") <= cap

    asyncio.run(everybody())
