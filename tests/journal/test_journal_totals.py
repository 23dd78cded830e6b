"""Verification adds up what calls used, and holds what the end of a run says against it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.journal.verifying import BILL, HEAD, ONE, Step, audited, ended, finished, script, started, usage, violated


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"calls": 0}, "says calls 0, its calls give 1"),
        ({"tokens_in": 99}, "says tokens_in 99, its calls give 100"),
        ({"tokens_out": "50"}, "tokens_out"),
        ({"usd": "0.011"}, "says usd 0.011, its calls give 0.01"),
        ({"usd": None}, "says usd None"),
        ({"usd": "cheap"}, "says usd cheap"),
        ({"cached": 7}, "cached"),
        ({"reasoning": 0}, "reasoning"),
        ({"calls": 1.0}, "says calls 1.0, its calls give 1"),
        ({"in_doubt": 7}, "says in_doubt 7, its calls give 0"),
    ],
)
async def test_wrong_totals_are_found(change: dict[str, Any], expected: str) -> None:
    call: list[Step] = [
        ("call.started", "a", started("proposal")),
        ("call.finished", "a", finished("proposal")),
    ]
    assert (await audited([*HEAD, *call, ended(ONE)])).ok
    found = await audited([*HEAD, *call, ended({**ONE, **change})])
    assert expected in violated(found)["totals"]
    assert "gives no totals" in violated(await audited([*HEAD, *call, ended(None)]))["totals"]


@pytest.mark.parametrize("wrong", [{"input": -5}, {"input": None}, {"output": 1.5}, {"output": True}])
async def test_numbers_that_no_call_can_have_are_found(wrong: dict[str, Any]) -> None:
    data = finished("proposal")
    data["usage"].update(wrong)
    found = await audited([*HEAD, ("call.started", "a", started("proposal")), ("call.finished", "a", data)])
    assert "no usable number of tokens" in violated(found)["totals"]


@pytest.mark.parametrize("usd", ["NaN", "1e999999999", "Infinity", "-1"])
async def test_amounts_that_can_not_be_counted_with_are_found(usd: str) -> None:
    steps = script()
    for kind, _, data in steps:
        if kind == "run.planned":
            data["plan"] = {"bill": {"lines": [{**BILL["lines"][0], "usd": usd}]}}  # type: ignore[index]
        elif kind == "call.finished":
            data.update(usd=usd, usage=usage(10**4000, 1))
        elif kind == "run.ended":
            data["outcome"] = {}
    assert {"totals", "bill"} <= violated(await audited(steps)).keys()


async def test_an_unknown_price_is_unknown_and_not_zero() -> None:
    steps: list[Step] = [
        ("call.started", "a", started("proposal", usd=None)),
        ("call.finished", "a", finished("proposal", usd=None)),
        ended({**ONE, "usd": None}),
    ]
    found = await audited([*HEAD, *steps])
    assert found.totals.usd is None
    assert "usd unknown, 0.06 on the bill" in violated(found)["bill"]
    priceless = copy.deepcopy(BILL)
    for line in priceless["lines"]:  # type: ignore[attr-defined]
        line["usd"] = None
    planned: Step = ("run.planned", "", {"plan": {"bill": priceless}})
    assert (await audited([HEAD[0], planned, *steps])).ok


async def test_a_lost_attempt_counts_as_a_call_and_its_cost_at_what_was_reserved() -> None:
    steps: list[Step] = [
        ("call.started", "a", started("proposal")),
        ("run.resumed", "", {}),
        ("call.started", "a", started("proposal", 2)),
        ("call.finished", "a", finished("proposal", 2)),
    ]
    spend = {**ONE, "calls": 2, "tokens_in": 300, "tokens_out": 250, "usd": "0.03", "estimated": True, "in_doubt": 1}
    found = await audited([*HEAD, *steps, ended(spend)])
    assert found.ok, found.findings
    assert (found.totals.calls, found.totals.unknown, found.totals.estimated) == (2, 1, True)
    not_marked = await audited([*HEAD, *steps, ended({**spend, "estimated": False})])
    assert "does not say that its tokens are partly estimated" in violated(not_marked)["totals"]
    noted: Step = ("call.failed", "a", {"attempt": 1, "error": "interrupted", "usage": usage(0, 0), "usd": "0"})
    later = await audited([*HEAD, *steps[:2], noted, *steps[2:]])
    assert later.ok, "a later session may note what became of it"
    assert (later.totals.tokens_in, later.totals.unknown) == (100, 0)


async def test_a_failure_without_usage_counts_what_was_reserved() -> None:
    steps: list[Step] = [
        ("call.started", "a", started("proposal")),
        ("call.failed", "a", {"attempt": 1, "error": "server-fault"}),
    ]
    found = await audited([*HEAD, *steps])
    assert (found.totals.tokens_in, found.totals.unknown, found.totals.estimated) == (200, 1, True)
