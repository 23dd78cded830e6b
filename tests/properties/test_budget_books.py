"""The ledger under random operations, against a model that recomputes everything from the reservations."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from romanesco.budget import DIMENSIONS, Account, Amount, Ledger, Limits, Reservation, money
from romanesco.errors import BudgetExceeded, RomanescoError

Numbers = list[int]
ALL = range(len(DIMENSIONS))


@dataclass
class Modelled:
    """What the model knows about an account; whatever else there is to know is recomputed."""

    account: Account
    parent: Modelled | None
    limits: list[int | None]
    carved: frozenset[int] = frozenset()
    closed: bool = False
    held: Numbers = field(default_factory=lambda: [0] * len(DIMENSIONS))
    excused: set[int] = field(default_factory=set)

    def chain(self) -> list[Modelled]:
        return [self, *(self.parent.chain() if self.parent else [])]


@dataclass
class Flight:
    """A reservation as the model sees it."""

    reservation: Reservation
    named: list[Modelled]
    ask: Numbers
    wrap_up: bool

    def through(self) -> list[Modelled]:
        found: list[Modelled] = []
        for leaf in self.named:
            found += [account for account in leaf.chain() if account not in found]
        return found

    def covered(self, above: Modelled, i: int) -> bool:
        """Whether a carved account strictly below ``above`` on one of its ways pays for it."""
        for leaf in self.named:
            chain = leaf.chain()
            if above in chain and any(i in one.carved for one in chain[: chain.index(above)]):
                return True
        return False


def numbers(amount: Amount) -> Numbers:
    return [amount.tokens, amount.tokens_in, amount.tokens_out, int(amount.usd), amount.calls, amount.nodes]


def read(account: Account, what: str) -> Numbers:
    return [int(getattr(account, what)(name)) for name in DIMENSIONS]


small = st.integers(0, 6)
amounts = st.builds(
    Amount,
    tokens_in=small,
    tokens_out=small,
    calls=st.integers(0, 2),
    nodes=st.integers(0, 1),
    usd=st.integers(0, 4).map(money),
)
maybe = st.none() | st.integers(0, 25)
limits = st.builds(
    Limits,
    tokens=maybe,
    tokens_in=maybe,
    tokens_out=maybe,
    usd=st.none() | st.integers(0, 12).map(money),
    calls=maybe,
    nodes=maybe,
)


class LedgerMachine(RuleBasedStateMachine):
    """Random operations; the invariants are checked after each."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.accounts: list[Modelled] = []
        self.flights: list[Flight] = []
        self.settled: list[tuple[Flight, Numbers]] = []
        self.counter = 0

    def pick(self, seed: int) -> Modelled:
        return self.accounts[seed % len(self.accounts)]

    def caps(self, given: Limits) -> list[int | None]:
        return [None if getattr(given, name) is None else int(getattr(given, name)) for name in DIMENSIONS]

    def name(self) -> str:
        self.counter += 1
        return f"a{self.counter}"

    # The model's own view, from first principles

    def used(self, account: Modelled) -> Numbers:
        costs = [cost for flight, cost in self.settled if account in flight.through()]
        return [sum(cost[i] for cost in costs) for i in ALL]

    def in_flight(self, account: Modelled) -> Numbers:
        asks = [flight.ask for flight in self.flights if account in flight.through()]
        return [sum(ask[i] for ask in asks) for i in ALL]

    def claim(self, account: Modelled, i: int) -> int:
        limit = account.limits[i]
        unspent = 0 if account.closed or limit is None else max(0, limit - self.used(account)[i])
        return max(unspent, self.reserved(account, i))

    def reserved(self, account: Modelled, i: int) -> int:
        direct = [f for f in self.flights if account in f.through() and not f.covered(account, i)]
        total = sum(flight.ask[i] for flight in direct)
        for other in self.accounts:
            chain = other.chain()
            if i in other.carved and other is not account and account in chain:
                between = chain[1 : chain.index(account)]
                if not any(i in one.carved for one in between):
                    total += self.claim(other, i)
        return total

    # Operations

    @rule(given=limits)
    @precondition(lambda self: not self.accounts)
    def open_root(self, given: Limits) -> None:
        self.accounts.append(Modelled(self.ledger.open("run", limits=given), None, self.caps(given)))

    @rule(seed=st.integers(0, 99), given=limits)
    @precondition(lambda self: 0 < len(self.accounts) < 7)
    def open_child(self, seed: int, given: Limits) -> None:
        parent = self.pick(seed)
        if parent.closed:
            return
        account = self.ledger.open(self.name(), parent=parent.account, limits=given)
        self.accounts.append(Modelled(account, parent, self.caps(given)))

    @rule(seed=st.integers(0, 99), given=limits)
    @precondition(lambda self: 0 < len(self.accounts) < 7)
    def carve(self, seed: int, given: Limits) -> None:
        parent = self.pick(seed)
        before = self.ledger.snapshot()
        try:
            account = self.ledger.carve(parent.account, self.name(), given)
        except BudgetExceeded:
            assert self.ledger.snapshot() == before
            return
        except RomanescoError:
            assert any(above.closed for above in parent.chain())
            return
        caps = self.caps(given)
        carved = frozenset(i for i in ALL if caps[i] is not None)
        self.accounts.append(Modelled(account, parent, caps, carved))

    @rule(seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3), amount=amounts, wrap_up=st.booleans())
    @precondition(lambda self: self.accounts)
    def reserve(self, seeds: list[int], amount: Amount, wrap_up: bool) -> None:
        named = [self.pick(seed) for seed in seeds]
        before = self.ledger.snapshot()
        try:
            reservation = self.ledger.reserve([one.account for one in named], amount, wrap_up=wrap_up)
        except BudgetExceeded:
            assert self.ledger.snapshot() == before
            return
        except RomanescoError:
            assert any(above.closed for one in named for above in one.chain())
            return
        flight = Flight(reservation, named, numbers(amount), wrap_up)
        self.flights.append(flight)
        # The one promise, without any excuse: nothing is granted that could take an account past its limit.
        for account in flight.through():
            used, flying = self.used(account), self.in_flight(account)
            for i, limit in enumerate(account.limits):
                assert not flight.ask[i] or limit is None or used[i] + flying[i] <= limit

    @rule(seed=st.integers(0, 99), share=st.integers(0, 100), release=st.booleans(), more=st.integers(0, 40))
    @precondition(lambda self: self.flights)
    def settle(self, seed: int, share: int, release: bool, more: int) -> None:
        flight = self.flights.pop(seed % len(self.flights))
        if release:
            self.ledger.release(flight.reservation)
            cost = [0] * len(DIMENSIONS)
        else:
            worst = flight.reservation.amount
            excess = max(0, more - 37)  # rarely
            actual = Amount(
                worst.tokens_in * share // 100,
                worst.tokens_out + excess if share > 50 else worst.tokens_out * share // 100,
                worst.calls,
                worst.nodes,
                money(int(worst.usd) * share // 100),
            )
            overruns = self.ledger.settle(flight.reservation, actual)
            cost = numbers(actual)
            over = [i for i in ALL if cost[i] > flight.ask[i]]
            assert [(o.dimension, o.by) for o in overruns] == [(DIMENSIONS[i], cost[i] - flight.ask[i]) for i in over]
            for account in flight.through():
                account.excused.update(over)
                assert bool(account.account.stopped) >= bool(over)
        self.settled.append((flight, cost))

    @rule(seed=st.integers(0, 99), dimension=st.sampled_from(DIMENSIONS), value=maybe)
    @precondition(lambda self: self.accounts)
    def set_limit(self, seed: int, dimension: str, value: int | None) -> None:
        one = self.pick(seed)
        i = DIMENSIONS.index(dimension)
        before = self.ledger.snapshot()
        try:
            self.ledger.set_limit(one.account, dimension, value)
        except RomanescoError:
            assert self.ledger.snapshot() == before
            return
        old = one.limits[i]
        one.limits[i] = value
        if value is not None and (old is None or value < old):
            one.excused.add(i)

    @rule(seed=st.integers(0, 99), amount=amounts)
    @precondition(lambda self: self.accounts)
    def hold(self, seed: int, amount: Amount) -> None:
        one = self.pick(seed)
        try:
            self.ledger.hold(one.account, amount)
        except BudgetExceeded:
            return
        one.held = [a + b for a, b in zip(one.held, numbers(amount), strict=True)]

    @rule(seed=st.integers(0, 99))
    @precondition(lambda self: len(self.accounts) > 4)
    def close(self, seed: int) -> None:
        one = self.pick(seed)
        self.ledger.close(one.account)
        one.closed = True

    # What must hold after each of them

    @invariant()
    def books_are_exact(self) -> None:
        for one in self.accounts:
            assert read(one.account, "used") == self.used(one)
            assert read(one.account, "reserved") == [self.reserved(one, i) for i in ALL]

    @invariant()
    def nothing_is_over_its_limit(self) -> None:
        for one in self.accounts:
            used, reserved, held = (read(one.account, what) for what in ("used", "reserved", "held"))
            for i, limit in enumerate(one.limits):
                if limit is not None and i not in one.excused:
                    assert used[i] + reserved[i] + held[i] <= limit

    @invariant()
    def nothing_is_negative(self) -> None:
        for one in self.accounts:
            for what in ("used", "reserved", "held"):
                assert min(read(one.account, what)) >= 0
            held = read(one.account, "held")
            assert all(have <= given for have, given in zip(held, one.held, strict=True))

    @invariant()
    def a_parent_has_what_its_children_have(self) -> None:
        for one in self.accounts:
            if one.parent:
                pairs = zip(read(one.account, "used"), read(one.parent.account, "used"), strict=True)
                assert all(child <= parent for child, parent in pairs)

    def teardown(self) -> None:
        for flight in self.flights:
            self.ledger.release(flight.reservation)
            self.settled.append((flight, [0] * len(DIMENSIONS)))
        self.flights = []
        for one in self.accounts:
            self.ledger.close(one.account)
            one.closed = True
        self.books_are_exact()
        for one in self.accounts:
            assert read(one.account, "reserved") == [0] * len(DIMENSIONS)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
