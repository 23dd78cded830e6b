"""Runs whose endpoint does not take a schema, takes no notice of it, or thinks until its cap is used up."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Bill, Outcome, Scope, ScriptedModel, Status, Task
from romanesco.models import FinishReason, Message, ModelReply, ModelRequest, OutputSchema, Usage
from romanesco.models._instance import minimal_instance
from romanesco.task import BillLine
from romanesco.testing import FakeReply, FakeServer, Fault, MemoryStore, NgramEmbedder, Scenario
from tests.runtime.checks import check_run, kinds
from tests.runtime.drive import drive
from tests.runtime.topologies import Plain, done
from tests.support import config_in, events_of

FREE = Decimal(0)
VALUES: dict[str, dict[str, Any]] = {
    "failure_scenario": {
        "failure_scenario": "Nobody comes.",
        "alternative_mechanism": "Ask the guests first.",
        "modification": "Open in May.",
    },
    "critiques": {"critiques": ["Too slow.", "Too dear.", "Nobody asked."]},
    "chosen": {"answer": "Open in May.", "absorbed": [], "discarded": [], "ledger": []},
}


def obedient(body: dict[str, Any], number: int) -> FakeReply:
    """Answers in JSON only who tells it the fields, in the prompt or by a tool that it takes."""
    if "tools" in body:
        return FakeReply()
    told = re.search(r'Its fields: "(\w+)": (?:one of "([^"]+)")?', body["messages"][-1]["content"])
    if told is None:
        return FakeReply(text="Open in May.")
    value = VALUES[told[1]]
    return FakeReply(text=json.dumps({"chosen": told[2], **value} if told[2] else value))


def without_usage(body: dict[str, Any], number: int) -> FakeReply:
    """The same from a server that does not say what it used: each call then counts with all that was reserved."""
    return replace(obedient(body, number), fault=Fault(usage="missing"))


@pytest.mark.parametrize("reject", [["response_format"], ["response_format", "tools"]])
@pytest.mark.parametrize("answers", [obedient, without_usage])
async def test_a_run_climbs_down_once_and_completes_inside_its_bill(
    tmp_path: Path, answers: Any, reject: list[str]
) -> None:
    config = config_in(tmp_path)
    async with FakeServer(answers, scenario=Scenario(reject=frozenset(reject))) as server:
        outcome = await romanesco.run(
            "Plan a garden.",
            model=f"{server.url}#fake",
            params={"k": 4, "rounds": 1},
            config=config,
            embedder=NgramEmbedder(),
            run="r",
        )
    assert outcome.status is Status.COMPLETED, outcome.note
    assert [entry.status for entry in server.ledger.requests].count(400) == len(reject)
    events = await check_run(config, outcome, server.ledger)
    failed = [data for *_, data in kinds(events, "call.failed")]
    assert [data["error"] for data in failed] == ["request-rejected"] * len(reject)
    assert all(data["usage"]["output"] == 0 for data in failed)
    retried = [data for *_, data in kinds(events, "call.started") if data["call_line"] == "retry"]
    assert len(retried) == len(reject), "a refusal costs one request of the retry line"
    assert not kinds(events, "step.failed")


async def test_many_first_calls_cost_two_refusals_and_keep_the_retry_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight calls at once, and a bill with two retries: the seven that waited are charged to their own line."""
    monkeypatch.setattr("romanesco.models._openai_ways.PATIENCE", 60.0)
    schema = {"type": "object", "properties": {"critiques": {"type": "array"}}, "required": ["critiques"]}

    async def solve(task: Task, scope: Scope) -> Outcome:
        request = ModelRequest(
            scope.model("member"), (Message("user", "Criticise."),), 60, output=OutputSchema("critiques", schema)
        )
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(scope.call_structured(request, key=f"ask/{number}", role="member", purpose="answer"))
        return done()

    lines = (BillLine("answer", 8, 20_000, 480, FREE), BillLine("retry", 2, 0, 0, FREE))
    config = config_in(tmp_path)
    async with FakeServer(obedient, scenario=Scenario(reject=frozenset({"response_format", "tools"}))) as server:
        outcome = await drive(
            tmp_path, f"{server.url}#fake", Plain(solve, bill=Bill(lines)), config=config, embedder=NgramEmbedder()
        )
        await check_run(config, outcome, server.ledger)
    assert outcome.status is Status.COMPLETED, outcome.note
    assert sorted(entry.status for entry in server.ledger.requests) == [200] * 8 + [400] * 2


async def test_a_reask_tells_the_fields_to_a_server_that_takes_no_notice_of_a_schema(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"critiques": {"type": "array"}}, "required": ["critiques"]}
    values = []

    async def solve(task: Task, scope: Scope) -> Outcome:
        request = ModelRequest(
            scope.model("member"), (Message("user", "Criticise."),), 60, output=OutputSchema("critiques", schema)
        )
        values.append((await scope.call_structured(request, key="ask", role="member", purpose="answer")).value)
        return done()

    seen: list[dict[str, Any]] = []

    def deaf(body: dict[str, Any], number: int) -> FakeReply:
        seen.append(body)
        return obedient(body, number)

    async with FakeServer(deaf) as server:
        outcome = await drive(tmp_path, f"{server.url}#fake", Plain(solve))
    assert outcome.status is Status.COMPLETED, outcome.note
    assert values == [VALUES["critiques"]]
    first, second = seen
    assert "response_format" in first and "response_format" in second
    assert "critiques" not in first["messages"][-1]["content"]
    assert (
        'Answer with one JSON object and nothing else. Its fields: "critiques": a list'
        in (second["messages"][-1]["content"])
    )


def thinking(finish: FinishReason, reasoning: int) -> ScriptedModel:
    """A model that thinks for 400 tokens, which it does not show, and answers in what the cap leaves."""

    def answer(request: ModelRequest) -> Any:
        if request.max_output_tokens > 450:
            return "Open in May." if request.output is None else minimal_instance(request.output.schema)
        return ModelReply("", finish, Usage(20, request.max_output_tokens, reasoning=reasoning))

    return ScriptedModel(answer)


@pytest.mark.parametrize(
    ("finish", "reasoning", "says"),
    [
        (FinishReason.LENGTH, 60, "the reply is 60 tokens of reasoning and it was cut by the output cap"),
        (FinishReason.STOP, 60, "the reply is 60 tokens of reasoning and nothing else came"),
        (FinishReason.LENGTH, 0, "the output cap was used up and no text came, so the model was probably reasoning"),
    ],
)
@pytest.mark.parametrize("topology", ["single", "fractal"])
async def test_a_model_that_only_reasons_is_told_apart_and_the_advice_works(
    tmp_path: Path, topology: str, finish: FinishReason, reasoning: int, says: str
) -> None:
    caps = {"single": {"answer_tokens": 100}, "fractal": {"rounds": 1, "decision_tokens": 300}}[topology]
    options: dict[str, Any] = {"config": config_in(tmp_path), "embedder": NgramEmbedder(), "topology": topology}

    async def ask(params: dict[str, Any]) -> Outcome:
        model = thinking(finish, reasoning)
        return await romanesco.run("Plan a garden.", model=model, params=params, store=MemoryStore(), **options)

    short = await ask(caps)
    assert short.status is Status.FAILED
    assert says in short.note and "reasoning_only at try 2" in short.note
    assert "use another model" not in short.note
    advised = re.search(r"--param (\w+)=N \((\d+) to begin with\)", short.note)
    assert advised is not None, short.note
    long = await ask({**caps, advised[1]: int(advised[2])})
    assert long.status is Status.COMPLETED, long.note


async def test_the_time_to_read_a_reply_is_on_record_and_in_the_outcome(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        request = ModelRequest(scope.model("member"), (Message("user", "Write."),), 4000)
        return done((await scope.call(request, key="ask", role="member", purpose="answer")).text)

    async with FakeServer(lambda body, number: FakeReply(text="word " * 2000)) as server:
        outcome = await drive(tmp_path, f"{server.url}#fake", Plain(solve))
    events = await events_of(config_in(tmp_path), "r")
    timing = kinds(events, "call.finished")[0][-1]["timing"]
    assert set(timing) == {"queue", "first_token", "total", "parse"}
    assert outcome.times is not None
    assert 0 < timing["parse"] == outcome.times.parse
