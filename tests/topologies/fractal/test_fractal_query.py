"""A node that asks a person: durably, and what was answered stands in its ledger."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

import romanesco
from romanesco import Outcome, Scope, ScriptedModel, Status, Task
from romanesco._run import Run
from romanesco.errors import IllegalEvent
from romanesco.models import ScriptedCall
from romanesco.task import LedgerEntry
from romanesco.testing import NgramEmbedder
from romanesco.topologies.fractal import Fractal
from romanesco.topologies.fractal._members import Members
from romanesco.topologies.fractal._minutes import Minutes
from romanesco.topologies.fractal._node import Node, deliberate
from romanesco.topologies.fractal._params import params_from_json
from romanesco.topologies.fractal._requests import Requests
from romanesco.topologies.fractal._state import Missing, Started, State
from tests.support import config_in, events_of
from tests.topologies.node_fakes import FakeDesk, FakeScope, apart, talk

QUESTION = "Which market is meant?"


class Unclear(Fractal):
    """Asks before its first round."""

    name = "unclear"

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        return await deliberate(task, scope, question=QUESTION)


async def until_asked(run: Run) -> None:
    async for event in run.events():
        if event.kind == "question.asked":
            return
    raise AssertionError("the run ended without a question")


def key_of(call: ScriptedCall) -> str:
    return call.context.key if call.context else ""


def facts(outcome: Outcome) -> list[LedgerEntry]:
    assert outcome.deliberation is not None
    return [entry for entry in outcome.deliberation.ledger if entry.kind == "fact"]


async def test_what_a_person_answers_is_a_fact_of_the_ledger_and_the_node_goes_on(tmp_path: Path) -> None:
    config, model = config_in(tmp_path), ScriptedModel(auto=True)
    async with romanesco.open_run(
        "Sell the tool", model=model, topology=Unclear(), embedder=NgramEmbedder(), config=config, run="r"
    ) as run:
        await until_asked(run)
        assert model.calls == []
        await run.answer("The Swiss one.")
        outcome = await run.outcome()
    assert outcome.status is Status.COMPLETED
    assert facts(outcome) == [LedgerEntry("fact", f"{QUESTION} The Swiss one.", "person", 0, (QUESTION,))]
    (decide,) = [text for call, text in zip(model.calls, model.prompts, strict=True) if key_of(call) == "decide"]
    assert f"- fact: {QUESTION} The Swiss one." in decide


async def test_an_answer_to_a_node_survives_its_process(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with romanesco.open_run(
        "Sell the tool",
        model=ScriptedModel(auto=True),
        topology=Unclear(),
        embedder=NgramEmbedder(),
        config=config,
        run="r",
    ) as run:
        await until_asked(run)
        await run.answer("The Swiss one.")
        first = await run.outcome()
    (at,) = [seq for seq, kind, *_ in await events_of(config, "r") if kind == "question.answered"]
    with sqlite3.connect(config.home() / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE seq > ?", (at,))
    journal.close()
    model = ScriptedModel(auto=True)
    again = await romanesco.resume("r", model=model, topologies=[Unclear()], embedder=NgramEmbedder(), config=config)
    assert again.status is Status.COMPLETED and facts(again) == facts(first)
    assert len([1 for _, kind, *_ in await events_of(config, "r") if kind == "question.asked"]) == 1


async def node(state: State) -> Node:
    desk = FakeDesk()
    task = Task("Sell the tool")
    plan = await Fractal().plan(task, desk)
    params = params_from_json(plan.params)
    minutes = Minutes(params)
    scope = FakeScope(plan, talk, apart, desk)
    state = replace(state, proposers=state.proposers or tuple(one.id for one in params.team))
    return Node(scope, Members(task, scope, Requests(task.goal, params), {}, {}, minutes), minutes, state)


async def test_a_question_that_the_node_has_no_right_to_is_not_asked() -> None:
    made = await node(State((), ("structural-purist", "friction-engine")))
    async with asyncio.timeout(60):
        outcome = await made.run(Missing(QUESTION))  # the scope refuses to ask
    assert outcome.status is Status.COMPLETED and facts(outcome) == []


async def test_a_node_that_nobody_was_asked_to_move_is_refused_and_does_not_spin() -> None:
    made = await node(State(("nobody",), (), pending=(("nobody", ""),)))
    made.state = replace(made.state, proposers=())
    with pytest.raises(IllegalEvent, match="waits in phase 'proposing' for answers that nobody was asked for"):
        await made.run(Started())
