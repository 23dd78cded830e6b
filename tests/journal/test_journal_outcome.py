"""Verification holds the outcome that a run gives against its events."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from romanesco.journal import verify
from romanesco.testing import MemoryStore
from tests.journal.verifying import (
    BILL,
    HEAD,
    ONE,
    SPEND,
    Step,
    as_it_is,
    audited,
    finished,
    killed_and_sent_again,
    outcome_of,
    raised,
    script,
    started,
    verdicts,
    violated,
)


def forged(change: Callable[[dict[str, Any]], object]) -> list[Step]:
    """The script with another outcome in its end."""
    steps = script()
    kind, key, data = steps[-1]
    data = copy.deepcopy({**data, "reason": "completed"})
    data["outcome"] = copy.deepcopy(outcome_of(data, steps))
    change(data)
    return [*steps[:-1], (kind, key, data)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["outcome"]["spend"].update(calls=0), "its outcome says spend {"),
        (lambda data: data["outcome"].update(status="failed"), "says status failed, itself completed"),
        (lambda data: data.update(status="failed"), "says status completed, itself failed"),
        (lambda data: data["outcome"].update(reason="budget"), "says reason budget, itself completed"),
        (lambda data: data["outcome"]["lines"][0].update(calls=0), "says 0 calls, 400 + 300 tokens, usd 0.04 of line"),
        (lambda data: data["outcome"]["lines"][1].update(usd="0"), "of line 'retry', its calls give 1 calls"),
        (lambda data: data["outcome"]["lines"][1].update(usd=None), "usd None of line 'retry'"),
        (lambda data: data["outcome"]["lines"].pop(), "says 0 calls, 0 + 0 tokens, usd 0 of line 'retry'"),
        (lambda data: data["outcome"]["lines"][0].update(purpose="x"), "of line 'proposal', its calls give 3 calls"),
        (lambda data: data["outcome"].update(lines="none"), "of the bill's lines can't be read"),
        (
            lambda data: data["outcome"]["bill"]["lines"][0].update(calls=9),
            "has 9 calls, 600 + 600 tokens, usd 0.06 on",
        ),
        (lambda data: data["outcome"]["bill"]["lines"].pop(), "has nothing on line 'retry', the plan's has 1 calls"),
        (lambda data: data["outcome"]["bill"].update(nodes=7), "has 7 nodes, the plan's 1"),
        (lambda data: data["outcome"].update(bill=None), "has nothing on line 'proposal'"),
        (lambda data: data["outcome"].update(bill=[]), "the bill in its outcome can't be read"),
        (lambda data: data.pop("outcome"), "has no outcome"),
    ],
)
async def test_an_outcome_that_says_other_than_its_run_is_found(
    change: Callable[[dict[str, Any]], object], words: str
) -> None:
    assert (await audited(forged(lambda data: None))).ok
    store = MemoryStore()
    await as_it_is(store, forged(change))
    found = violated(await verify(store, "r"))
    assert list(found) == ["outcome"]
    assert words in found["outcome"]


async def test_the_bill_of_an_outcome_is_the_one_that_was_raised() -> None:
    steps = killed_and_sent_again(raised())
    spend = {**SPEND, "calls": 5, "tokens_in": 700, "tokens_out": 550, "usd": "0.07", "cached": 4, "reasoning": 8}
    data = {"spend": {**spend, "in_doubt": 1}}
    outcome = outcome_of(data, steps)
    more = copy.deepcopy(outcome)
    more["bill"]["lines"][1].update(calls=2, tokens_in=400, tokens_out=400, usd="0.04")
    true: Step = ("run.ended", "", {**data, "outcome": more})
    assert (await audited([*steps, true])).ok
    as_planned: Step = ("run.ended", "", {**data, "outcome": outcome})
    assert "the plan's has 2 calls" in violated(await audited([*steps, as_planned]))["outcome"]


async def test_a_plan_without_a_bill_is_legal_and_its_outcome_has_none() -> None:
    planned: Step = ("run.planned", "", {"plan": {"bill": {"lines": [], "nodes": 1}}})
    steps = [HEAD[0], planned, ("call.started", "a", started("x")), ("call.finished", "a", finished("x"))]
    data: dict[str, Any] = {"spend": ONE, "outcome": {"spend": ONE, "lines": [], "bill": {"lines": [], "nodes": 1}}}
    found = await audited([*steps, ("run.ended", "", data)])
    assert found.ok
    assert verdicts(found)["bill"] == "not applicable"
    data["outcome"] = {**data["outcome"], "bill": BILL}  # as where a bill was taken out of the plan
    assert "the plan's has nothing" in violated(await audited([*steps, ("run.ended", "", data)]))["outcome"]
