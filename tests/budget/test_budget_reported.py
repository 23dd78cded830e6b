"""Failures that users of other systems report, as far as the ledger is what prevents them."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from romanesco.budget import Account, Amount, Ledger, Limits
from romanesco.errors import EXIT_CODES, BudgetExceeded, StopReason

ONE = Amount(10, 10, 1)


class Server:
    """Counts requests, and keeps each until it is told to answer."""

    def __init__(self) -> None:
        self.requests = 0
        self.answer = asyncio.Event()

    async def __call__(self) -> None:
        self.requests += 1
        await self.answer.wait()


@pytest.mark.parametrize("nodes", [1, 8])
async def test_br_023_a_cap_of_5_under_8_parallel_members_gives_5_requests(nodes: int) -> None:
    ledger, server = Ledger(), Server()
    run = ledger.open("run", limits=Limits(calls=5))
    homes = [ledger.open(f"node:/{i}", parent=run) for i in range(nodes)]
    refused: list[BudgetExceeded] = []

    async def member(i: int) -> None:
        try:
            held = await ledger.acquire([homes[i % nodes]], ONE)
        except BudgetExceeded as error:
            refused.append(error)
            return
        await server()
        ledger.settle(held, ONE)

    async with asyncio.TaskGroup() as group:
        for i in range(8):
            group.create_task(member(i))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (server.requests, ledger.waiting) == (5, 3)
        server.answer.set()
    assert server.requests == 5
    assert len(refused) == 3
    assert {(error.account, error.dimension, error.value, error.limit) for error in refused} == {("run", "calls", 6, 5)}
    assert run.used("calls") == 5


async def test_br_025_100_parallel_calls_count_100() -> None:
    ledger = Ledger()
    run = ledger.open("run")

    async def call(account: Account) -> None:
        held = await ledger.acquire([account], ONE)
        await asyncio.sleep(0)
        ledger.settle(held, ONE)

    async with asyncio.TaskGroup() as group:
        for i in range(100):
            group.create_task(call(ledger.open(f"member:{i}", parent=run)))
    assert (run.used("calls"), run.used("tokens")) == (100, 2000)


def test_br_028_the_total_is_the_sum_of_the_leaves() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=1000))
    leaves = [
        ledger.open("a", parent=run),
        ledger.carve(run, "b", Limits(tokens=300)),
        ledger.open("d", parent=ledger.carve(run, "c", Limits(tokens=300))),
    ]
    for number, leaf in enumerate(leaves, start=1):
        ledger.settle(ledger.reserve([leaf], Amount(50, 50)), Amount(10 * number, number))
    assert [leaf.used("tokens") for leaf in leaves] == [11, 22, 33]
    assert run.used("tokens") == 66


def test_br_032_a_money_cap_is_hard_and_has_an_exit_code() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(usd=Decimal("0.10")))
    cent = Amount(usd=Decimal("0.01"))
    for _ in range(10):
        ledger.settle(ledger.reserve([run], cent), cent)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([run], Amount(usd=Decimal("0.000000000000001")))
    assert run.used("usd") == Decimal("0.1")
    assert caught.value.exit_code == EXIT_CODES[StopReason.BUDGET] == 3


async def test_br_035_a_call_that_was_cancelled_or_failed_counts_with_its_upper_bound() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(tokens=100))

    async def call() -> None:
        held = await ledger.acquire([run], Amount(30, 20, 1))
        try:
            await asyncio.sleep(60)
        finally:
            ledger.settle(held, held.amount, reported=False)

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (run.used("tokens"), run.used("calls"), run.reserved("tokens")) == (50, 1, 0)
    assert not run.stopped


def test_br_004_a_root_that_always_spawns_gets_exactly_its_nodes() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(nodes=10))
    parent, spawned = run, 0
    with pytest.raises(BudgetExceeded) as caught:
        while True:
            ledger.settle(ledger.reserve([parent], Amount(nodes=1)), Amount(nodes=1))
            spawned += 1
            parent = ledger.open(f"node:/{spawned}", parent=parent if spawned % 3 else run)
    assert spawned == 10
    assert (caught.value.account, caught.value.dimension) == ("run", "nodes")


def test_br_008_br_010_a_childs_own_lower_limit_binds_it_and_not_its_sibling() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=300))
    child = ledger.open("node:/child", parent=run, limits=Limits(calls=2))
    sibling = ledger.open("node:/sibling", parent=run)
    for _ in range(2):
        ledger.settle(ledger.reserve([child], ONE), ONE)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve([child], ONE)
    assert caught.value.account == "run/node:/child"
    assert ledger.reserve([sibling], ONE).open


def test_br_011_a_limit_that_was_reached_is_raised_and_work_goes_on() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=1))
    ledger.settle(ledger.reserve([run], ONE), ONE)
    with pytest.raises(BudgetExceeded):
        ledger.reserve([run], ONE)
    ledger.set_limit(run, "calls", 2)
    ledger.settle(ledger.reserve([run], ONE), ONE)
    assert run.used("calls") == 2


def test_br_026_limits_per_role_and_per_node_hold_at_once() -> None:
    ledger = Ledger()
    run = ledger.open("run", limits=Limits(calls=100))
    node = ledger.open("node:/a", parent=run, limits=Limits(calls=4))
    critics = ledger.open("role:critic", parent=run, limits=Limits(calls=2))
    for _ in range(2):
        ledger.settle(ledger.reserve([node, critics], ONE), ONE)
    with pytest.raises(BudgetExceeded, match="account run/role:critic"):
        ledger.reserve([node, critics], ONE)
    for _ in range(2):
        ledger.settle(ledger.reserve([node], ONE), ONE)
    with pytest.raises(BudgetExceeded, match="account run/node:/a"):
        ledger.reserve([node], ONE)
    assert (run.used("calls"), critics.used("calls")) == (4, 2)
