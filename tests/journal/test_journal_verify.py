"""Verification as a whole: a true journal is held, and what checks it is code of its own."""

from __future__ import annotations

import ast
from decimal import Decimal
from pathlib import Path

import pytest

from romanesco.errors import UnknownName
from romanesco.journal import verify
from romanesco.testing import MemoryStore
from tests.journal.verifying import audited, script, verdicts, written

ROOM = Path(__file__).parents[2] / "src" / "romanesco"


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
