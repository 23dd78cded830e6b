"""What goes wrong in a node: members, instruments and decisions that fail, and a budget that ends."""

from __future__ import annotations

from typing import Any

import pytest

from romanesco.errors import DeadlineExceeded, KeyMissing, RunStopped, ServerFault, StopReason
from romanesco.models import ModelRequest
from romanesco.task import Status
from tests.topologies.node_fakes import (
    Answer,
    FakeDesk,
    apart,
    backing,
    broken,
    deliberate,
    failing,
    kept,
    prompt,
    talk,
)


async def test_a_member_that_fails_leaves_its_siblings_alone() -> None:
    outcome, scope = await deliberate(script=failing("generate/1/radical-speculator"), rounds=2)
    record = kept(outcome)
    assert outcome.status is Status.COMPLETED
    assert record.missing == ("radical-speculator",)
    assert len(record.critiques) == 2 * 3 * 3
    assert "radical-speculator, generate in round 1: the server answered 500" in outcome.note
    assert "integrate/2/radical-speculator" not in scope.asked


async def test_br_143_three_of_five_failed_and_two_agree_is_no_consensus() -> None:
    team = kept((await deliberate(k=5))[0]).personas[:5]
    votes = {team[0]: "P1", team[1]: "P1"}

    def script(key: str, request: ModelRequest) -> Answer:
        lost = key.startswith("generate/") and key.split("/")[2] in team[2:]
        return ServerFault("500") if lost else backing(votes)(key, request)

    outcome, scope = await deliberate(script=script, k=5, rounds=3)
    assert kept(outcome).stop == "r_max"
    first = scope.record_of("fractal.consensus")[0]
    told = (first["backers"], first["needed"], first["eligible"], first["received"], first["failed"])
    assert told == (2, 4, 5, 2, 3) and first["reached"] is False


async def test_br_145_a_broken_embedder_never_ends_the_rounds() -> None:
    outcome, scope = await deliberate(vectors=broken)
    record = kept(outcome)
    assert (outcome.status, record.stop, record.rounds) == (Status.COMPLETED, "r_max", 3)
    assert [(point.value, point.ratio) for point in record.diversity] == [(None, None)] * 3
    assert "the embedder is down" in outcome.note
    assert all(test["value"] is None for one in scope.record_of("fractal.round") for test in one["tests"][1:2])


async def test_an_embedder_that_recovers_measures_what_was_missed() -> None:
    def flaky(texts: Any, key: str) -> list[list[float]]:
        return broken(texts, key) if key == "embed/1" else apart(texts, key)

    outcome, _ = await deliberate(vectors=flaky)
    values = [point.value for point in kept(outcome).diversity]
    assert None not in values


async def test_a_frame_challenger_that_leaves_a_part_out_has_failed() -> None:
    def script(key: str, request: ModelRequest) -> Answer:
        answer = talk(key, request)
        if key == "generate/1/frame-challenger" and isinstance(answer, dict):
            answer["modification"] = "  "
        return answer

    outcome, scope = await deliberate(script=script, rounds=2)
    assert kept(outcome).missing == ("frame-challenger",)
    assert "left out modification" in outcome.note
    text = prompt(scope.asked["integrate/2/radical-speculator"])
    assert "<challenge" not in text


@pytest.mark.parametrize("critiques", [["a", "b"], ["a", "b", "c", "d"], ["a", "b", " "]])
async def test_anything_but_three_critiques_is_no_critique(critiques: list[str]) -> None:
    def script(key: str, request: ModelRequest) -> Answer:
        wrong = key.startswith("critique/P1") and key.endswith("friction-engine")
        return {"critiques": critiques} if wrong else talk(key, request)

    outcome, scope = await deliberate(script=script, rounds=1)
    assert outcome.status is Status.COMPLETED
    assert len(kept(outcome).critiques) == 21
    (matrix,) = scope.record_of("fractal.critique_matrix")
    assert (matrix["expected"], matrix["received"]) == (24, 21)


async def test_without_any_critique_the_decision_is_made_on_the_proposals() -> None:
    outcome, _ = await deliberate(script=failing("critique/"))
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.MODEL)
    assert set(kept(outcome).missing) == {"structural-purist", "friction-engine"}
    assert outcome.note.startswith("No evaluator gave a critique")
    assert outcome.note.count("the server answered 500") == 1  # one reason, told once for all eight


@pytest.mark.parametrize("decide", [{}, "no JSON at all", ServerFault("500"), DeadlineExceeded("slow", phase="total")])
async def test_a_decision_that_fails_leaves_the_best_backed_proposal(decide: Answer) -> None:
    team = kept((await deliberate())[0]).personas[:4]

    def script(key: str, request: ModelRequest) -> Answer:
        if key != "decide":
            return backing(dict.fromkeys(team[:2], "P4"))(key, request)
        if decide == {}:
            return {**talk(key, request), "answer": " "}  # type: ignore[dict-item]
        return decide

    outcome, _ = await deliberate(script=script, rounds=2)
    record = kept(outcome)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.MODEL)
    assert record.decision is not None
    assert (record.decision.by, record.decision.chosen) == ("engine", "P4.2")
    assert outcome.answer == next(one.text for one in record.proposals if one.id == "P4.2")
    assert "best-backed proposal as it stands" in outcome.note


async def test_when_everything_fails_the_node_has_failed() -> None:
    outcome, scope = await deliberate(script=failing("generate/", error=KeyMissing("OPENAI_API_KEY is not set")))
    assert (outcome.status, outcome.reason, outcome.answer) == (Status.FAILED, StopReason.MODEL, "")
    assert "OPENAI_API_KEY is not set" in outcome.note
    assert len(scope.asked) == 4 and scope.offers == []
    assert kept(outcome).decision is None


async def test_a_member_that_fails_later_keeps_its_proposal() -> None:
    outcome, _ = await deliberate(script=failing("integrate/2/radical-speculator"), rounds=2)
    record = kept(outcome)
    judged = {one.proposal for one in record.critiques}
    assert sum(one.endswith(".1") for one in judged) == 1 and len(judged) == 4
    assert record.missing == ()


async def test_an_answer_that_was_cut_is_partial_and_says_how_to_get_more() -> None:
    def script(key: str, request: ModelRequest) -> Answer:
        answer = talk(key, request)
        return {**answer, "answer": "cut"} if key == "decide" and isinstance(answer, dict) else answer

    outcome, _ = await deliberate(script=script)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.LENGTH)
    assert "decision_tokens" in outcome.note


async def test_a_stop_is_let_through() -> None:
    with pytest.raises(RunStopped, match="a person stopped it"):
        await deliberate(script=failing("integrate/", error=RunStopped("a person stopped it")))


@pytest.mark.parametrize("stage", ["generate", "integrate/2", "integrate/3", "critique", "decide"])
async def test_a_budget_that_ends_is_wrapped_up(stage: str) -> None:
    outcome, scope = await deliberate(refuse=lambda key: key.startswith(stage))
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.BUDGET)
    assert outcome.answer == "Proposal of wrap-up. It works because wrap-up says so."
    assert outcome.note.startswith("Cut short: refused")
    record = kept(outcome)
    assert record.decision is not None and record.decision.by == "wrap-up"
    assert record.decision.chosen == ("" if stage == "generate" else record.decision.chosen)
    assert [key for key in scope.asked if key == "wrap-up"] == ["wrap-up"]


async def test_members_that_were_not_refused_count() -> None:
    outcome, _ = await deliberate(refuse=lambda key: key == "generate/1/radical-speculator")
    assert len(kept(outcome).proposals) == 3
    assert outcome.status is Status.PARTIAL


async def test_without_a_wrap_up_the_best_backed_proposal_is_the_partial_answer() -> None:
    outcome, scope = await deliberate(refuse=lambda key: key.startswith(("critique", "wrap-up")))
    record = kept(outcome)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.BUDGET)
    assert record.decision is not None and record.decision.by == "engine"
    assert outcome.answer == next(one.text for one in record.proposals if one.id == record.decision.chosen)
    assert "wrap-up" not in scope.asked


async def test_a_budget_for_nothing_is_a_failure_with_its_account() -> None:
    outcome, _ = await deliberate(refuse=lambda key: True)
    assert (outcome.status, outcome.reason, outcome.answer) == (Status.FAILED, StopReason.BUDGET, "")
    assert "limit 0" in outcome.note


@pytest.mark.parametrize("account", ["line:repair", "run/line:retry", "node:/role:radical-speculator"])
async def test_an_empty_pool_costs_one_member_its_answer_and_no_more(account: str) -> None:
    from romanesco.errors import BudgetExceeded

    error = BudgetExceeded("no more", account=account, dimension="calls")
    outcome, _ = await deliberate(script=failing("generate/1/radical-speculator", error=error))
    assert outcome.status is Status.COMPLETED
    assert kept(outcome).missing == ("radical-speculator",)


@pytest.mark.parametrize("window", [2048, 32_768])
async def test_without_a_frame_challenger_nobody_is_told_of_a_challenge_and_the_outcome_is_partial(window: int) -> None:
    desk = FakeDesk(size_of_window=window, exactly=True, bytes_per_token=4)
    outcome, scope = await deliberate(script=failing("generate/1/frame-challenger"), rounds=3, desk=desk)
    later = [prompt(request) for key, request in scope.asked.items() if key.startswith("integrate/")]
    assert len(later) == 6
    assert not any("Read the challenge" in text or "answer the challenge" in text for text in later)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.MODEL)
    assert outcome.answer == "answer of decide."
    assert outcome.note.startswith("The Frame Challenger, who is mandatory, gave no proposal")
    assert kept(outcome).missing == ("frame-challenger",)


async def test_a_frame_challenger_that_fails_later_has_challenged() -> None:
    outcome, scope = await deliberate(script=failing("integrate/2/frame-challenger"), rounds=3)
    assert outcome.status is Status.COMPLETED and kept(outcome).missing == ()
    assert "Read the challenge first" in prompt(scope.asked["integrate/3/radical-speculator"])


async def test_every_reason_why_a_decision_is_partial_is_told() -> None:
    def script(key: str, request: ModelRequest) -> Answer:
        if key == "decide":
            return {**talk(key, request), "answer": "cut"}  # type: ignore[dict-item]
        return failing("generate/1/frame-challenger", "critique/")(key, request)

    outcome, _ = await deliberate(script=script)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.LENGTH)
    assert all(part in outcome.note for part in ("decision_tokens", "No evaluator gave", "The Frame Challenger, who"))


@pytest.mark.parametrize("window", [2048, 32_768])
async def test_a_wrap_up_reads_the_critiques_that_were_paid_for(window: int) -> None:
    lost = "critique/P2.2/friction-engine"
    desk = FakeDesk(size_of_window=window, exactly=True, bytes_per_token=4)
    outcome, scope = await deliberate(refuse=lambda key: key in (lost, "decide"), rounds=2, desk=desk)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.BUDGET)
    text = prompt(scope.asked["wrap-up"])
    paid = kept(outcome).critiques
    assert len(paid) == 21 and all(one.text[:30] in text for one in paid)
    assert lost not in text
