"""What a caller says to a run that goes on in its own process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, InputError, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco._run import Run
from romanesco.testing import Chain, FakeServer
from tests.runtime.checks import killed_after, kinds, verified
from tests.runtime.steer import going_on
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of


async def asks(task: Task, scope: Scope) -> Outcome:
    return done(await scope.ask("Which way?", key="way", choices=("left", "right")))


async def asked(run: Run) -> str:
    """Wait for a question; its id."""
    async for event in run.events():
        if event.kind == "question.asked":
            return str(event.data["id"])
    raise AssertionError("the run ended without a question")


def asking(folder: Path) -> Any:
    return romanesco.open_run("g", model=ScriptedModel("ok"), topology=Plain(asks), config=config_in(folder), run="r")


@pytest.mark.parametrize("named", [True, False])
async def test_an_answer_reaches_the_question(named: bool, tmp_path: Path) -> None:
    async with asking(tmp_path) as run:
        question = await asked(run)
        await run.answer("left", question if named else None)
        outcome = await run.outcome()
    assert outcome.answer == "left"
    order = [kind for _, kind, *_ in await events_of(config_in(tmp_path), "r")]
    assert order.index("question.asked") < order.index("question.answered") < order.index("step.finished")


async def test_an_answer_that_fits_nothing_is_refused_and_the_question_waits_on(tmp_path: Path) -> None:
    async with asking(tmp_path) as run:
        question = await asked(run)
        with pytest.raises(InputError, match="not one of the choices"):
            await run.answer("up")
        with pytest.raises(InputError, match="No such question"):
            await run.answer("left", "another")
        await run.answer("right", question)
        assert (await run.outcome()).answer == "right"
        with pytest.raises(InputError, match="The run has ended"):
            await run.answer("left")


async def answered_and_killed(folder: Path) -> None:
    """A run as if it was killed between the person's answer and the topology's use of it."""
    async with asking(folder) as run:
        await asked(run)
        await run.answer("left")
        await run.outcome()
    config = config_in(folder)
    (at,) = [seq for seq, kind, *_ in await events_of(config, "r") if kind == "question.answered"]
    killed_after(config, at)


async def test_an_answer_that_was_acknowledged_survives_the_process(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    await answered_and_killed(tmp_path)
    outcome = await romanesco.resume("r", model=ScriptedModel("ok"), topologies=[Plain(asks)], config=config)
    assert (outcome.status, outcome.answer) == (Status.COMPLETED, "left")
    events = await events_of(config, "r")
    assert len(kinds(events, "question.asked")) == 1, "nobody is asked again"
    await verified(config)


async def test_an_answer_is_not_given_to_another_question(tmp_path: Path) -> None:
    """The step's key is the same and its text is not: the answer was to the text."""
    config = config_in(tmp_path)
    await answered_and_killed(tmp_path)

    async def asks_otherwise(task: Task, scope: Scope) -> Outcome:
        return done(await scope.ask("Whose way?", key="way", choices=("left", "right")))

    model = ScriptedModel("ok")
    async with romanesco.open_resumed("r", model=model, topologies=[Plain(asks_otherwise)], config=config) as run:
        await asked(run)
        await run.answer("right")
        assert (await run.outcome()).answer == "right"


class Paced:
    """Makes two calls, waits until it is told to go on, and calls until a limit or 30 calls end it."""

    def __init__(self) -> None:
        self.waits, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, task: Task, scope: Scope) -> Outcome:
        for number in range(30):
            await say(scope, "again", f"call/{number}")
            if number == 1:
                self.waits.set()
                await self.go_on.wait()
        return done()


async def test_a_limit_is_raised_lowered_and_removed_while_the_run_goes_on(tmp_path: Path) -> None:
    paced = Paced()
    async with FakeServer() as server:
        async with going_on(server, tmp_path, Plain(paced), budget=Budget(calls=2)) as run:
            await paced.waits.wait()
            await run.limit(calls=20, tokens=10**9)
            await run.limit(tokens=None)
            await run.limit(calls=5)
            with pytest.raises(InputError, match="dimension"):
                await run.limit(pages=3)
            paced.go_on.set()
            outcome = await run.outcome()
    assert (outcome.reason, outcome.spend.calls) == (StopReason.BUDGET, 5)
    assert (outcome.budget.calls, outcome.budget.tokens) == (5, None)
    changes = kinds(await events_of(config_in(tmp_path), "r"), "budget.changed")
    assert [(data["dimension"], data["value"]) for *_, data in changes] == [
        ("calls", 20),
        ("tokens", 10**9),
        ("tokens", None),
        ("calls", 5),
    ]


async def test_two_limits_that_change_at_once_both_stand(tmp_path: Path) -> None:
    paced = Paced()
    async with FakeServer() as server:
        limits = {"project.name": "web", "project.calls": 1000}
        async with going_on(server, tmp_path, Plain(paced), config=limits, budget=Budget(calls=100)) as run:
            await paced.waits.wait()
            async with asyncio.TaskGroup() as group:
                group.create_task(run.limit(calls=200))
                group.create_task(run.limit(tokens=300_000))
            paced.go_on.set()
            outcome = await run.outcome()
    assert (outcome.budget.calls, outcome.budget.tokens) == (200, 300_000)


async def one_child_asks(task: Task, scope: Scope) -> Outcome:
    if scope.node == "/":
        asking = await scope.spawn("plain", Task("asks"), key="asks")
        working = await scope.spawn("plain", Task("works"), key="works")
        return done(f"{asking.status.value}, {working.answer}")
    return await asks(task, scope) if task.goal == "asks" else done("worked")


async def test_one_node_is_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    async with FakeServer() as server:
        async with going_on(server, tmp_path, Plain(one_child_asks)) as run:
            await asked(run)
            with pytest.raises(InputError, match="no such node"):
                await run.stop(node="/nobody")
            await run.stop("not needed", node="/asks")
            outcome = await run.outcome()
    assert outcome.answer == "cancelled, worked"
    (told,) = kinds(await events_of(config_in(tmp_path), "r"), "command.received")
    assert (told[2], told[4]["data"]) == ("/asks", {"why": "not needed"})


async def test_what_was_spent_so_far_is_told(tmp_path: Path) -> None:
    paced = Paced()
    async with FakeServer() as server:
        async with going_on(server, tmp_path, Plain(paced)) as run:
            await paced.waits.wait()
            assert run.spend.calls == len(server.ledger.requests) == 2
            paced.go_on.set()
            assert (await run.outcome()).spend.calls == run.spend.calls == 30


async def test_an_ended_run_hears_nothing_more(tmp_path: Path) -> None:
    async with FakeServer() as server:
        async with going_on(server, tmp_path, Chain()) as run:
            await run.outcome()
            with pytest.raises(InputError, match="The run has ended"):
                await run.limit(calls=1)
