"""An account of the ledger, and the route of a reservation through several of them: state and pure checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from romanesco.budget._amount import DIMENSIONS, USD, Figure, Limits, Vector, figure, index_of, limits_of
from romanesco.errors import BudgetExceeded, RomanescoError

_OPTIONS = {"tokens": "--tokens", "usd": "--usd"}
_ALL = tuple(range(len(DIMENSIONS)))
_ZEROS = (0,) * len(DIMENSIONS)
_NO_LIMITS = Limits()
_NO_CAPS = _NO_LIMITS.caps
_NOTHING_LOWERED: frozenset[int] = frozenset()

Figures = list[int] | tuple[int, ...]
"""One number a dimension."""


class Account:
    """One account of a ledger. It is read by everybody and changed only by its ledger.

    Of each dimension it knows what was *used* (settled), what is *reserved* (worst cases of what is in
    flight, and what is set aside for carved accounts below), and what is *held* back for the wrap-up. An
    ordinary reservation is granted only while used + reserved + held + asked <= limit.

    Attributes:
        name: Full name, for example ``run/line:critique``.
        parent: The account above, or None.
        across_runs: Whether runs share it (project, day). Then an overrun in one run doesn't stop it.
        advice: What a refusal by this account tells the reader to do; "" for the standing advice.
        carved: Positions of the dimensions that are set aside in the parent.
        stopped: Why nothing more is granted here, or "".
        closed: Whether it was closed.
    """

    __slots__ = (
        "_bounds",
        "_caps",
        "_drawn",
        "_held",
        "_lowered",
        "_reserved",
        "_rest",
        "_slack",
        "_stopped_dimension",
        "_used",
        "across_runs",
        "advice",
        "carved",
        "closed",
        "name",
        "parent",
        "plain",
        "stopped",
    )

    def __init__(
        self,
        name: str,
        *,
        parent: Account | None,
        limits: Limits,
        carved: tuple[int, ...] = (),
        across_runs: bool = False,
        advice: str = "",
    ) -> None:
        self.name = name
        self.parent = parent
        # This account's part in a route on which nothing is paid from an allotment: shared by all such routes.
        self.plain: tuple[Account, tuple[int, ...], tuple[int, ...]] = (self, _ALL, ())
        self.across_runs = across_runs
        self.advice = advice
        self.carved = carved
        self.stopped = ""
        self.closed = False
        self._stopped_dimension = 0
        # So do the caps of accounts without limits, which most are.
        self._caps = _NO_CAPS if limits == _NO_LIMITS else limits.caps
        self._bounds: tuple[tuple[int, int], ...] = ()
        self._lowered: frozenset[int] = _NOTHING_LOWERED
        self._used = [0] * len(DIMENSIONS)
        self._reserved = [0] * len(DIMENSIONS)
        # These four are zero in nearly every account, of which there may be thousands: they share one tuple until
        # they are first changed.
        self._held: Figures = _ZEROS
        # Part of the held share that wrap-up reservations in flight have taken out of it.
        self._drawn: Figures = _ZEROS
        # Part of what is reserved that is set aside for carved accounts and not in flight there.
        self._slack: Figures = _ZEROS
        # What would still be set aside for carved accounts if nothing were in flight there.
        self._rest: Figures = _ZEROS
        self._bind()

    def __repr__(self) -> str:
        return f"Account({self.name!r})"

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return limits_of(self._caps)

    def used(self, dimension: str) -> Figure:
        """What was spent, settled. Dollars are ``Decimal``."""
        return self._figure(dimension, self._used)

    def reserved(self, dimension: str) -> Figure:
        """Worst cases in flight, and what is set aside for carved accounts."""
        return self._figure(dimension, self._reserved)

    def held(self, dimension: str) -> Figure:
        """What is left of the share that only wrap-up reservations may use."""
        return self._figure(dimension, self._held)

    def remaining(self, dimension: str, *, wrap_up: bool = False) -> Figure | None:
        """What this account alone could grant now; None if this dimension is not limited."""
        i = index_of(dimension)
        limit = self._caps[i]
        if limit is None:
            return None
        return figure(i, max(0, limit - self._load(i, covered=False, wrap_up=wrap_up)))

    def snapshot(self) -> dict[str, object]:
        """The account as JSON-able data; dollars are text."""
        return {
            "used": _shown(self._used),
            "reserved": _shown(self._reserved),
            "held": _shown(self._held),
            "limits": _shown(self._caps),
            "stopped": self.stopped,
            "closed": self.closed,
        }

    def _figure(self, dimension: str, numbers: Sequence[int]) -> Figure:
        i = index_of(dimension)
        return figure(i, numbers[i])

    def _add(self, name: str, i: int, number: int) -> None:
        """Add to one of the four that are seldom changed."""
        numbers: Figures = getattr(self, name)
        if isinstance(numbers, tuple):
            numbers = list(numbers)
            setattr(self, name, numbers)
        numbers[i] += number

    def _bind(self) -> None:
        self._bounds = tuple((i, cap) for i, cap in enumerate(self._caps) if cap is not None)

    def _load(self, i: int, *, covered: bool, wrap_up: bool) -> int:
        """What already counts against the limit.

        A covered ask is paid from what is set aside here for a carved account: only what is really in flight
        counts against it, so that it is refused only if the limit was lowered after the carving.
        """
        load = self._used[i] + self._reserved[i]
        if covered:
            load -= self._slack[i]
        return load if wrap_up else load + self._held[i]

    def _load_at_rest(self, i: int, *, covered: bool, wrap_up: bool) -> int:
        """What would count against the limit if all that is in flight came back unspent.

        What is set aside for carved accounts stays set aside: it comes back when they are closed, and a
        caller that waited for that could wait for a carved account whose own calls wait for the caller.
        """
        load = self._used[i]
        if not covered:
            load += self._rest[i]
        return load if wrap_up else load + self._held[i] + self._drawn[i]

    def _claims(self) -> list[tuple[int, int]]:
        """What the parent sets aside for this account in each carved dimension: now, and at rest.

        That is the unspent part of its limit, or what is in flight if that is more (the limit was lowered, or
        the account was closed, while calls were in flight).
        """
        claims = []
        for i in self.carved:
            limit = self._caps[i]
            unspent = 0 if limit is None or self.closed else max(0, limit - self._used[i])
            claims.append((max(unspent, self._reserved[i]), unspent))
        return claims

    def _stop(self, reason: str, dimension: int) -> None:
        if not self.stopped:
            self.stopped = reason
            self._stopped_dimension = dimension


class Route:
    """The way of a reservation: every account above the named ones once, outermost first.

    ``parts`` holds for each account the dimensions charged *directly* (they count as reserved there) and
    those *covered* by what is already set aside for a carved account on the way. ``carved`` are the carved
    accounts, innermost first. ``plain`` says that nothing is covered.
    """

    __slots__ = ("accounts", "carved", "named", "parts", "plain")

    def __init__(self, named: tuple[Account, ...]) -> None:
        depth: dict[Account, int] = {}
        for account in named:
            chain: list[Account] = []
            step: Account | None = account
            while step is not None and step not in depth:
                chain.append(step)
                step = step.parent
            base = -1 if step is None else depth[step]
            for offset, member in enumerate(reversed(chain), start=1):
                depth[member] = base + offset
        self.named = named
        self.accounts = tuple(sorted(depth, key=depth.__getitem__))
        covered: dict[Account, set[int]] = {account: set() for account in self.accounts}
        for account in reversed(self.accounts):
            if account.parent is not None:
                covered[account.parent].update(account.carved, covered[account])
        self.parts = tuple(
            (account, tuple(i for i in _ALL if i not in covered[account]), tuple(sorted(covered[account])))
            if covered[account]
            else account.plain
            for account in self.accounts
        )
        self.carved = tuple(account for account in reversed(self.accounts) if account.carved)
        self.plain = not self.carved

    def shortage(self, ask: Vector, *, wrap_up: bool) -> tuple[Account, int, bool] | None:
        """The outermost account and dimension without room now, and whether it is covered there."""
        if wrap_up:
            return next(self.shortages(ask, wrap_up=True), None)
        for account, _, covered in self.parts:
            # The same as in shortages(), written out: every call passes here.
            used, reserved, held = account._used, account._reserved, account._held
            for i, limit in account._bounds:
                wanted = ask[i]
                if wanted:
                    load = used[i] + reserved[i] + held[i] + wanted
                    if load > limit and (i not in covered or load - account._slack[i] > limit):
                        return account, i, i in covered
        return None

    def shortages(self, ask: Vector, *, wrap_up: bool) -> Iterator[tuple[Account, int, bool]]:
        """All of them, outermost first."""
        for account, _, covered in self.parts:
            for i, limit in account._bounds:
                under = i in covered
                if ask[i] and account._load(i, covered=under, wrap_up=wrap_up) + ask[i] > limit:
                    yield account, i, under

    def unclaimable(self, ask: Sequence[int]) -> tuple[Account, int] | None:
        """The outermost account and dimension without room for setting the ask aside."""
        for account, direct, _ in self.parts:
            for i, limit in account._bounds:
                if ask[i] and i in direct and account._load(i, covered=False, wrap_up=False) + ask[i] > limit:
                    return account, i
        return None

    def hopeless(self, ask: Vector, *, wrap_up: bool) -> tuple[Account, int, bool] | None:
        """Like ``shortage``, as it would be if all that is in flight came back unspent."""
        for account, _, covered in self.parts:
            for i, limit in account._bounds:
                under = i in covered
                if ask[i] and account._load_at_rest(i, covered=under, wrap_up=wrap_up) + ask[i] > limit:
                    return account, i, under
        return None

    def barrier(self) -> RomanescoError | None:
        """The error of the outermost account that is stopped or closed, if there is one."""
        for account in self.accounts:
            if account.stopped:
                i = account._stopped_dimension
                limit = account._caps[i]
                return BudgetExceeded(
                    f"account {account.name} is stopped: {account.stopped}",
                    account=account.name,
                    dimension=DIMENSIONS[i],
                    value=_plain(i, account._used[i]),
                    limit=None if limit is None else _plain(i, limit),
                    advice="It grants nothing more in this run. Look at what the server reports as usage.",
                )
            if account.closed:
                return RomanescoError(f"account {account.name} is closed", advice="This is a fault of the program.")
        return None


def refusal(account: Account, i: int, asked: int, *, covered: bool = False, wrap_up: bool = False) -> BudgetExceeded:
    """The error of an account that has no room: which, what is in it, what would fit and what raises it."""
    limit = account._caps[i] or 0
    load = account._load(i, covered=covered, wrap_up=wrap_up)
    reserved = account._reserved[i] - (account._slack[i] if covered else 0)
    name = DIMENSIONS[i]
    parts = [f"{_text(i, account._used[i])} used", f"{_text(i, reserved)} reserved"]
    if account._held[i] and not wrap_up:
        parts.append(f"{_text(i, account._held[i])} held back for the wrap-up")
    option = _OPTIONS.get(name, f"the budget's {name}")
    return BudgetExceeded(
        f"account {account.name} has no room for {_text(i, asked)} more {_noun(i, asked)} ({', '.join(parts)})",
        account=account.name,
        dimension=name,
        value=_plain(i, load + asked),
        limit=_plain(i, limit),
        advice=f"At most {_text(i, max(0, limit - load))} would fit; {account.advice or f'raise {option}'}.",
    )


def _noun(i: int, number: int) -> str:
    """The name of what is counted, in the singular for one."""
    name = DIMENSIONS[i]
    if number != 1 or i == USD:
        return name
    return name.replace("tokens", "token") if "tokens" in name else name.removesuffix("s")


def _plain(i: int, number: int) -> int | str:
    # Decimal's own text of a small amount is 1E-7, which people don't read as dollars.
    return _text(i, number) if i == USD else number


def _text(i: int, number: int) -> str:
    return f"{figure(i, number):f}" if i == USD else str(number)


def _shown(numbers: Sequence[int | None]) -> dict[str, int | str | None]:
    pairs = enumerate(zip(DIMENSIONS, numbers, strict=True))
    return {name: None if n is None else _plain(i, n) for i, (name, n) in pairs}
