"""Verification finds what could not have happened in the order that a journal gives."""

from __future__ import annotations

import re

import pytest

from romanesco.journal import Event, make_event, verify
from romanesco.testing import MemoryStore
from tests.journal.verifying import BILL, HEAD, Step, as_it_is, audited, finished, script, started, violated, written


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("call.finished", "a", finished("proposal"))], "ends an attempt that is not in flight"),
        (
            [
                ("call.started", "a", started("proposal")),
                ("call.finished", "a", finished("proposal", attempt=2)),
            ],
            "ends an attempt that is not in flight",
        ),
        (
            [
                ("call.started", "a", started("proposal")),
                ("call.finished", "a", finished("proposal")),
                ("call.finished", "a", finished("proposal")),
            ],
            "event 5 .* not in flight",
        ),
        (
            [
                ("call.started", "a", started("proposal")),
                ("call.finished", "a", finished("proposal")),
                ("call.started", "a", started("proposal", 2)),
                ("call.finished", "a", finished("proposal", 2)),
            ],
            "event 5 starts a step that is finished",
        ),
        (
            [("call.started", "a", started("proposal")), ("call.started", "a", started("proposal"))],
            "event 4 starts an attempt that is in flight",
        ),
        (
            [
                ("call.started", "a", started("proposal")),
                ("run.resumed", "", {}),
                ("call.finished", "a", finished("proposal")),
            ],
            "event 5 .* not in flight",
        ),
        (
            [("step.finished", "now", {"result": 1}), ("step.finished", "now", {"result": 2})],
            "event 4 finishes a step that is finished",
        ),
    ],
)
async def test_an_illegal_order_of_calls_is_found(steps: list[Step], expected: str) -> None:
    found = await audited([*HEAD, *steps])
    detail = violated(found)["order of calls"]
    assert re.search(expected, detail), detail


async def test_a_second_beginning_and_events_after_the_end_are_found() -> None:
    store = MemoryStore()
    await written(store, [*HEAD, ("run.created", "", {})])
    assert "event 3 is run.created" in violated(await verify(store, "r"))["one beginning"]
    events = [*await store.read("r")]
    extra: list[Event] = []
    for kind in ("run.ended", "note"):
        last = [*events, *extra][-1]
        extra.append(
            make_event(run="r", seq=last.seq + 1, kind=kind, node="", key="", at=0.0, body="{}", prev=last.hash)
        )
    await store.append(extra, {})
    assert "event 5 (note) follows run.ended" in violated(await verify(store, "r"))["one end"]


async def test_a_run_has_one_plan_and_has_it_before_it_does_anything() -> None:
    steps = script()
    plan, rest = steps[1], steps[2:]
    bigger: Step = ("run.planned", "", {"plan": {"bill": {**BILL, "lines": [{**BILL["lines"][0], "calls": 99}]}}})  # type: ignore[index]
    assert "event 3 is a second plan" in violated(await audited([*steps[:2], bigger, *rest]))["one plan"]
    late = violated(await audited([steps[0], *rest[:-1], plan, rest[-1]]))
    assert "event 2 (call.started) comes before any plan" in late["one plan"]
    never = violated(await audited([steps[0], *rest[:-1]]))
    assert "event 2 (call.started) comes before any plan" in never["one plan"]
    store = MemoryStore()
    await as_it_is(store, steps[:2], node="/x")
    assert "under another node, /x" in violated(await verify(store, "r"))["one plan"]
