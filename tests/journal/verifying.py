"""Runs written by hand for the tests of verification, and what verification found in them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from romanesco.journal import Certificate, Journal, Store, Verdict, Verification, verify
from romanesco.testing import MemoryStore


def usage(tokens_in: int, tokens_out: int, *, estimated: bool = False) -> dict[str, Any]:
    return {"input": tokens_in, "output": tokens_out, "cached": 1, "reasoning": 2, "estimated": estimated}


def started(line: str, attempt: int = 1, *, tokens: int = 200, usd: str | None = "0.02") -> dict[str, Any]:
    return {
        "line": line,
        "member": "sceptic",
        "model": "scripted:a",
        "fingerprint": "f" * 64,
        "attempt": attempt,
        "request": {"messages": [{"role": "user", "content": "word " * 300}]},
        "reserved": {"tokens_in": tokens, "tokens_out": tokens, "usd": usd},
    }


def finished(line: str, attempt: int = 1, *, usd: str | None = "0.01") -> dict[str, Any]:
    return {"attempt": attempt, "line": line, "usage": usage(100, 50), "usd": usd, "reply": {"text": "x" * 2000}}


BILL = {
    "lines": [
        {"purpose": "proposal", "calls": 3, "tokens_in": 600, "tokens_out": 600, "usd": "0.06"},
        {"purpose": "retry", "calls": 1, "tokens_in": 200, "tokens_out": 200, "usd": "0.02"},
    ],
    "nodes": 1,
}


SPEND = {
    "calls": 4,
    "tokens_in": 500,
    "tokens_out": 350,
    "usd": "0.05",
    "seconds": 1.5,
    "estimated": True,
    "cached": 3,
    "reasoning": 6,
}


Step = tuple[str, str, dict[str, Any]]


def script() -> list[Step]:
    """Three proposals at once; the second fails with an unknown usage and is repeated."""
    failed = {"attempt": 1, "error": "connection-cut", "message": "m", "usage": usage(200, 200, estimated=True)}
    return [
        ("run.created", "", {"spec": {"goal": "g"}}),
        ("run.planned", "", {"plan": {"topology": "t", "bill": BILL}}),
        ("call.started", "a", started("proposal")),
        ("call.started", "b", started("proposal")),
        ("call.started", "c", started("proposal")),
        ("call.finished", "c", finished("proposal")),
        ("call.failed", "b", {**failed, "usd": "0.02", "retry_in": 0.5}),
        ("call.finished", "a", finished("proposal")),
        ("call.started", "b", started("retry", 2)),
        ("fractal.switched", "round/2", {"mode": "confer"}),
        ("call.finished", "b", finished("retry", 2)),
        ("step.finished", "now", {"fingerprint": "", "result": 1.0}),
        ("run.ended", "", {"status": "completed", "spend": {**SPEND, "cached": 4, "reasoning": 8}}),
    ]


def outcome_of(data: dict[str, Any], steps: list[Step]) -> dict[str, Any]:
    """The outcome that a true run.ended carries after these steps, with the lines that it came to."""
    plans: list[Any] = [given["plan"]["bill"] for kind, _, given in steps if kind == "run.planned"]
    planned = plans[0] if plans else None
    lines: dict[str, dict[str, Any]] = {}
    lost: dict[tuple[str, int], dict[str, Any]] = {}
    for kind, key, given in steps:
        if kind == "call.started":
            lost[key, given["attempt"]] = given
        elif kind == "call.finished" or kind == "call.failed":
            begun = lost.pop((key, given["attempt"]))
            usage = given.get("usage") or {"input": 0, "output": 0}
            _spend_on(lines, begun["line"], usage["input"], usage["output"], given["usd"])
    for begun in lost.values():
        reserved = begun["reserved"]
        _spend_on(lines, begun["line"], reserved["tokens_in"], reserved["tokens_out"], reserved["usd"])
    said = {name: data.get(name) for name in ("status", "reason", "spend")}
    return {**said, "bill": planned, "lines": [{"purpose": name, **line} for name, line in lines.items()]}


def _spend_on(lines: dict[str, dict[str, Any]], name: str, tokens_in: int, tokens_out: int, usd: str | None) -> None:
    line = lines.setdefault(name, {"calls": 0, "tokens_in": 0, "tokens_out": 0, "usd": "0"})
    line["calls"] += 1
    line["tokens_in"] += tokens_in
    line["tokens_out"] += tokens_out
    line["usd"] = None if usd is None else str(Decimal(line["usd"]) + Decimal(usd))


async def written(store: Store, steps: list[Step], run: str = "r") -> Certificate:
    async with await Journal.create(store, run, clock=lambda: 1000.0) as journal:
        for index, (kind, key, data) in enumerate(steps):
            if kind == "run.ended" and "outcome" not in data:
                data = {**data, "outcome": outcome_of(data, steps[:index])}
            node = "" if kind.startswith("run.") else "/"
            journal.append_nowait(kind, node=node, key=key, data=data)
        spend = steps[-1][2].get("spend", {})
        return Certificate(run, journal.seq, journal.head, 1000.0, spend, "0.1.0")


def violated(found: Verification) -> dict[str, str]:
    return {item.property: item.detail for item in found.findings if item.verdict is Verdict.VIOLATED}


def verdicts(found: Verification) -> dict[str, str]:
    return {item.property: item.verdict.value for item in found.findings}


async def audited(steps: list[Step]) -> Verification:
    store = MemoryStore()
    certificate = await written(store, steps)
    return await verify(store, "r", certificate=certificate)


def raised(**more: Any) -> Step:
    usual = {"purpose": "retry", "calls": 1, "tokens_in": 200, "tokens_out": 200, "usd": "0.02"}
    return "bill.raised", "", {**usual, **more}


def killed_and_sent_again(*raises: Step) -> list[Step]:
    """One retry more than the bill carries, for a call that was in doubt."""
    again = [("call.started", "b", started("retry", 3)), ("call.finished", "b", finished("retry", 3))]
    return [*script()[:-3], ("run.resumed", "", {}), *raises, *again]


def ended(spend: dict[str, Any] | None) -> Step:
    return ("run.ended", "", {"spend": spend})


HEAD = script()[:2]


ONE = {"calls": 1, "tokens_in": 100, "tokens_out": 50, "usd": "0.01", "cached": 1, "reasoning": 2}


async def as_it_is(store: Store, steps: list[Step], node: str = "") -> None:
    """The steps with nothing added; their plans under a node."""
    async with await Journal.create(store, "r", clock=lambda: 1000.0) as journal:
        for kind, key, data in steps:
            place = node if kind == "run.planned" else "" if kind.startswith("run.") else "/"
            journal.append_nowait(kind, node=place, key=key, data=data)
