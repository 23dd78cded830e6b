"""Verification looks at each start against the limits that were in force then."""

from __future__ import annotations

from typing import Any

import pytest

from romanesco.journal import Journal, Verdict, verify
from romanesco.testing import MemoryStore

Step = tuple[str, str, dict[str, Any]]


def created(budget: dict[str, Any], roles: dict[str, Any] | None = None) -> Step:
    return "run.created", "", {"spec": {"budget": budget, "role_limits": roles or {}}}


def started(key: str, *, role: str = "proposer", tokens: int = 100) -> Step:
    reserved = {"tokens_in": tokens, "tokens_out": tokens, "usd": "0.01"}
    data = {"line": "proposal", "role": role, "fingerprint": key, "attempt": 1, "reserved": reserved}
    return "call.started", key, data


def finished(key: str, tokens: int = 10) -> Step:
    usage = {"input": tokens, "output": tokens}
    return "call.finished", key, {"line": "proposal", "attempt": 1, "usage": usage, "usd": "0.001"}


def failed(key: str, **more: Any) -> Step:
    usage = {"input": 0, "output": 0}
    return "call.failed", key, {"line": "proposal", "attempt": 1, "usage": usage, "usd": "0", **more}


def changed(dimension: str, value: Any) -> Step:
    return "budget.changed", "", {"dimension": dimension, "value": value}


def opened(key: str) -> Step:
    return "node.opened", key, {}


HELD: dict[str, list[Step]] = {
    "what came back is free again": [
        created({"tokens": 220}),
        started("a"),
        finished("a"),
        started("b"),
        finished("b"),
    ],
    "a raise holds from its place on": [
        created({"calls": 1}),
        started("a"),
        changed("calls", 2),
        started("b"),
    ],
    "a limit that is taken away": [created({"calls": 1}), started("a"), changed("calls", None), started("b")],
    "lowered below what is spent, and nothing more is started": [
        created({"tokens": 220}),
        started("a"),
        changed("tokens", 5),
        finished("a"),
    ],
    "what was never sent is no call": [
        created({"calls": 1}),
        started("a"),
        failed("a", sent=False),
        started("b"),
    ],
    "another role's limit": [created({}, {"evaluator": {"calls": 0}}), started("a")],
    "nodes": [created({"nodes": 2}), opened("x")],
    "a node that a resume opens again": [created({"nodes": 2}), opened("x"), opened("x")],
    "no node, and nothing is done": [created({"nodes": 0})],
}

VIOLATED: dict[str, tuple[str, list[Step]]] = {
    "in flight counts with its bound": (
        "event 3 (call.started) came to 400 tokens of the run, the limit was 399",
        [created({"tokens": 399}), started("a"), started("b")],
    ),
    "one call too many": ("2 calls of the run", [created({"calls": 1}), started("a"), failed("a"), started("b")]),
    "money": ("0.02 usd of the run", [created({"usd": "0.019"}), started("a"), started("b")]),
    "tokens read": ("200 tokens_in of the run", [created({"tokens_in": 150}), started("a"), started("b")]),
    "tokens written": ("200 tokens_out of the run", [created({"tokens_out": 150}), started("a"), started("b")]),
    "zero means zero": ("the limit was 0", [created({"calls": 0}), started("a")]),
    "started after it was lowered": (
        "event 4",
        [created({"calls": 5}), started("a"), changed("calls", 1), started("b")],
    ),
    "a limit that came later": ("event 4", [created({}), started("a"), changed("calls", 1), started("b")]),
    "a server that cost more than was reserved": (
        "event 3 (call.finished) came to 600 tokens",
        [created({"tokens": 500}), started("a"), finished("a", 300)],
    ),
    "a role's limit": (
        "2 calls of role evaluator, the limit was 1",
        [created({}, {"evaluator": {"calls": 1}}), started("a", role="evaluator"), started("b", role="evaluator")],
    ),
    "the root is a node": ("1 nodes of the run, the limit was 0", [created({"nodes": 0}), started("a")]),
    "nodes": ("3 nodes of the run, the limit was 2", [created({"nodes": 2}), opened("x"), opened("y")]),
}


async def limits_of(steps: list[Step]) -> tuple[Verdict, str]:
    store = MemoryStore()
    async with await Journal.create(store, "r", clock=lambda: 1000.0) as journal:
        for kind, key, data in steps:
            node, key = (f"/{key}", kind) if kind == "node.opened" else ("/", key)
            journal.append_nowait(kind, node=node, key=key, data=data)
    found = await verify(store, "r")
    (finding,) = [finding for finding in found.findings if finding.property == "limits"]
    return finding.verdict, finding.detail


@pytest.mark.parametrize("name", HELD)
async def test_limits_that_were_kept(name: str) -> None:
    assert (await limits_of(HELD[name]))[0] is Verdict.HELD


@pytest.mark.parametrize("name", VIOLATED)
async def test_limits_that_were_passed(name: str) -> None:
    words, steps = VIOLATED[name]
    verdict, detail = await limits_of(steps)
    assert verdict is Verdict.VIOLATED
    assert words in detail


async def test_a_run_without_limits() -> None:
    verdict, detail = await limits_of([created({}), started("a")])
    assert (verdict, detail) == (Verdict.NOT_APPLICABLE, "the run has no limits")
