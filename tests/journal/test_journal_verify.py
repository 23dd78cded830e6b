"""Verification finds every kind of edit, with code of its own."""

from __future__ import annotations

import ast
import copy
import re
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from romanesco.errors import UnknownName
from romanesco.journal import (
    GENESIS,
    Certificate,
    Event,
    Journal,
    SQLiteStore,
    Store,
    Verdict,
    Verification,
    make_event,
    verify,
)
from romanesco.testing._store import MemoryStore

ROOM = Path(__file__).parents[2] / "src" / "romanesco"


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


async def test_a_true_journal_is_held_in_all_properties() -> None:
    steps = script()
    steps[0][2]["spec"]["budget"] = {"tokens": 1600, "calls": 4, "usd": "0.06"}
    found = await audited(steps)
    assert set(verdicts(found).values()) == {"held"}, found.findings
    assert found.ok
    assert found.seq == 13
    totals = found.totals
    assert (totals.calls, totals.tokens_in, totals.tokens_out) == (4, 500, 350)
    assert totals.usd == Decimal("0.05")
    assert totals.estimated
    assert totals.unknown == 0


def raised(**more: Any) -> Step:
    usual = {"purpose": "retry", "calls": 1, "tokens_in": 200, "tokens_out": 200, "usd": "0.02"}
    return "bill.raised", "", {**usual, **more}


def killed_and_sent_again(*raises: Step) -> list[Step]:
    """One retry more than the bill carries, for a call that was in doubt."""
    again = [("call.started", "b", started("retry", 3)), ("call.finished", "b", finished("retry", 3))]
    return [*script()[:-3], ("run.resumed", "", {}), *raises, *again]


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


async def test_what_does_not_apply_is_said() -> None:
    store = MemoryStore()
    await written(store, script()[:1])
    found = await verify(store, "r")
    assert {name for name, verdict in verdicts(found).items() if verdict == "not applicable"} == {
        "certificate",
        "one plan",
        "totals",
        "outcome",
        "bill",
        "limits",
    }
    assert found.ok
    with pytest.raises(UnknownName, match="no run of that id"):
        await verify(store, "unknown")


Edit = Callable[[sqlite3.Connection], object]


def rewrite(connection: sqlite3.Connection, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Edit the run and compute all hashes anew, as a forger with our code would."""
    names = list(Event.__slots__)
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute("SELECT * FROM events ORDER BY seq")]
    change(rows)
    connection.execute("DELETE FROM events")
    prev = GENESIS
    for seq, row in enumerate(rows, 1):
        row.update(seq=seq, prev=prev)
        del row["hash"]
        event = make_event(**row)
        prev = event.hash
        values = [getattr(event, name) for name in names]
        connection.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", values)


def cheaper(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for name, old, new in (
            ("input", 100, 90),
            ("tokens_in", 500, 470),
            ("tokens_in", 400, 380),
            ("tokens_in", 100, 90),
        ):
            row["body"] = row["body"].replace(f'"{name}":{old},', f'"{name}":{new},')


def shorter(rows: list[dict[str, Any]]) -> None:
    del rows[9]


SWAP = "UPDATE events SET seq = CASE seq WHEN 6 THEN -7 ELSE -6 END WHERE seq IN (6, 7)"
INSERT = "INSERT INTO events SELECT run, 14, 'note', node, key, at, body, hash, hash FROM events WHERE seq = 13"
SPARE = "INSERT INTO events SELECT run, 0, kind, node, key, at, body, prev, hash FROM events WHERE seq = 2"
MARK = "SELECT digest FROM blobs ORDER BY digest LIMIT 1"

EDITS: dict[str, tuple[Edit, str]] = {
    "body": (lambda c: c.execute("UPDATE events SET body = replace(body, '100', '99') WHERE seq = 6"), "hashes"),
    "time": (lambda c: c.execute("UPDATE events SET at = at + 1 WHERE seq = 6"), "hashes"),
    "kind": (lambda c: c.execute("UPDATE events SET kind = 'note' WHERE seq = 10"), "hashes"),
    "node": (lambda c: c.execute("UPDATE events SET node = '/x' WHERE seq = 10"), "hashes"),
    "key": (lambda c: c.execute("UPDATE events SET key = 'x' WHERE seq = 10"), "hashes"),
    "hash": (lambda c: c.execute("UPDATE events SET hash = ? WHERE seq = 10", ("a" * 64,)), "hashes"),
    "prev": (lambda c: c.execute("UPDATE events SET prev = ? WHERE seq = 10", ("a" * 64,)), "chain"),
    "moved": (lambda c: c.execute("UPDATE events SET run = 'other' WHERE seq = 10"), "sequence"),
    "deleted": (lambda c: c.execute("DELETE FROM events WHERE seq = 6"), "sequence"),
    "first deleted": (lambda c: c.execute("DELETE FROM events WHERE seq = 1"), "one beginning"),
    "inserted": (lambda c: c.execute(INSERT), "hashes"),
    "inserted before": (lambda c: c.execute(SPARE), "sequence"),
    "swapped": (lambda c: (c.execute(SWAP), c.execute("UPDATE events SET seq = -seq WHERE seq < 0")), "hashes"),
    "cut": (lambda c: c.execute("DELETE FROM events WHERE seq > 11"), "certificate"),
    "emptied": (lambda c: c.execute("DELETE FROM events"), "certificate"),
    "rewritten": (lambda c: rewrite(c, cheaper), "certificate"),
    "rewritten shorter": (lambda c: rewrite(c, shorter), "certificate"),
    "no JSON": (lambda c: rewrite(c, lambda rows: rows[9].update(body="{oops")), "readable"),
    "no object": (lambda c: rewrite(c, lambda rows: rows[9].update(body="[]")), "readable"),
    "no text": (lambda c: c.execute("UPDATE events SET body = x'ff' WHERE seq = 10"), "readable"),
    "no UTF-8": (lambda c: c.execute("UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE seq = 10"), "readable"),
    "payload": (lambda c: c.execute(f"UPDATE blobs SET data = x'5b5d' WHERE digest = ({MARK})"), "payloads"),
    "payload type": (lambda c: c.execute(f"UPDATE blobs SET data = 'text' WHERE digest = ({MARK})"), "payloads"),
    "payload gone": (lambda c: c.execute(f"DELETE FROM blobs WHERE digest = ({MARK})"), "payloads"),
}


@pytest.mark.parametrize("name", EDITS)
async def test_every_kind_of_edit_is_found(name: str, tmp_path: Path) -> None:
    edit, expected = EDITS[name]
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        certificate = await written(store, script())
        assert (await verify(store, "r", certificate=certificate)).ok
        connection = sqlite3.connect(path)
        edit(connection)
        connection.commit()
        connection.close()
        found = await verify(store, "r", certificate=certificate)
        assert not found.ok
        assert expected in violated(found), found.findings


async def test_what_is_before_the_damage_is_still_checked(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        await written(store, script())
        connection = sqlite3.connect(path)
        connection.execute("UPDATE events SET at = at + 1 WHERE seq = 4")
        connection.execute("UPDATE events SET seq = '9x' WHERE seq = 9")
        connection.commit()
        connection.close()
        found = await verify(store, "r")
    assert found.seq == 13 and {"readable", "hashes", "sequence", "chain"} <= violated(found).keys()
    assert "'9x' of run 'r': seq of a wrong type" in violated(found)["readable"]
    assert "Nothing after event 13 was read" in violated(found)["readable"]


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


async def test_a_rewritten_chain_is_consistent_without_the_certificate(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        await written(store, script())
        connection = sqlite3.connect(path)
        rewrite(connection, cheaper)
        connection.commit()
        connection.close()
        found = await verify(store, "r")
        assert found.ok, "this is why certificates are kept elsewhere"
        assert found.totals.tokens_in == 470
        assert verdicts(found)["certificate"] == "not applicable"


async def test_a_certificate_of_an_earlier_head_is_a_prefix() -> None:
    store = MemoryStore()
    certificate = await written(store, script())
    async with await Journal.open(store, "r") as journal:
        journal.append_nowait("run.resumed")
        again = {"spend": script()[-1][2]["spend"]}
        journal.append_nowait("run.ended", data={**again, "outcome": outcome_of(again, script())})
    found = await verify(store, "r", certificate=certificate)
    assert found.ok
    assert any("2 events were added since" in item.detail for item in found.findings)
    for wrong in (
        Certificate("r", 13, "0" * 64, 0.0),
        Certificate("r", 12, certificate.head, 0.0),
        Certificate("r", 16, certificate.head, 0.0),
        Certificate("other", 13, certificate.head, 0.0),
        Certificate("r", 13, certificate.head, 0.0, {"calls": 1}),
    ):
        assert list(violated(await verify(store, "r", certificate=wrong))) == ["certificate"]


def ended(spend: dict[str, Any] | None) -> Step:
    return ("run.ended", "", {"spend": spend})


HEAD = script()[:2]
ONE = {"calls": 1, "tokens_in": 100, "tokens_out": 50, "usd": "0.01", "cached": 1, "reasoning": 2}


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


async def as_it_is(store: Store, steps: list[Step], node: str = "") -> None:
    """The steps with nothing added; their plans under a node."""
    async with await Journal.create(store, "r", clock=lambda: 1000.0) as journal:
        for kind, key, data in steps:
            place = node if kind == "run.planned" else "" if kind.startswith("run.") else "/"
            journal.append_nowait(kind, node=place, key=key, data=data)


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


async def test_a_plan_without_a_bill_is_legal_and_its_outcome_has_none() -> None:
    planned: Step = ("run.planned", "", {"plan": {"bill": {"lines": [], "nodes": 1}}})
    steps = [HEAD[0], planned, ("call.started", "a", started("x")), ("call.finished", "a", finished("x"))]
    data: dict[str, Any] = {"spend": ONE, "outcome": {"spend": ONE, "lines": [], "bill": {"lines": [], "nodes": 1}}}
    found = await audited([*steps, ("run.ended", "", data)])
    assert found.ok
    assert verdicts(found)["bill"] == "not applicable"
    data["outcome"] = {**data["outcome"], "bill": BILL}  # as where a bill was taken out of the plan
    assert "the plan's has nothing" in violated(await audited([*steps, ("run.ended", "", data)]))["outcome"]


@pytest.mark.parametrize("calls", ["9999", 1e308, -1, True, None])
async def test_a_bill_with_a_number_that_is_none_is_found(calls: Any) -> None:
    lines = [{**BILL["lines"][0], "calls": calls}]  # type: ignore[index]
    found = await audited([HEAD[0], ("run.planned", "", {"plan": {"bill": {"lines": lines}}})])
    assert violated(found) == {"bill": "the plan has no readable bill"}


@pytest.mark.parametrize("wrong", [{"input": -5}, {"input": None}, {"output": 1.5}, {"output": True}])
async def test_numbers_that_no_call_can_have_are_found(wrong: dict[str, Any]) -> None:
    data = finished("proposal")
    data["usage"].update(wrong)
    found = await audited([*HEAD, ("call.started", "a", started("proposal")), ("call.finished", "a", data)])
    assert "no usable number of tokens" in violated(found)["totals"]


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


def imports_of(module: str) -> set[str]:
    path = ROOM.joinpath(*module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("romanesco")
    }


def test_verification_shares_no_code_with_what_it_verifies() -> None:
    reached: set[str] = set()
    waiting = {"romanesco.journal._verify"}
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= imports_of(module) - reached
    rooms = {module.split(".")[1] for module in reached}
    assert not rooms & {"runtime", "budget", "topologies", "selection", "interfaces", "guards"}
    assert {module for module in reached if module.startswith("romanesco.journal.")} == {
        "romanesco.journal._audit",
        "romanesco.journal._certificate",
        "romanesco.journal._ends",
        "romanesco.journal._event",
        "romanesco.journal._figures",
        "romanesco.journal._limits",
        "romanesco.journal._store",
        "romanesco.journal._verify",
    }
    for name in ("_verify", "_audit", "_ends", "_figures", "_limits"):
        text = (ROOM / "journal" / f"{name}.py").read_text(encoding="utf-8")
        for shared in ("event_hash", "canonical", "make_event"):
            assert shared not in text
