"""The work that is measured: many members or a chain under a bill with prices, and what it must come to."""

from __future__ import annotations

import asyncio
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import romanesco
from benchmarks._probe import Probe
from romanesco.journal import SQLiteStore, verify
from romanesco.models import ChatModel, Message, ModelRequest
from romanesco.runtime import PlanningDesk
from romanesco.task import Bill, BillLine, Outcome, Plan, Task
from romanesco.testing import Members

GOAL = "Say one short sentence."
REPLY = "Ask ten customers what they would pay, then build only that one."
"""64 characters: 16 tokens, here and at the fake server."""

OUTPUT = 16
PRICE = {"input": 0.15, "output": 0.60}
"""Dollars per million tokens: any price will do, an unknown one would leave the money unaccounted."""


def request_for(model: str, key: str) -> ModelRequest:
    """The same request as a member sends."""
    return ModelRequest(model=model, messages=(Message("user", f"[{key}] {GOAL}"),), max_output_tokens=OUTPUT)


def keys(members: int, rounds: int) -> list[list[str]]:
    """Keys of the members' calls, by round."""
    return [[f"round/{round_}/{number}" for number in range(members)] for round_ in range(1, rounds + 1)]


class BilledMembers(Members):
    """``Members`` with a bill, so that every account there is takes part."""

    name = "billed-members"

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """One line for the answers; nothing may fail, so retries and repairs get no call."""
        plan = await super().plan(task, desk)
        calls = plan.params["members"] * plan.params["rounds"]
        model = desk.model("member")
        longest = request_for(model, f"round/{plan.params['rounds']}/{plan.params['members']}")
        tokens_in = (await desk.count(longest)).tokens
        price = desk.price(model)
        usd = None if price is None else price.worst(tokens_in, OUTPUT) * calls
        answers = BillLine("answer", calls, tokens_in * calls, OUTPUT * calls, usd)
        spare = tuple(BillLine(purpose, 0, 0, 0, Decimal(0)) for purpose in ("repair", "retry"))
        return Plan(self.name, Bill((answers, *spare)), plan.params, plan.reasons)


def config_in(folder: Path, model: str, **overrides: Any) -> romanesco.Config:
    """A configuration of its own: nothing of the machine's or the user's is in it."""
    settings = {"home": str(folder / "home"), "concurrency": 20_000, **overrides}
    config = romanesco.load_config(Path("/dev/null"), env={}, overrides=settings)
    config.tables["prices"] = {model: PRICE}
    return config


def budget_for(calls: int) -> romanesco.Budget:
    """Limits in every dimension, each of them far enough away."""
    return romanesco.Budget(tokens=calls * 1000, usd=Decimal(calls), seconds=3600.0, calls=calls)


async def run_members(
    probe: Probe, model: ChatModel, members: int, rounds: int, *, topology: Members | None = None, **options: Any
) -> Outcome:
    """Run the members and check what came out."""
    calls = members * rounds
    outcome = await romanesco.run(
        GOAL,
        model=model,
        topology=topology or BilledMembers(),
        budget=budget_for(calls),
        params={"members": members, "rounds": rounds, "max_output_tokens": OUTPUT},
        **options,
    )
    answer = "\n".join(f"{key}: {REPLY}" for key in sorted(itertools.chain(*keys(members, rounds))))
    check_outcome(probe, outcome, calls, answer)
    return outcome


def check_outcome(probe: Probe, outcome: Outcome, calls: int, answer: str) -> None:
    """Check a run's answer, calls, tokens and money."""
    probe.expect("status", outcome.status, romanesco.Status.COMPLETED)
    probe.expect("answer", outcome.answer, answer)
    probe.expect("calls", outcome.spend.calls, calls)
    probe.expect("output tokens", outcome.spend.tokens_out, calls * OUTPUT)
    probe.expect("estimated", outcome.spend.estimated, False)
    input_price, output_price = (Decimal(str(PRICE[name])) for name in ("input", "output"))
    usd = (outcome.spend.tokens_in * input_price + outcome.spend.tokens_out * output_price) / 1_000_000
    probe.expect("money", outcome.spend.usd, usd)


async def check_journal(probe: Probe, config: romanesco.Config, run: str, calls: int) -> None:
    """Verify a run's journal: its chain, its totals, its bill."""
    async with SQLiteStore(config.home() / "journal.db") as store:
        verification = await verify(store, run)
    probe.expect("journal verified", verification.ok, True)
    probe.expect("journaled calls", verification.totals.calls, calls)


async def ask_alone(probe: Probe, model: ChatModel, members: int, rounds: int) -> None:
    """The same requests to a model without any engine, as concurrent as in a run."""
    said: list[str] = []

    async def member(key: str) -> None:
        said.append((await model.complete(request_for(model.name, key))).text)

    for of_round in keys(members, rounds):
        async with asyncio.TaskGroup() as group:
            for key in of_round:
                group.create_task(member(key))
    probe.expect("replies", said, [REPLY] * (members * rounds))
