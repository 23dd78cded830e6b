"""Every fault of a model server: the run's totals are the server's ledger, requests exactly, tokens never below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, Outcome, Status
from romanesco.testing import FakeReply, FakeServer, Fault, Members, Rule, Scenario
from tests.support import config_in, events_of

FIRST = (0,)
SHORT: dict[str, Any] = {"deadlines__first_token": 5.0, "deadlines__between_tokens": 5.0}
"""For servers that stall: far longer than an answer takes, so that only the stalled ones run into it."""

# A fault of the first attempt of two members of eight, and whether tokens must agree exactly.
FAULTS: dict[str, tuple[Fault, bool]] = {
    "429": (Fault(status=429), True),
    "429 with Retry-After": (Fault(status=429, retry_after=0.05), True),
    "500": (Fault(status=500), False),
    "503 with text": (Fault(status=503, message="overloaded"), False),
    "stall before the first token": (Fault(stall=float("inf")), False),
    "stall between tokens": (Fault(stall=float("inf"), stall_after=2), False),
    "cut before the headers": (Fault(cut="before_headers"), False),
    "cut after the headers": (Fault(cut="after_headers"), False),
    "cut in the middle": (Fault(cut="middle"), False),
    "garbage": (Fault(garbage="<html>gateway</html>"), False),
    "a stream without its end": (Fault(no_end=True), False),
    "missing usage": (Fault(usage="missing"), False),
    "zero usage": (Fault(usage="zero"), False),
    "nothing wrong": (Fault(), True),
}


async def members_against(
    server: FakeServer, folder: Path, *, members: int = 8, budget: Budget | None = None, **config: Any
) -> Outcome:
    return await romanesco.run(
        "say something",
        model=f"{server.url}#fake",
        topology=Members(),
        params={"members": members},
        budget=budget,
        config=config_in(folder, **config),
        run="r",
    )


@pytest.mark.parametrize("name", FAULTS)
async def test_totals_agree_with_the_servers_ledger(name: str, tmp_path: Path) -> None:
    fault, exact = FAULTS[name]
    faulty = tuple(Rule(match=f"[round/1/{n}]", attempts=FIRST, reply=FakeReply(fault=fault)) for n in (2, 5))
    async with FakeServer(scenario=Scenario(rules=faulty)) as server:
        outcome = await members_against(server, tmp_path, **(SHORT if fault.stall else {}))
        ledger = server.ledger
    assert outcome.status is Status.COMPLETED
    assert outcome.spend.calls == len(ledger.requests)
    assert len(ledger.requests) == (8 if fault.name() in ("", "usage_missing", "usage_zero") else 10)
    assert outcome.spend.tokens_in >= ledger.tokens_in
    assert outcome.spend.tokens_out >= ledger.tokens_out
    if exact:
        assert (outcome.spend.tokens_in, outcome.spend.tokens_out) == (ledger.tokens_in, ledger.tokens_out)
    assert outcome.spend.estimated is not exact
    answered = [entry.prompt for entry in ledger.finished() if not entry.fault]
    assert len(answered) == len(set(answered))  # nothing that was answered well was asked again


@pytest.mark.parametrize("name", ["500", "cut in the middle", "429"])
async def test_br_092_failures_of_some_keep_the_results_of_the_others(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name][0]
    broken = tuple(Rule(match=f"[round/1/{n}]", reply=FakeReply(fault=fault)) for n in (2, 5))
    async with FakeServer(scenario=Scenario(rules=broken)) as server:
        outcome = await members_against(server, tmp_path, members=6)
        requests = len(server.ledger.requests)
    assert outcome.status is Status.PARTIAL
    assert outcome.answer.count("round/1/") == 6
    assert outcome.answer.count("(") == 2
    assert outcome.spend.calls == requests


async def test_br_023_a_cap_of_5_calls_under_8_members_is_5_requests(tmp_path: Path) -> None:
    async with FakeServer(scenario=Scenario(barrier=5)) as server:
        outcome = await members_against(server, tmp_path, budget=Budget(calls=5))
        assert len(server.ledger.requests) == 5
    assert outcome.status is Status.PARTIAL
    assert outcome.reason is romanesco.StopReason.BUDGET
    assert "run" in outcome.note and "calls" in outcome.note and "limit 5" in outcome.note


async def test_a_server_that_reports_more_than_was_reserved_stops_the_account(tmp_path: Path) -> None:
    over = Rule(match="[round/1/0]", reply=FakeReply(fault=Fault(usage="over")))
    async with FakeServer(scenario=Scenario(rules=(over,))) as server:
        outcome = await romanesco.run(
            "say something",
            model=f"{server.url}#fake",
            topology=Members(),
            params={"members": 2, "rounds": 3},
            budget=Budget(tokens=10_000),
            config=config_in(tmp_path),
            run="r",
        )
    overruns = [data for _, kind, _, _, data in await events_of(config_in(tmp_path), "r") if kind == "budget.overrun"]
    assert overruns and all(record["reported_by_server"] for data in overruns for record in data["accounts"])
    assert outcome.status is Status.PARTIAL
    assert outcome.spend.tokens_in + outcome.spend.tokens_out > 0
    assert "overran" in outcome.note or "more than was reserved" in outcome.note


async def test_br_091_a_rate_limited_crowd_finishes_with_few_refusals(tmp_path: Path) -> None:
    async with FakeServer(scenario=Scenario(rate_limit=40, burst=3)) as server:
        outcome = await members_against(server, tmp_path, members=20)
        refused = sum(entry.status == 429 for entry in server.ledger.requests)
        assert outcome.spend.calls == len(server.ledger.requests)
    assert outcome.status is Status.COMPLETED
    assert refused <= 40


async def test_br_142_the_same_prompt_of_four_members_makes_four_calls(tmp_path: Path) -> None:
    async with FakeServer() as server:
        await members_against(server, tmp_path, members=4)
        assert len(server.ledger.requests) == 4


async def test_br_073_members_run_at_the_same_time(tmp_path: Path) -> None:
    async with FakeServer(scenario=Scenario(barrier=8)) as server:
        outcome = await members_against(server, tmp_path)
        assert server.ledger.max_in_flight == 8
    assert outcome.status is Status.COMPLETED


async def test_br_074_one_member_that_hangs_costs_its_own_answer_only(tmp_path: Path) -> None:
    stuck = Rule(match="[round/1/3]", reply=FakeReply(fault=Fault(stall=float("inf"))))
    async with FakeServer(scenario=Scenario(rules=(stuck,))) as server:
        outcome = await members_against(server, tmp_path, retry__attempts=1, **SHORT)
    assert outcome.status is Status.PARTIAL
    assert sum("(" not in line for line in outcome.answer.splitlines()) == 7


async def test_nobody_at_the_address_is_an_outcome_that_cost_nothing(tmp_path: Path) -> None:
    outcome = await romanesco.run(
        "say something",
        model="http://127.0.0.1:9/v1#nobody",
        topology=Members(),
        config=config_in(tmp_path, retry__attempts=1),
    )
    assert outcome.status is Status.PARTIAL and outcome.reason is romanesco.StopReason.MODEL
    assert outcome.spend.calls == 0 and outcome.spend.tokens_in == 0
