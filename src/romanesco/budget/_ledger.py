"""The ledger: a tree of accounts that reserves the worst case of every step before it starts.

Nothing here waits, reads a clock or does I/O, except that ``acquire`` waits for other reservations to come
back. A ledger belongs to one event loop and is not safe for threads: each operation runs to its end without
an ``await``, and that is what makes it all-or-nothing.

A caller that holds a reservation must not ``acquire`` another one in the same accounts before it has settled
the
first: two such callers could wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from romanesco.budget._account import Account, Route, refusal
from romanesco.budget._amount import DIMENSIONS, Amount, Limits, Vector, cap, figure, index_of, limits_of
from romanesco.budget._queue import Waiter, WaitQueue
from romanesco.budget._reservation import Overrun, Reservation
from romanesco.errors import BudgetExceeded, InputError, RomanescoError, UnknownName

_NOTHING = Amount()


class Ledger:
    """A tree of accounts. See the module's text for who may call it, and ``Account`` for what is counted."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._routes: dict[tuple[Account, ...], Route] = {}
        self._queue = WaitQueue()

    # Accounts

    def open(
        self,
        name: str,
        *,
        parent: Account | None = None,
        limits: Limits | None = None,
        across_runs: bool = False,
        advice: str = "",
    ) -> Account:
        """Open an account with limits of its own inside the parent's. Nothing is set aside for it.

        Args:
            name: Name below the parent, for example ``line:critique``; the full name is
                ``run/line:critique``.
            parent: Everything charged here is charged there too.
            limits: Default: none.
            across_runs: Runs share it (project, day), so an overrun in one of them doesn't stop it.
            advice: What a refusal by this account tells the reader to do.

        Raises:
            RomanescoError: The name is taken, or the parent is closed.
        """
        return self._add(name, parent=parent, limits=limits or Limits(), across_runs=across_runs, advice=advice)

    def carve(
        self, parent: Account, name: str, limits: Limits, *, used: Amount = _NOTHING, advice: str = ""
    ) -> Account:
        """Open an account whose limits are set aside now, out of what remains in the parent.

        Dimensions that ``limits`` leaves open flow through to the parent as with ``open``. This takes what is
        there at once and doesn't queue behind waiters.

        Args:
            parent: Whose remainder is cut.
            name: Name below the parent.
            limits: What the child may use, at most.
            used: What the child had already spent before a resume. It is not charged to the parent again.
            advice: What a refusal by this account tells the reader to do.

        Raises:
            BudgetExceeded: The remainder is too small.
            RomanescoError: The name is taken, or the parent is closed.
        """
        caps = limits.caps
        ask = [0 if limit is None else max(0, limit - spent) for limit, spent in zip(caps, used.vector, strict=True)]
        self._check_claim(parent, ask)
        carved = tuple(i for i, limit in enumerate(caps) if limit is not None)
        account = self._add(name, parent=parent, limits=limits, carved=carved, advice=advice)
        account._used = list(used.vector)
        self._reclaim([(account, [(0, 0)] * len(carved))])
        return account

    def close(self, account: Account) -> Limits:
        """Close an account. What was set aside for it and is not in flight goes back to the parent.

        Steps in flight may still be settled; what they leave goes back then. Closing twice does nothing.

        Returns:
            What it left unspent, where it had limits.
        """
        left = [
            None if limit is None else max(0, limit - account._used[i] - account._reserved[i])
            for i, limit in enumerate(account._caps)
        ]
        before = self._claims_of(account)
        account.closed = True
        self._reclaim(before)
        self._sweep()
        return limits_of(left)

    def account(self, name: str) -> Account:
        """The account of that full name.

        Raises:
            UnknownName: There is none.
        """
        try:
            return self._accounts[name]
        except KeyError:
            known = ", ".join(self._accounts) or "none"
            raise UnknownName("no account of that name", value=name, advice=f"There are: {known}.") from None

    def snapshot(self) -> dict[str, dict[str, object]]:
        """Every account by full name as JSON-able data: used, reserved, held, limits, stopped, closed."""
        return {name: account.snapshot() for name, account in self._accounts.items()}

    def set_limit(self, account: Account, dimension: str, value: Decimal | int | str | float | None) -> None:
        """Raise or lower a limit while work is going on.

        A limit below what is used or reserved grants nothing more; what is in flight is let finish. For a
        carved account the difference is taken from, or given back to, what remains in the parent.

        Args:
            account: Whose limit.
            dimension: One of ``DIMENSIONS``.
            value: The new limit; None for no limit.

        Raises:
            BudgetExceeded: The parent has no room for the raise.
            InputError: The value or the dimension is wrong, or a carved limit would be removed.
            RomanescoError: The account is closed.
        """
        i = index_of(dimension)
        limit = cap(i, value)
        if account.closed:
            raise RomanescoError(f"account {account.name} is closed", advice="Its limits can't be changed any more.")
        if i in account.carved and account.parent is not None:
            if limit is None:
                raise InputError(
                    f"the limit of {dimension} of {account.name} is set aside in {account.parent.name}",
                    value="no limit",
                    advice="Give a number.",
                )
            spent, before = account._used[i], account._caps[i] or 0
            ask = [0] * len(DIMENSIONS)
            ask[i] = max(0, max(limit - spent, account._reserved[i]) - max(before - spent, account._reserved[i]))
            self._check_claim(account.parent, ask)
        claims, old = self._claims_of(account), account._caps[i]
        if limit is not None and (old is None or limit < old):
            account._lowered |= {i}
        account._caps = (*account._caps[:i], limit, *account._caps[i + 1 :])
        account._bind()
        self._reclaim(claims)
        self._sweep()

    def hold(self, account: Account, amount: Amount) -> None:
        """Hold a share of what remains in this account back, for wrap-up reservations only.

        Only this account holds it. An account above that is used by others too should carve this one, so that
        the share can't be spent there.

        Raises:
            BudgetExceeded: The remainder is too small.
        """
        ask = amount.vector
        for i, limit in account._bounds:
            if ask[i] and account._load(i, covered=False, wrap_up=False) + ask[i] > limit:
                raise refusal(account, i, ask[i])
        for i, number in enumerate(ask):
            account._add("_held", i, number)
        self._sweep()

    def restore(self, account: Account, used: Amount) -> None:
        """Set what an account had spent before a resume.

        Accounts above and below it are not touched: each is restored by its own call.

        Args:
            account: An account that nothing was charged to yet.
            used: Its total in the journal.

        Raises:
            RomanescoError: Something was charged to it already.
        """
        if any(account._used) or any(r - s for r, s in zip(account._reserved, account._slack, strict=True)):
            raise RomanescoError(f"account {account.name} is in use", advice="Restore it before the first reservation.")
        claims = self._claims_of(account)
        account._used = list(used.vector)
        self._reclaim(claims)
        self._sweep()

    def stop(self, account: Account, reason: str, *, dimension: str = "tokens") -> None:
        """Grant nothing more in this account and below it, as after an overrun. The first reason stays.

        Args:
            account: Which.
            reason: Ends the sentence "account X is stopped: ...".
            dimension: What the errors name.
        """
        account._stop(reason, index_of(dimension))
        self._sweep()

    # Reservations

    def reserve(self, accounts: Sequence[Account], amount: Amount, *, wrap_up: bool = False) -> Reservation:
        """Reserve now or refuse. This doesn't wait, and doesn't queue behind those who do.

        Args:
            accounts: The accounts to charge. Every distinct account on the way up from them is charged once.
            amount: The worst case.
            wrap_up: May use what is held back.

        Raises:
            BudgetExceeded: An account is stopped or has no room. Of several, the outermost is named, because
                raising one further down alone would not help.
            RomanescoError: An account is closed.
        """
        route = self._route(accounts)
        fault = route.barrier()
        if fault is not None:
            raise fault
        short = route.shortage(amount.vector, wrap_up=wrap_up)
        if short is not None:
            account, i, covered = short
            raise refusal(account, i, amount.vector[i], covered=covered, wrap_up=wrap_up)
        return self._grant(route, amount, wrap_up)

    def passed(self, reservation: Reservation) -> BudgetExceeded | None:
        """Why an open reservation should not be used any more, if it is so.

        An account on its way was stopped since, as after an overrun; or what counts against a limit is more than it,
        because the limit was lowered or, in an account across runs, because a step cost more than was reserved.

        Returns:
            The refusal of the outermost such account, or None.
        """
        fault = reservation._route.barrier()
        if isinstance(fault, BudgetExceeded):
            return fault
        for account in reservation.accounts:
            for i, limit in account._bounds:
                if reservation.amount.vector[i] and account._load(i, covered=True, wrap_up=True) > limit:
                    what = "was lowered" if i in account._lowered else "was passed"
                    return BudgetExceeded(
                        f"the limit of {DIMENSIONS[i]} of account {account.name} {what} while this waited",
                        account=account.name,
                        dimension=DIMENSIONS[i],
                        value=str(figure(i, account._load(i, covered=True, wrap_up=True))),
                        limit=str(figure(i, limit)),
                        advice="Raise it and resume the run.",
                    )
        return None

    async def acquire(self, accounts: Sequence[Account], amount: Amount, *, wrap_up: bool = False) -> Reservation:
        """Reserve, waiting while steps in flight could still leave enough for it.

        Waiters are served in the order that the text of ``_queue`` describes. A cancelled caller holds
        nothing.

        Raises:
            BudgetExceeded: An account is stopped, or could not grant this even if all that is in flight came
                back unspent.
            RomanescoError: An account is closed.
        """
        route = self._route(accounts)
        if not self._queue and route.shortage(amount.vector, wrap_up=wrap_up) is None and route.barrier() is None:
            return self._grant(route, amount, wrap_up)
        waiter = self._queue.add(route, amount, wrap_up=wrap_up)
        self._sweep()
        try:
            await waiter.future
        except BaseException:  # cancelled, or the coroutine was thrown away: either way nothing may stay taken
            if waiter.answer is None:
                self._queue.remove(waiter)
                self._sweep()
            elif isinstance(waiter.answer, Reservation):
                self.release(waiter.answer)
            raise
        if isinstance(waiter.answer, Reservation):
            return waiter.answer
        assert waiter.answer is not None  # the future is set after the answer
        raise waiter.answer

    def settle(self, reservation: Reservation, actual: Amount, *, reported: bool = True) -> tuple[Overrun, ...]:
        """Put what a step cost in the place of what was reserved for it, in every account on its way.

        If it cost more in some dimension, the overrun is kept, and every account on the way is stopped,
        except those across runs: when worst cases don't hold, no later bound of this run would either.

        Args:
            reservation: An open one.
            actual: What it cost. For a failed step that may have been paid for: its upper bound.
            reported: Whether the server reported it; False for our own estimate.

        Returns:
            One record a dimension that was overrun.

        Raises:
            RomanescoError: The reservation was settled or released before.
        """
        if not reservation.open:
            raise RomanescoError("a reservation was settled twice", advice="This is a fault of the program.")
        reservation.open = False
        route, worst, cost = reservation._route, reservation.amount.vector, actual.vector
        c0, c1, c2, c3, c4, c5 = cost
        w0, w1, w2, w3, w4, w5 = worst
        if route.plain:
            for account in route.accounts:
                used, reserved = account._used, account._reserved
                used[0] += c0
                used[1] += c1
                used[2] += c2
                used[3] += c3
                used[4] += c4
                used[5] += c5
                reserved[0] -= w0
                reserved[1] -= w1
                reserved[2] -= w2
                reserved[3] -= w3
                reserved[4] -= w4
                reserved[5] -= w5
        else:
            self._settle_covered(route, worst, cost)
        reservation.return_draws(cost)
        # Tokens together (0) can't be more than was reserved unless one of their two parts is.
        over = c1 > w1 or c2 > w2 or c3 > w3 or c4 > w4 or c5 > w5
        overruns = reservation.stop_overrun(cost, reported=reported) if over else ()
        if self._queue:
            self._sweep()
        return overruns

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back unspent: the step was never sent.

        Raises:
            RomanescoError: The reservation was settled or released before.
        """
        self.settle(reservation, _NOTHING)

    @property
    def waiting(self) -> int:
        """How many callers wait in ``acquire``."""
        return len(self._queue)

    # Inside

    def _add(
        self,
        name: str,
        *,
        parent: Account | None,
        limits: Limits,
        carved: tuple[int, ...] = (),
        across_runs: bool = False,
        advice: str = "",
    ) -> Account:
        full = name if parent is None else f"{parent.name}/{name}"
        if full in self._accounts:
            raise RomanescoError("an account of that name was opened before", value=full)
        if parent is not None and parent.closed:
            raise RomanescoError(f"account {parent.name} is closed", value=full)
        account = Account(full, parent=parent, limits=limits, carved=carved, across_runs=across_runs, advice=advice)
        self._accounts[full] = account
        return account

    def _route(self, accounts: Sequence[Account]) -> Route:
        key = tuple(accounts)
        route = self._routes.get(key)
        if route is None:
            strangers = [account.name for account in key if self._accounts.get(account.name) is not account]
            if strangers or not key:
                raise RomanescoError(
                    "a reservation needs accounts of this ledger", value=", ".join(strangers) or "none"
                )
            route = self._routes[key] = Route(key)
        return route

    def _grant(self, route: Route, amount: Amount, wrap_up: bool) -> Reservation:
        reservation = Reservation(route, amount, wrap_up)
        ask = amount.vector
        if wrap_up:
            reservation.draw()
        if route.plain:
            a0, a1, a2, a3, a4, a5 = ask
            for account in route.accounts:
                reserved = account._reserved
                reserved[0] += a0
                reserved[1] += a1
                reserved[2] += a2
                reserved[3] += a3
                reserved[4] += a4
                reserved[5] += a5
            return reservation
        for account, direct, covered in route.parts:
            for i in direct:
                account._reserved[i] += ask[i]
            for i in covered:
                account._add("_slack", i, -ask[i])
        return reservation

    def _settle_covered(self, route: Route, worst: Vector, cost: Vector) -> None:
        claims = [(account, account._claims()) for account in route.carved]
        for account, direct, covered in route.parts:
            account._used = [used + number for used, number in zip(account._used, cost, strict=True)]
            for i in direct:
                account._reserved[i] -= worst[i]
            for i in covered:
                account._add("_slack", i, worst[i])
        self._reclaim(claims)

    def _claims_of(self, account: Account) -> list[tuple[Account, list[tuple[int, int]]]]:
        """Claims of this account and of the carved ones above it, innermost first, as they are now."""
        return [(carved, carved._claims()) for carved in self._route((account,)).carved]

    def _reclaim(self, before: Sequence[tuple[Account, list[tuple[int, int]]]]) -> None:
        """Bring what is set aside above carved accounts up to date, innermost first."""
        for account, old in before:
            assert account.parent is not None  # carve() gives every carved account a parent
            changes: Mapping[int, tuple[int, int]] = {
                i: (now[0] - then[0], now[1] - then[1])
                for i, now, then in zip(account.carved, account._claims(), old, strict=True)
                if now != then
            }
            if not changes:
                continue
            for above, direct, _ in self._route((account.parent,)).parts:
                for i, (now, rest) in changes.items():
                    if i in direct:
                        above._reserved[i] += now
                        above._add("_slack", i, now)
                        above._add("_rest", i, rest)

    def _check_claim(self, parent: Account, ask: Sequence[int]) -> None:
        route = self._route((parent,))
        if not any(ask):
            return
        fault = route.barrier()
        if fault is not None:
            raise fault
        short = route.unclaimable(ask)
        if short is not None:
            account, i = short
            raise refusal(account, i, ask[i])

    def _sweep(self) -> None:
        if self._queue:
            self._queue.sweep(self._decide)

    def _decide(self, waiter: Waiter) -> bool:
        route, ask = waiter.route, waiter.amount.vector
        answer: Reservation | RomanescoError | None = route.barrier()
        if answer is None:
            if route.shortage(ask, wrap_up=waiter.wrap_up) is None:
                answer = self._grant(route, waiter.amount, waiter.wrap_up)
            else:
                gone = route.hopeless(ask, wrap_up=waiter.wrap_up)
                if gone is None:
                    return False
                account, i, covered = gone
                answer = refusal(account, i, ask[i], covered=covered, wrap_up=waiter.wrap_up)
        waiter.answer = answer
        if not waiter.future.done():
            waiter.future.set_result(None)
        return True
