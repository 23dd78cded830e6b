"""What a FRACTAL run keeps to, whatever its parameters and its models say."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, Outcome, ScriptedModel, Status, StopReason
from romanesco.personas import FRAME_CHALLENGER, PersonaRole, builtin_personas
from romanesco.testing import MemoryStore, NgramEmbedder
from romanesco.topologies.fractal import Fractal
from tests.support import config_in
from tests.topologies.node_fakes import FakeDesk

CAPS = {"style": "compact", "proposal_tokens": 100, "critique_tokens": 20, "decision_tokens": 200}


async def fractal(folder: Path, model: ScriptedModel, **params: Any) -> Outcome:
    return await romanesco.run(
        "Sell the tool",
        model=model,
        topology="fractal",
        params={"k": 3, "rounds": 2, **CAPS, **params},
        store=MemoryStore(),
        embedder=NgramEmbedder(),
        config=config_in(folder),
    )


def caps(model: ScriptedModel) -> dict[str, int]:
    return {call.context.key: call.request.max_output_tokens for call in model.calls if call.context}


async def test_reasoning_tokens_raise_the_cap_of_each_call_and_the_bill(tmp_path: Path) -> None:
    plain, reasoning = ScriptedModel(auto=True), ScriptedModel(auto=True)
    without = await fractal(tmp_path, plain)
    with_room = await fractal(tmp_path, reasoning, reasoning_tokens=500)
    assert caps(reasoning) == {key: cap + 500 for key, cap in caps(plain).items()}
    assert {key.split("/")[0] for key in caps(plain)} == {"generate", "integrate", "critique", "decide"}
    assert without.bill is not None and with_room.bill is not None
    for small, large in zip(without.bill.lines, with_room.bill.lines, strict=True):
        assert (small.purpose, small.calls) == (large.purpose, large.calls)
        if small.purpose != "retry":  # it has requests without tokens
            assert large.tokens_out == small.tokens_out + 500 * small.calls
        assert large.tokens_out > small.tokens_out


async def team(**params: Any) -> list[str]:
    from romanesco import Task

    plan = await Fractal().plan(Task("Sell the tool", params=params), FakeDesk())
    return [member["id"] for member in plan.params["team"]]


GENERATORS = sorted(
    persona.id
    for persona in builtin_personas().values()
    if persona.role is PersonaRole.GENERATOR and persona.id != FRAME_CHALLENGER
)


@pytest.mark.parametrize("delta", [0.0, 0.5, 2.0])
async def test_the_frame_challenger_proposes_whoever_else_is_asked_for(delta: float) -> None:
    for pair in list(combinations(GENERATORS, 2))[::4]:
        found = await team(k=3, members=list(pair), delta=delta)
        assert sorted(found) == sorted((FRAME_CHALLENGER, *pair))
    assert FRAME_CHALLENGER in await team(k=5, delta=delta)


@pytest.mark.parametrize("k", [3, 4])
async def test_seats_for_everybody_but_the_frame_challenger_are_refused(k: int) -> None:
    with pytest.raises(romanesco.InputError, match="Frame Challenger is always required"):
        await team(k=k, members=GENERATORS[:k])


@pytest.mark.parametrize("word", ["TERMINATE", "FINAL ANSWER"])
async def test_br_016_a_quoted_stop_word_ends_no_deliberation(word: str, tmp_path: Path) -> None:
    text = 'It works. He said "{}" and went on. {}'
    plain, quoting = (
        ScriptedModel({"generate/*": text.format("hm", "hm")}, auto=True),
        ScriptedModel({"generate/*": text.format(word, word)}, auto=True),
    )
    without = await fractal(tmp_path, plain)
    outcome = await fractal(tmp_path, quoting)
    assert outcome.status is without.status
    assert sorted(caps(quoting)) == sorted(caps(plain))
    assert any(word in prompt for prompt in quoting.prompts)


async def test_a_limit_of_the_decision_makers_own_is_why_there_is_no_decision(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.tables["limits"] = {"decision-maker": {"calls": 0}}
    options: dict[str, Any] = {"model": ScriptedModel(auto=True), "config": config, "embedder": NgramEmbedder()}
    outcome = await romanesco.run("Sell the tool", store=MemoryStore(), params={"k": 3, "rounds": 2}, **options)
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, StopReason.BUDGET)
    assert (outcome.dimension, outcome.account) == ("calls", "run/role:decision-maker")
    assert outcome.answer and "[limits.decision-maker]" in outcome.note


async def test_a_members_own_limit_is_not_why_the_run_ends(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    config.tables["limits"] = {"radical-speculator": {"calls": 0}}
    options: dict[str, Any] = {"model": ScriptedModel(auto=True), "config": config, "embedder": NgramEmbedder()}
    outcome = await romanesco.run("Sell the tool", store=MemoryStore(), params={"k": 3, "rounds": 2}, **options)
    assert outcome.status is Status.COMPLETED and outcome.dimension == ""


async def test_what_critiques_a_run_paid_for_its_wrap_up_reads(tmp_path: Path) -> None:
    model = ScriptedModel({"critique/*": {"critiques": ["CANARY is bad", "two is bad", "three is bad"]}}, auto=True)
    outcome = await romanesco.run(
        "Sell the tool",
        model=model,
        params={"k": 3, "rounds": 2, "tau_sat": 0, "eps": 0, "quorum": 1},
        budget=Budget(calls=12),
        store=MemoryStore(),
        embedder=NgramEmbedder(),
        config=config_in(tmp_path),
    )
    assert outcome.status is Status.PARTIAL and outcome.deliberation is not None
    asked = [call.context.key for call in model.calls if call.context]
    paid = sum(key.startswith("critique/") for key in asked)
    assert 0 < paid < 6 and asked[-1] == "wrap-up"
    assert model.prompts[-1].count("CANARY is bad") == paid
