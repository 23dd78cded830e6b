"""Who waits in ``acquire``, for how long, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from romanesco.budget import Account, Amount, Ledger, Limits, Reservation
from romanesco.budget._account import Route
from romanesco.budget._queue import Marks
from romanesco.errors import BudgetExceeded, RomanescoError


def run_of(**limits: int) -> tuple[Ledger, Account]:
    ledger = Ledger()  # made outside of any loop on purpose in the sync tests below
    return ledger, ledger.open("run", limits=Limits(**limits))  # type: ignore[arg-type]  # no money here


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_waiter_gets_what_a_settled_step_leaves() -> None:
    ledger, run = run_of(tokens=100)
    first = await ledger.acquire([run], Amount(80))
    task = asyncio.create_task(ledger.acquire([run], Amount(50)))
    await turn()
    assert ledger.waiting == 1 and not task.done()
    ledger.settle(first, Amount(40))
    assert (await task).open
    assert (run.used("tokens"), run.reserved("tokens"), ledger.waiting) == (40, 50, 0)


async def test_a_released_step_wakes_a_waiter() -> None:
    ledger, run = run_of(calls=1)
    first = await ledger.acquire([run], Amount(calls=1))
    task = asyncio.create_task(ledger.acquire([run], Amount(calls=1)))
    await turn()
    ledger.release(first)
    assert (await task).open


async def test_a_raised_limit_wakes_a_waiter() -> None:
    ledger, run = run_of(calls=1)
    await ledger.acquire([run], Amount(calls=1))
    task = asyncio.create_task(ledger.acquire([run], Amount(calls=1)))
    await turn()
    ledger.set_limit(run, "calls", 2)
    assert (await task).open


async def test_a_lowered_limit_refuses_a_waiter_that_has_no_chance_any_more() -> None:
    ledger, run = run_of(tokens=100)
    await ledger.acquire([run], Amount(60))
    task = asyncio.create_task(ledger.acquire([run], Amount(50)))
    await turn()
    ledger.set_limit(run, "tokens", 49)
    with pytest.raises(BudgetExceeded):
        await task


async def test_no_chance_means_no_waiting() -> None:
    ledger, run = run_of(tokens=100)
    ledger.settle(await ledger.acquire([run], Amount(60)), Amount(60))
    await ledger.acquire([run], Amount(10))
    with pytest.raises(BudgetExceeded) as caught:
        await ledger.acquire([run], Amount(41))
    assert (caught.value.value, caught.value.limit) == (111, 100)
    assert ledger.waiting == 0


async def test_what_is_held_back_is_no_chance_for_an_ordinary_caller() -> None:
    ledger, run = run_of(tokens=100)
    ledger.hold(run, Amount(30))
    ledger.settle(await ledger.acquire([run], Amount(60), wrap_up=True), Amount(10))
    assert run.held("tokens") == 20
    flying = await ledger.acquire([run], Amount(40))
    with pytest.raises(BudgetExceeded):
        await ledger.acquire([run], Amount(71))  # 10 used + 20 held + 71 > 100, whatever comes back
    last = await ledger.acquire([run], Amount(30), wrap_up=True)
    with pytest.raises(BudgetExceeded):
        await ledger.acquire([run], Amount(71))  # what the wrap-up took out of the held share would go back to it
    task = asyncio.create_task(ledger.acquire([run], Amount(70)))
    await turn()
    ledger.release(flying)
    ledger.release(last)
    assert (await task).open


async def test_a_waiter_is_refused_when_the_last_chance_is_gone() -> None:
    ledger, run = run_of(tokens=100)
    first = await ledger.acquire([run], Amount(60))
    task = asyncio.create_task(ledger.acquire([run], Amount(50)))
    await turn()
    ledger.settle(first, Amount(60))
    with pytest.raises(BudgetExceeded) as caught:
        await task
    assert caught.value.account == "run"


async def test_what_is_set_aside_for_a_carved_account_is_not_waited_for() -> None:
    ledger, run = run_of(tokens=100)
    child = ledger.carve(run, "node:/a", Limits(tokens=60))
    held = await ledger.acquire([child], Amount(60))
    with pytest.raises(BudgetExceeded):
        await ledger.acquire([run], Amount(41))
    ledger.close(child)
    # Closed: now what is in flight there does come back.
    task = asyncio.create_task(ledger.acquire([run], Amount(41)))
    await turn()
    assert ledger.waiting == 1
    ledger.settle(held, Amount(10))
    assert (await task).open


async def test_closing_wakes_a_waiter() -> None:
    ledger, run = run_of(tokens=100)
    child = ledger.carve(run, "node:/a", Limits(tokens=60))
    await ledger.acquire([run], Amount(30))
    task = asyncio.create_task(ledger.acquire([run], Amount(40)))
    await turn()
    assert ledger.waiting == 1
    ledger.close(child)
    assert (await task).open


async def test_a_large_ask_is_not_starved_by_small_ones() -> None:
    ledger, run = run_of(tokens=100)
    order: list[str] = []

    async def ask(name: str, tokens: int, account: Account) -> Reservation:
        held = await ledger.acquire([account], Amount(tokens))
        order.append(name)
        return held

    other = ledger.open("member:2", parent=run)
    flying = [await ledger.acquire([run], Amount(30)) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        large = group.create_task(ask("large", 60, run))
        await turn()
        small = group.create_task(ask("small", 10, other))
        await turn()
        assert order == [], "10 tokens are free, but the older caller comes first"
        ledger.release(flying[0])
        await turn()
        assert order == []
        ledger.release(flying[1])
        await turn()
    assert order == ["large", "small"]
    assert large.result().open and small.result().open


async def test_a_waiter_does_not_block_the_users_of_other_accounts() -> None:
    ledger, run = run_of()
    narrow = ledger.open("line:narrow", parent=run, limits=Limits(calls=1))
    wide = ledger.open("line:wide", parent=run)
    first = await ledger.acquire([narrow], Amount(calls=1))
    task = asyncio.create_task(ledger.acquire([narrow], Amount(calls=1)))
    await turn()
    assert (await ledger.acquire([wide], Amount(calls=1))).open
    assert (await ledger.acquire([run], Amount(50))).open
    ledger.release(first)
    await task


async def test_the_same_route_is_first_come_first_served() -> None:
    ledger, run = run_of(tokens=10)
    first = await ledger.acquire([run], Amount(10))
    order: list[int] = []

    async def ask(number: int) -> None:
        held = await ledger.acquire([run], Amount(10))
        order.append(number)
        ledger.settle(held, Amount())

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ask(number))
        await turn()
        ledger.release(first)
    assert order == [0, 1, 2, 3, 4]


async def test_a_step_that_comes_back_is_a_reason_to_look_at_few_of_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, block = 0, Marks.block

    def counted(marks: Marks, route: Route, amount: Amount) -> object:
        nonlocal looks
        looks += 1
        return block(marks, route, amount)

    monkeypatch.setattr(Marks, "block", counted)
    ledger, run = run_of(tokens=40)
    members = 300

    async def one(number: int) -> None:
        member = ledger.open(f"role:{number}", parent=run)
        held = await ledger.acquire([member], Amount(10))
        await asyncio.sleep(0)
        ledger.settle(held, Amount())

    async with asyncio.TaskGroup() as group:
        for number in range(members):
            group.create_task(one(number))
    assert looks < 5 * members  # and not the square of them


async def test_a_cancelled_waiter_leaves_its_place_to_the_one_behind_it() -> None:
    ledger, run = run_of(tokens=10)
    first = await ledger.acquire([run], Amount(10))
    tasks = [asyncio.create_task(ledger.acquire([run], Amount(10))) for _ in range(2)]
    await turn()
    tasks[0].cancel()
    await turn()
    assert (ledger.waiting, tasks[1].done()) == (1, False)
    ledger.release(first)
    assert (await tasks[1]).open


async def test_a_wrap_up_does_not_queue_behind_ordinary_callers() -> None:
    ledger, run = run_of(tokens=100)
    ledger.hold(run, Amount(20))
    first = await ledger.acquire([run], Amount(80))
    ordinary = asyncio.create_task(ledger.acquire([run], Amount(10)))
    await turn()
    assert (await ledger.acquire([run], Amount(20), wrap_up=True)).open
    second = asyncio.create_task(ledger.acquire([run], Amount(5), wrap_up=True))
    await turn()
    later = asyncio.create_task(ledger.acquire([run], Amount(1)))
    await turn()
    assert ledger.waiting == 3
    ledger.settle(first, Amount(60))
    for task in (ordinary, second, later):
        assert (await task).open


async def test_a_shortage_of_the_limit_itself_blocks_covered_and_direct_callers() -> None:
    ledger, run = run_of(tokens=100)
    child = ledger.carve(run, "node:/a", Limits(tokens=60))
    member = ledger.open("member:1", parent=child)
    first = await ledger.acquire([child], Amount(30))
    ledger.set_limit(run, "tokens", 40)
    older = asyncio.create_task(ledger.acquire([child], Amount(20)))
    await turn()
    younger = asyncio.create_task(ledger.acquire([member], Amount(5)))
    await turn()
    assert ledger.waiting == 2
    ledger.settle(first, Amount(10))
    assert (await older).open and (await younger).open
    assert run.used("tokens") == 10


async def test_a_direct_shortage_does_not_block_what_is_covered() -> None:
    ledger, run = run_of(tokens=100)
    child = ledger.carve(run, "node:/a", Limits(tokens=60))
    first = await ledger.acquire([run], Amount(40))
    older = asyncio.create_task(ledger.acquire([run], Amount(40)))
    await turn()
    assert (await ledger.acquire([child], Amount(60))).open
    ledger.release(first)
    await older


async def test_a_cancelled_waiter_leaves_nothing_and_lets_the_next_one_through() -> None:
    ledger, run = run_of(tokens=100)
    member = ledger.open("member:1", parent=run)
    first = await ledger.acquire([run], Amount(80))
    large = asyncio.create_task(ledger.acquire([run], Amount(90)))
    await turn()
    small = asyncio.create_task(ledger.acquire([member], Amount(10)))
    await turn()
    assert ledger.waiting == 2
    large.cancel()
    assert (await small).open
    with pytest.raises(asyncio.CancelledError):
        await large
    assert (ledger.waiting, run.reserved("tokens")) == (0, 90)
    ledger.release(first)


async def test_a_caller_cancelled_in_the_instant_of_its_grant_gives_it_back() -> None:
    ledger, run = run_of(tokens=100)
    first = await ledger.acquire([run], Amount(100))
    task = asyncio.create_task(ledger.acquire([run], Amount(100)))
    await turn()
    ledger.release(first)  # granted: the future is set, the task has not run yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.reserved("tokens") == 0


async def test_a_grant_that_comes_after_the_cancellation_is_given_back() -> None:
    ledger, run = run_of(tokens=100)
    first = await ledger.acquire([run], Amount(100))
    task = asyncio.create_task(ledger.acquire([run], Amount(100)))
    await turn()
    task.cancel()  # the future is cancelled, the task has not run yet
    ledger.release(first)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (run.reserved("tokens"), ledger.waiting) == (0, 0)


async def test_a_caller_cancelled_in_the_instant_of_its_refusal_is_cancelled() -> None:
    ledger, run = run_of(tokens=100)
    first = await ledger.acquire([run], Amount(100))
    task = asyncio.create_task(ledger.acquire([run], Amount(100)))
    await turn()
    ledger.settle(first, Amount(100))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.reserved("tokens") == 0


async def test_a_coroutine_that_is_thrown_away_waits_no_longer() -> None:
    ledger, run = run_of(tokens=100)
    await ledger.acquire([run], Amount(100))
    coroutine = ledger.acquire([run], Amount(1))
    coroutine.send(None)
    assert ledger.waiting == 1
    coroutine.close()
    assert ledger.waiting == 0


async def test_a_stop_refuses_those_who_wait_and_those_who_come() -> None:
    ledger, run = run_of(tokens=100)
    first = await ledger.acquire([run], Amount(100))
    task = asyncio.create_task(ledger.acquire([run], Amount(50)))
    await turn()
    ledger.settle(first, Amount(0, 101))
    with pytest.raises(BudgetExceeded, match="stopped: the server reported 1 tokens more"):
        await task
    with pytest.raises(BudgetExceeded, match="stopped"):
        await ledger.acquire([run], Amount())


async def test_closing_refuses_those_who_wait_there() -> None:
    ledger, run = run_of()
    leaf = ledger.open("leaf", parent=run, limits=Limits(calls=1))
    await ledger.acquire([leaf], Amount(calls=1))
    task = asyncio.create_task(ledger.acquire([leaf], Amount(calls=1)))
    await turn()
    ledger.close(leaf)
    with pytest.raises(RomanescoError, match="account run/leaf is closed"):
        await task


def test_a_ledger_is_bound_to_no_loop() -> None:
    ledger, run = run_of(calls=1)

    async def contend() -> None:
        async def one() -> None:
            ledger.release(await ledger.acquire([run], Amount(calls=1)))

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(one())

    asyncio.run(contend())
    asyncio.run(contend())
    assert run.used("calls") == 0
