"""Failures are remembered where a topology acted on them, and tried again where it did not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, BudgetExceeded, ModelError, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.errors import (
    DeadlineExceeded,
    EmbeddingFailed,
    OutputInvalid,
    RateLimited,
    Refused,
    RequestRejected,
    RomanescoError,
    ServerFault,
)
from romanesco.runtime._steps import failure_data, failure_from
from romanesco.testing import Chain, FakeReply, FakeServer, Fault, Members, Rule, Scenario
from tests.runtime.checks import kinds
from tests.runtime.drive import again, cut_off, drive, go_on
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of


async def test_a_member_that_failed_for_good_is_not_asked_again_once_the_run_went_on(tmp_path: Path) -> None:
    here = asyncio.Event()

    async def hang(_request: object) -> str:
        here.set()
        return str(await asyncio.get_running_loop().create_future())

    script = {"round/1/2": ModelError("No answer"), "round/1/*": "ok", "round/2/*": hang}
    await cut_off(tmp_path, ScriptedModel(script), Members(), here, params={"rounds": 2, "members": 4})
    model = ScriptedModel("later")
    outcome = await go_on(tmp_path, model, Members())
    asked = {call.context.key for call in model.calls if call.context}
    assert asked == {f"round/2/{number}" for number in range(4)}
    assert outcome.status is Status.PARTIAL and "round/1/2: (model)" in outcome.answer


async def test_br_046_a_failed_last_step_is_retried_on_resume(tmp_path: Path) -> None:
    failing = ScriptedModel({"step/0": "one", "step/1": "two", "step/2": ModelError("No answer")})
    cut = await drive(tmp_path, failing, Chain(), params={"length": 5})
    assert (cut.status, cut.reason, cut.answer) == (Status.PARTIAL, StopReason.MODEL, "two")
    model = ScriptedModel("later")
    outcome = await go_on(tmp_path, model, Chain())
    assert outcome.status is Status.COMPLETED
    assert [call.context.key for call in model.calls if call.context] == ["step/2", "step/3", "step/4"]


async def test_br_011_a_refusal_by_the_budget_is_forgotten_when_the_limit_is_raised(tmp_path: Path) -> None:
    cut = await drive(tmp_path, ScriptedModel("ok"), Chain(), params={"length": 5}, budget=Budget(calls=3))
    assert (cut.status, cut.reason, cut.spend.calls) == (Status.PARTIAL, StopReason.BUDGET, 3)
    assert "run" in cut.note and "limit 3" in cut.note
    model = ScriptedModel("ok")
    outcome = await go_on(tmp_path, model, Chain(), budget=Budget(calls=5))
    assert outcome.status is Status.COMPLETED and len(model.calls) == 2


async def test_a_refusal_that_the_topology_acted_on_is_taken_back_with_all_that_followed(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        try:
            text = await say(scope, "long", "long", cap=1000)
        except BudgetExceeded:
            text = "short"
        chosen = await scope.record("plain.chose", {"text": text}, key="choice")
        return done(await say(scope, f"go on with {chosen['text']}", "next"), Status.PARTIAL)

    limited = await drive(tmp_path, ScriptedModel("ok"), Plain(solve), budget=Budget(tokens=500))
    assert limited.answer == "ok"
    model = ScriptedModel({"long": "the long one", "next": "better"})
    options: dict[str, Any] = {"topologies": [Plain(solve)], "config": config_in(tmp_path)}
    outcome = await romanesco.resume("r", model=model, budget=Budget(tokens=5000), **options)
    assert outcome.answer == "better"
    assert "go on with the long one" in model.prompts[1]
    replayed = await again(tmp_path, Plain(solve))
    assert (replayed.status, replayed.answer) == (outcome.status, outcome.answer)


async def test_failures_of_a_child_are_its_outcome_and_reopened_by_a_resume(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node != "/":
            return done(await say(scope, "child", "ask"))
        child = await scope.spawn("plain", task, key="child")
        return done(child.answer or f"({child.reason})", child.status)

    cut = await drive(tmp_path, ScriptedModel(ModelError("No answer")), Plain(solve))
    assert (cut.status, cut.answer) == (Status.FAILED, "(model)")
    outcome = await go_on(tmp_path, ScriptedModel("well"), Plain(solve))
    assert (outcome.status, outcome.answer) == (Status.COMPLETED, "well")


async def test_br_094_attempts_of_a_call_are_visible_and_bounded(tmp_path: Path) -> None:
    model = ScriptedModel({"step/0": [ServerFault("down"), RateLimited("slow"), ServerFault("down"), "ok"]})
    outcome = await drive(tmp_path, model, Chain(), params={"length": 1})
    events = await events_of(config_in(tmp_path), "r")
    assert [data["attempt"] for *_, data in kinds(events, "call.started")] == [1, 2, 3, 4]
    assert [data["error"] for *_, data in kinds(events, "call.failed")] == [
        "server-fault",
        "rate-limited",
        "server-fault",
    ]
    assert outcome.status is Status.COMPLETED and outcome.spend.calls == 4
    assert outcome.spend.estimated  # nobody knows what the two faults cost


async def test_retries_end_and_what_they_cost_is_counted(tmp_path: Path) -> None:
    model = ScriptedModel(ServerFault("down"))
    outcome = await drive(tmp_path, model, Members(), params={"members": 2})
    assert len(model.calls) == 2 * 3 == outcome.spend.calls
    assert outcome.status is Status.PARTIAL and outcome.reason is StopReason.MODEL


async def test_a_budget_that_ends_between_attempts_keeps_the_failure(tmp_path: Path) -> None:
    outcome = await drive(tmp_path, ScriptedModel(ServerFault("down")), Chain(), budget=Budget(calls=2))
    assert outcome.spend.calls == 2
    assert outcome.reason is StopReason.MODEL and "down" in outcome.note


@pytest.mark.parametrize("wrong", [ValueError("a fault"), KeyError("x"), ExceptionGroup("two", [OSError(1, "a")])])
async def test_a_topology_that_raises_anything_is_a_failed_node_and_its_siblings_are_kept(
    wrong: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        if scope.node == "/":
            bad = await scope.spawn("plain", Task("bad"), key="bad")
            good = await scope.spawn("plain", Task("good"), key="good")
            return done(f"{bad.status} {good.answer}", Status.PARTIAL, note=bad.note)
        if task.goal == "bad":
            raise wrong
        return done(await say(scope, "good", "ask"))

    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(solve))
    assert outcome.answer == "failed ok"
    assert "The topology failed with" in outcome.note
    assert "A topology failed in node /bad" in caplog.text


async def test_an_adapter_that_raises_what_is_no_model_error_costs_its_own_answer_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel({"member-1": ZeroDivisionError("sk-secret"), "round/*": "ok"})
    outcome = await drive(tmp_path, model, Members(), budget=Budget(tokens=10_000))
    assert outcome.status is Status.PARTIAL and outcome.reason is StopReason.MODEL
    assert outcome.answer.count("ok") == 7 and "ZeroDivisionError" in outcome.note
    assert outcome.spend.calls == 8 and outcome.spend.estimated
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"sk-secret" not in left and "sk-secret" in caplog.text


async def test_a_server_that_asks_to_wait_for_hours_is_not_waited_for(tmp_path: Path) -> None:
    model = ScriptedModel({
        "member-0": RateLimited("The day's quota is used up", retry_after=40_000.0),
        "round/*": "ok",
    })
    outcome = await drive(tmp_path, model, Members())
    assert outcome.status is Status.PARTIAL and outcome.answer.count("ok") == 7
    assert len(model.calls) == 8 and "quota" in outcome.note


KINDS = [
    RateLimited("slow", retry_after=1.5),
    DeadlineExceeded("late", phase="first_token", value="3 s", limit="2 s"),
    RequestRejected("no", value=422),
    BudgetExceeded("none left", account="run", dimension="seconds", value=3, limit=2, advice="Wait."),
    EmbeddingFailed("no vectors"),
    Refused("not this"),
    OutputInvalid("no JSON"),
]


@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.code)
def test_a_recorded_failure_comes_back_as_it_was(error: RomanescoError) -> None:
    again = failure_from(json.loads(json.dumps(failure_data(error))))
    assert type(again) is type(error)
    assert (str(again), again.code, again.reason) == (str(error), error.code, error.reason)
    for name in ("account", "dimension", "phase", "retry_after"):
        assert getattr(again, name, None) == getattr(error, name, None)


async def test_br_080_a_stalled_stream_ends_at_its_deadline_whatever_the_watchers_see(tmp_path: Path) -> None:
    stall = Rule(
        match="[0]", attempts=(0,), reply=FakeReply(text="w " * 20, fault=Fault(stall=float("inf"), stall_after=3))
    )
    config = config_in(tmp_path, deadlines__between_tokens=1.0)
    async with FakeServer(scenario=Scenario(rules=(stall,))) as server:
        outcome = await drive(tmp_path, f"{server.url}#fake", Chain(), config=config)
        assert len(server.ledger.requests) == 4
    assert outcome.status is Status.COMPLETED and outcome.spend.estimated


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "gave no outcome; got NoneType"),
        ("text", "gave no outcome; got str"),
        (Outcome(Status.COMPLETED, StopReason.COMPLETED, answer=5), "whose answer is wrong"),  # type: ignore[arg-type]
        (Outcome("done", StopReason.COMPLETED), "whose status is wrong"),  # type: ignore[arg-type]
    ],
    ids=["nothing", "text", "an answer that is none", "a status that is none"],
)
async def test_what_is_no_outcome_is_a_fault_of_the_topology(given: Any, told: str, tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Any:
        if scope.node == "/" and task.params.get("child"):
            child = await scope.spawn("plain", Task("below"), key="child")
            return done(child.note, Status.PARTIAL)
        return given

    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(solve))
    assert (outcome.status, outcome.reason) == (Status.FAILED, StopReason.INTERNAL)
    assert told in outcome.note and "a fault of the topology" in outcome.note
    above = await drive(tmp_path / "other", ScriptedModel("ok"), Plain(solve), params={"child": 1})
    assert above.status is Status.PARTIAL and told in above.answer


async def test_words_in_the_place_of_a_status_are_taken(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Outcome:
        return Outcome("completed", "completed", "answer")  # type: ignore[arg-type]

    outcome = await drive(tmp_path, ScriptedModel("ok"), Plain(solve))
    assert (outcome.status, outcome.reason) == (Status.COMPLETED, StopReason.COMPLETED)
    assert (await again(tmp_path, Plain(solve))).status is Status.COMPLETED


async def test_a_best_answer_so_far_outlives_a_wrong_outcome(tmp_path: Path) -> None:
    async def solve(task: Task, scope: Scope) -> Any:
        await scope.offer(await say(scope, "hello", "first"), key="first")

    outcome = await drive(tmp_path, ScriptedModel("paid for"), Plain(solve))
    assert (outcome.status, outcome.reason, outcome.answer) == (Status.PARTIAL, StopReason.INTERNAL, "paid for")


async def test_what_is_no_plan_is_a_fault_of_the_topology(tmp_path: Path) -> None:
    class Planless(Plain):
        async def plan(self, task: Task, desk: object) -> Any:
            return None

    async def solve(task: Task, scope: Scope) -> Outcome:
        raise AssertionError("never")

    for begin in (romanesco.plan, romanesco.run):
        with pytest.raises(RomanescoError, match=r"gave no plan; got NoneType.*fault of the topology"):
            await begin("g", model=ScriptedModel("ok"), topology=Planless(solve), config=config_in(tmp_path))
