"""What a run remembers over several resumes: refusals that were granted since, and what was asked after them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, BudgetExceeded, Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco._codec import to_json
from romanesco.runtime import FoldedEvent
from romanesco.runtime._refold import memo_from
from romanesco.testing import MemoryStore, NgramEmbedder
from tests.runtime.checks import killed_after, kinds, verified
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of

ROUNDS = {"k": 4, "rounds": 8, "tau_sat": 0, "eps": 0}


async def concludes(task: Task, scope: Scope) -> Outcome:
    """Concludes from facts, or, where the budget refuses them, from none."""
    try:
        facts = await say(scope, "give facts", "facts", cap=4000)
    except BudgetExceeded:
        facts = "no facts"
    answer = await say(scope, f"conclude from {facts}", "conclusion")
    whole = facts != "no facts"
    return done(answer, Status.COMPLETED) if whole else Outcome(Status.PARTIAL, StopReason.BUDGET, answer)


def thinker() -> ScriptedModel:
    return ScriptedModel({"facts": "FACTS", "conclusion": lambda request: request.messages[-1].content.upper()})


async def test_an_old_reply_does_not_answer_another_request(tmp_path: Path) -> None:
    """The refused step was granted, the next one asked anew with another prompt, and its process was killed."""
    config, topology = config_in(tmp_path), Plain(concludes)
    first = await romanesco.run(
        "g", model=thinker(), topology=topology, config=config, budget=Budget(tokens=1500), run="r"
    )
    assert (first.status, first.answer) == (Status.PARTIAL, "CONCLUDE FROM NO FACTS")
    again: dict[str, Any] = {"topologies": [topology], "config": config}
    await romanesco.resume("r", model=thinker(), budget=Budget(tokens=20_000), **again)
    starts = kinds(await events_of(config, "r"), "call.started")
    (_, anew) = [seq for seq, _, _, key, _ in starts if key == "conclusion"]
    killed_after(config, anew)
    model = thinker()
    outcome = await romanesco.resume("r", model=model, **again)
    assert (outcome.status, outcome.answer) == (Status.COMPLETED, "CONCLUDE FROM FACTS")
    assert [call.context.key for call in model.calls if call.context] == ["conclusion"]
    await verified(config)


async def test_a_reply_to_an_older_request_is_not_paid_for_twice(tmp_path: Path) -> None:
    """A limit that is lowered again brings the older request back."""
    config, topology, model = config_in(tmp_path), Plain(concludes), thinker()
    again: dict[str, Any] = {"topologies": [topology], "config": config, "model": model}
    await romanesco.run("g", model=model, topology=topology, config=config, budget=Budget(tokens=1500), run="r")
    await romanesco.resume("r", budget=Budget(tokens=20_000), **again)
    events = await events_of(config, "r")
    (granted,) = [seq for seq, kind, _, key, _ in events if (kind, key) == ("call.started", "facts")]
    (_, anew) = [seq for seq, kind, _, key, _ in events if (kind, key) == ("call.started", "conclusion")]
    assert granted < anew
    killed_after(config, granted - 1)  # as if the process had died before the facts were asked for
    asked = len(model.calls)
    outcome = await romanesco.resume("r", budget=Budget(tokens=1500), **again)
    assert outcome.answer == "CONCLUDE FROM NO FACTS"
    assert len(model.calls) == asked
    await verified(config)


def capped(seed: int) -> list[int | None]:
    """A first cap of calls, and then higher ones, or none for a plain resume."""
    chance = random.Random(seed)
    caps: list[int | None] = [chance.randint(16, 40)]
    for _ in range(chance.randint(2, 5)):
        highest = max(cap for cap in caps if cap is not None)
        caps.append(highest + chance.randint(1, 9) if chance.random() < 0.7 else None)
    return caps


@pytest.mark.parametrize("caps", [[24, None, None, 30], [24, 32, None, 34], *map(capped, range(10))], ids=str)
async def test_caps_and_resumes_in_any_order_never_diverge(caps: list[int | None]) -> None:
    store, model = MemoryStore(), ScriptedModel(auto=True)
    options: dict[str, Any] = {"model": model, "store": store, "embedder": NgramEmbedder()}
    for number, cap in enumerate(caps):
        budget = None if cap is None else Budget(calls=cap)
        if number == 0:
            outcome = await romanesco.run("Name three risks", params=ROUNDS, budget=budget, run="r", **options)
        else:
            outcome = await romanesco.resume("r", budget=budget, **options)
        assert outcome.answer
    asked = [(call.context.key, str(call.request.messages)) for call in model.calls if call.context]
    assert len(asked) == len(set(asked)), "no call is made twice"
    keys = [key for key, _ in asked if key != "wrap-up"]  # of what there is by then, in each session that is capped
    assert len(keys) == len(set(keys))


async def test_what_was_decided_before_a_refusal_was_granted_is_not_on_record_any_more(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    options: dict[str, Any] = {"model": ScriptedModel(auto=True), "config": config, "embedder": NgramEmbedder()}
    first = await romanesco.run("Name three risks", params=ROUNDS, budget=Budget(calls=24), run="r", **options)
    await romanesco.resume("r", budget=Budget(calls=200), **options)
    events = await events_of(config, "r")
    (resumed,) = [seq for seq, kind, *_ in events if kind == "run.resumed"]
    later = [seq for seq, kind, *_ in events if seq > resumed and kind == "call.finished"]
    killed_after(config, later[1])
    outcome = await romanesco.resume("r", **options)
    decisions = [data["decision"] for *_, data in kinds(await events_of(config, "r"), "fractal.decision")]
    assert first.deliberation is not None and outcome.deliberation is not None
    assert first.deliberation.decision is not None and first.deliberation.decision.by == "wrap-up"
    assert outcome.status is Status.COMPLETED
    told = to_json(outcome.deliberation.decision)
    assert {name: decisions[-1][name] for name in ("by", "chosen")} == {name: told[name] for name in ("by", "chosen")}
    assert (await romanesco.replay("r", **options)).answer == outcome.answer


@pytest.mark.parametrize("between", [[], ["accounts.changed"]], ids=["limits", "other accounts, then limits"])
def test_what_a_resume_changes_counts_before_it_forgets(between: list[str]) -> None:
    """The refusal was granted by the raise that came with the resume, and what was asked after it may be replaced."""
    started = {"fingerprint": "f", "asked": 3, "attempt": 1}
    refused = {"fingerprint": "a", "asked": 1, "error": BudgetExceeded.code}
    kinds = ["run.resumed", *between, "budget.changed", "run.tick"]
    events: list[FoldedEvent] = [
        (2, "step.failed", "/", "refused", refused),
        (4, "call.started", "/", "after", started),
        (5, "call.finished", "/", "after", {"attempt": 1}),
        *((seq, kind, "", "", {}) for seq, kind in enumerate(kinds, 6)),
    ]
    steps = memo_from(events)
    assert steps["/", "refused"].failure is None and steps["/", "after"].loose
