"""The replay model: recorded replies by fingerprint, node and key; nothing else. And a run's journal as such models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import ScriptedModel
from romanesco.errors import Diverged, JournalCorrupt
from romanesco.models import (
    CallContext,
    Capabilities,
    ChatModel,
    Deadlines,
    Message,
    ModelReply,
    ModelRequest,
    RecordedReply,
    ReplayModel,
    TokenCount,
    current_call,
    request_fingerprint,
)
from romanesco.runtime import read_events, recorded_models
from romanesco.testing import MemoryStore, NgramEmbedder
from tests.support import config_in

REQUEST = ModelRequest(model="openai:x", messages=(Message("user", "hé"),), max_output_tokens=5)


async def at(model: ReplayModel, key: str, *, node: str = "/") -> str:
    token = current_call.set(CallContext(role="r", key=key, node=node))
    try:
        return (await model.complete(REQUEST)).text
    finally:
        current_call.reset(token)


async def test_it_gives_back_the_recorded_reply() -> None:
    reply = ModelReply("recorded")
    model = ReplayModel({request_fingerprint(REQUEST): reply}, name="openai:x")
    assert isinstance(model, ChatModel)
    seen: list[str] = []
    assert await model.complete(REQUEST, on_token=seen.append) is reply
    assert seen == ["recorded"]
    await model.close()


async def test_br_142_samples_of_one_prompt_stay_apart() -> None:
    recorded = [RecordedReply(ModelReply(f"sample {n}"), key=f"blind/1/{n}") for n in range(4)]
    model = ReplayModel({request_fingerprint(REQUEST): recorded})
    assert [await at(model, f"blind/1/{n}") for n in (3, 0, 2, 1)] == [
        "sample 3",
        "sample 0",
        "sample 2",
        "sample 1",
    ]


async def test_a_request_that_was_not_recorded_names_its_key() -> None:
    with pytest.raises(Diverged, match=r"/ blind/1/a; got fingerprint [0-9a-f]{16}"):
        await at(ReplayModel({}), "blind/1/a")


async def test_a_request_under_another_key_or_node_is_no_match() -> None:
    model = ReplayModel({request_fingerprint(REQUEST): [RecordedReply(ModelReply("a"), key="k", node="/1")]})
    assert await at(model, "k", node="/1") == "a"
    with pytest.raises(Diverged, match="recorded for /1 k"):
        await at(model, "k")
    with pytest.raises(Diverged, match="not for /1 other"):
        await at(model, "other", node="/1")


async def test_outside_a_run_only_a_single_recording_is_clear() -> None:
    one = [RecordedReply(ModelReply("a"), key="k")]
    assert (await ReplayModel({request_fingerprint(REQUEST): one}).complete(REQUEST)).text == "a"
    with pytest.raises(Diverged, match="outside a run"):
        await ReplayModel({request_fingerprint(REQUEST): [*one, *one]}).complete(REQUEST)


def test_the_fingerprint_covers_all_but_the_deadlines() -> None:
    changes: dict[str, object] = {
        "model": "openai:y",
        "messages": (Message("user", "he"),),
        "max_output_tokens": 6,
        "temperature": 0.5,
        "seed": 1,
        "tool_choice": "none",
    }
    prints = {request_fingerprint(dataclasses.replace(REQUEST, **{name: value})) for name, value in changes.items()}  # type: ignore[arg-type]
    assert len(prints | {request_fingerprint(REQUEST)}) == len(changes) + 1
    patient = dataclasses.replace(REQUEST, deadlines=Deadlines(total=1.0))
    assert request_fingerprint(patient) == request_fingerprint(REQUEST)


async def test_counts_are_recorded_or_upper_bounds() -> None:
    known = {request_fingerprint(REQUEST): TokenCount(7, exact=True)}
    capabilities = Capabilities(template_overhead=10)
    assert await ReplayModel({}, counts=known).count(REQUEST) == TokenCount(7, exact=True)
    assert await ReplayModel({}, capabilities=capabilities).count(REQUEST) == TokenCount(13, exact=False)
    assert await ReplayModel({}, capabilities=capabilities).capabilities() is capabilities


def written(request: ModelRequest) -> Any:
    """Prose where a value is wanted at first, so that there are re-asks; another text for every prompt."""
    asked = request.messages[-1].content
    if request.output is None:
        return f"Plan {len(asked)} of {len(request.messages[0].content)}."
    if request.output.name == "critiques":
        return {"critiques": ["Too slow.", "Too dear.", "Nobody asked."]} if "can't be used" in asked else "Too slow."
    return ModelReply("", usage=None)


@pytest.mark.parametrize("topology", ["single", "fractal"])
async def test_a_journal_answers_a_new_run_as_it_answered_the_first(tmp_path: Path, topology: str) -> None:
    params = {"single": {}, "fractal": {"rounds": 2, "k": 3}}[topology]
    options: dict[str, Any] = {
        "store": MemoryStore(),
        "embedder": NgramEmbedder(),
        "config": config_in(tmp_path),
        "topology": topology,
        "params": params,
    }
    live = ScriptedModel(written, name="acme:large")
    first = await romanesco.run("Plan a garden.", model={"default": live}, run="a", **options)
    recorded = recorded_models(await read_events(options["store"], "a"))
    assert {role: model.name for role, model in recorded.items()} == {"default": "replay:acme:large"}
    asked = len(live.calls)
    second = await romanesco.run("Plan a garden.", model=recorded, run="b", **options)
    assert len(live.calls) == asked
    assert (second.status, second.answer, second.deliberation) == (first.status, first.answer, first.deliberation)
    spent = [(one.spend.calls, one.spend.tokens_in, one.spend.tokens_out) for one in (first, second)]
    assert spent[0] == spent[1]
    assert first.spend.usd is None and second.spend.usd == 0, "no price is known for the one; the other is free"


@pytest.mark.parametrize("topology", ["single", "fractal"])
async def test_a_run_that_asks_for_something_else_diverges_from_the_recording(tmp_path: Path, topology: str) -> None:
    options: dict[str, Any] = {
        "store": MemoryStore(),
        "embedder": NgramEmbedder(),
        "config": config_in(tmp_path),
        "topology": topology,
    }
    await romanesco.run("Plan a garden.", model=ScriptedModel(auto=True), run="a", **options)
    recorded = recorded_models(await read_events(options["store"], "a"))
    with pytest.raises(Diverged, match="The recording has no reply for the request of / "):
        await romanesco.run("Plan a pond.", model=recorded, run="b", **options)


async def test_each_role_has_its_models_recording(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "store": MemoryStore(),
        "embedder": NgramEmbedder(),
        "config": config_in(tmp_path),
        "params": {"rounds": 1},
    }
    models = {
        "default": ScriptedModel(auto=True, name="acme:small"),
        "decision-maker": ScriptedModel(auto=True, name="acme:large"),
    }
    first = await romanesco.run("Plan a garden.", model=models, run="a", **options)
    recorded = recorded_models(await read_events(options["store"], "a"))
    assert {role: model.name for role, model in recorded.items()} == {
        "default": "replay:acme:small",
        "decision-maker": "replay:acme:large",
    }
    second = await romanesco.run("Plan a garden.", model=recorded, run="b", **options)
    assert (second.status, second.answer) == (first.status, first.answer)


def test_events_of_no_run_are_no_recording() -> None:
    with pytest.raises(JournalCorrupt, match="not those of a run"):
        recorded_models([])
