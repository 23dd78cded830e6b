"""Verification holds the calls of a run against the bill that was printed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journal.verifying import (
    BILL,
    HEAD,
    Step,
    audited,
    finished,
    killed_and_sent_again,
    raised,
    started,
    violated,
)


async def test_a_bill_carries_calls_in_doubt_once_more() -> None:
    assert "line 'retry'" in violated(await audited(killed_and_sent_again()))["bill"]
    assert "bill" not in violated(await audited(killed_and_sent_again(raised())))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"calls": 2}, "calls 2 added, 1 in doubt"),
        ({"tokens_in": 201}, "tokens_in 201 added, 200 in doubt"),
        ({"tokens_out": 900}, "tokens_out 900 added, 200 in doubt"),
        ({"usd": "0.03"}, "usd 0.03 added, 0.02 in doubt"),
        ({"usd": None}, "usd unknown, 0.02 in doubt"),
        ({"calls": "many"}, "usable number"),
    ],
)
async def test_a_bill_that_was_raised_by_more_than_was_in_doubt(more: dict[str, Any], words: str) -> None:
    assert words in " ".join(violated(await audited(killed_and_sent_again(raised(**more)))).values())


async def test_a_bill_that_was_raised_twice_for_one_doubt() -> None:
    assert "calls 2 added, 1 in doubt" in violated(await audited(killed_and_sent_again(raised(), raised())))["bill"]


async def test_a_second_plan_carries_no_more_calls() -> None:
    """The bill that calls are compared with is the first one, which was printed."""
    bigger: Step = ("run.planned", "", {"plan": {"bill": {"lines": [{**BILL["lines"][0], "calls": 99}]}}})  # type: ignore[index]
    calls: list[Step] = []
    for index in range(5):
        calls += [
            ("call.started", str(index), started("proposal")),
            ("call.finished", str(index), finished("proposal")),
        ]
    assert {"one plan", "bill"} <= violated(await audited([*HEAD, bigger, *calls])).keys()


@pytest.mark.parametrize("calls", ["9999", 1e308, -1, True, None])
async def test_a_bill_with_a_number_that_is_none_is_found(calls: Any) -> None:
    lines = [{**BILL["lines"][0], "calls": calls}]  # type: ignore[index]
    found = await audited([HEAD[0], ("run.planned", "", {"plan": {"bill": {"lines": lines}}})])
    assert violated(found) == {"bill": "the plan has no readable bill"}


async def test_a_bill_that_was_not_kept_is_found() -> None:
    def calls(count: int, line: str, tokens: int = 100) -> list[Step]:
        steps: list[Step] = []
        for index in range(count):
            data = finished(line)
            data["usage"]["input"] = tokens
            key = f"{line}{index}"
            steps += [("call.started", key, started(line)), ("call.finished", key, data)]
        return steps

    assert (await audited([*HEAD, *calls(3, "proposal"), *calls(1, "retry")])).ok
    more = violated(await audited([*HEAD, *calls(4, "proposal")]))
    assert more["bill"].startswith("line 'proposal': calls 4 spent, 3 on the bill")
    dear = violated(await audited([*HEAD, *calls(1, "retry", 201)]))
    assert dear["bill"] == "line 'retry': tokens_in 201 spent, 200 on the bill"
    unknown = violated(await audited([*HEAD, *calls(1, "surprise")]))
    assert "line 'surprise': calls 1 spent, 0 on the bill" in unknown["bill"]
    whole = violated(await audited([*HEAD, *calls(3, "proposal", 300), *calls(1, "retry")]))
    assert "2 faults in all" in whole["bill"]
    for broken in ({}, {"bill": None}, {"bill": {"lines": [{"purpose": "x"}]}}, None):
        steps: list[Step] = [HEAD[0], ("run.planned", "", {"plan": broken})]
        assert violated(await audited(steps))["bill"] == "the plan has no readable bill"
