"""Ledger entries and the reading of a decision."""

from __future__ import annotations

from typing import Any

import pytest

from romanesco.task import LedgerEntry, Source
from romanesco.topologies.fractal._decision import NO_REASON, decision_entries, read_decision
from romanesco.topologies.fractal._ledger import evidence_entries, fresh, gain, headline, quoted

SOURCES = (Source("churn.txt", "In May the churn\n  was 4.2 percent."), Source("b.txt", "other"))
IDS = ["P1.2", "P2.2", "P3.2"]


@pytest.mark.parametrize(
    ("quote", "source", "expected"),
    [
        ("the churn was 4.2 percent", "churn.txt", True),
        ("THE CHURN  was\n4.2", "churn.txt", True),
        ("the churn was 5 percent", "churn.txt", False),
        ("the churn was 4.2 percent", "b.txt", False),
        ("the churn was 4.2 percent", "none", False),
        ("churn", "churn.txt", False),
        ("", "churn.txt", False),
    ],
)
def test_a_quote_must_stand_in_its_source(quote: str, source: str, expected: bool) -> None:
    assert quoted(quote, source, SOURCES) is expected


def test_only_a_proven_statement_is_a_fact() -> None:
    items = [
        {"source": "churn.txt", "claim": "Churn is 4.2 %.", "quote": "churn was 4.2 percent"},
        {"source": "churn.txt", "claim": "Churn will fall.", "quote": "churn will fall next year"},
        {"source": "none", "claim": "Everybody knows.", "quote": ""},
    ]
    entries = evidence_entries(items, "P1.1", "anna", 1, SOURCES)
    assert [(one.kind, one.evidence) for one in entries] == [
        ("fact", ("P1.1", "churn.txt")),
        ("claim", ("P1.1",)),
        ("claim", ("P1.1",)),
    ]


def test_the_headline_is_the_first_sentence() -> None:
    entry = headline("  Sell to teams. Then grow.", "P1.1", "anna", 1)
    assert (entry.kind, entry.text, entry.evidence) == ("claim", "Sell to teams.", ("P1.1",))
    assert headline("1. Sell to teams.\n2. Grow.", "P1.1", "anna", 1).text == "Sell to teams."
    assert headline("Wait. See.", "P1.1", "anna", 1).text == "Wait."


def test_duplicates_are_told_by_their_words() -> None:
    old = [LedgerEntry("claim", "Sell to small teams first.", "a", 1)]
    again = LedgerEntry("claim", "sell to SMALL teams, first", "b", 2)
    other = LedgerEntry("risk", "Nobody pays for it.", "b", 2)
    empty = LedgerEntry("claim", "...", "b", 2)
    assert fresh(old, [again, other, other, empty]) == [other]


def test_the_gain_weighs_an_unproven_claim_half() -> None:
    kinds = ("fact", "claim", "constraint", "risk", "discarded")
    assert gain(LedgerEntry(kind, kind, "a", 1) for kind in kinds) == 4.5
    assert gain([]) == 0.0


def test_a_full_decision() -> None:
    value: dict[str, Any] = {
        "chosen": "P2.2",
        "absorbed": [
            {"from": "P1.2", "what": "the price"},
            {"from": "P1.2", "what": "the name"},
            {"from": "P2.2", "what": "itself"},
        ],
        "discarded": [{"id": "P1.2", "why": " too slow "}],
        "ledger": [{"kind": "risk", "text": "It may fail."}],
        "answer": " Do it. ",
    }
    decision = read_decision(value, IDS, model="m", compact=False)
    assert decision.chosen == "P2.2" and decision.answer == "Do it." and decision.by == "decision-maker"
    assert decision.absorbed == {"P1.2": "the price; the name"}
    assert decision.discarded == {"P1.2": "too slow", "P3.2": NO_REASON}
    entries = decision_entries(value, decision, 2, compact=False)
    assert [(one.kind, one.text) for one in entries] == [
        ("risk", "It may fail."),
        ("discarded", "P1.2: too slow"),
        ("discarded", f"P3.2: {NO_REASON}"),
    ]


@pytest.mark.parametrize(("source", "expected"), [("P1.2", {"P1.2": "the price"}), ("none", {}), ("P2.2", {})])
def test_a_compact_decision(source: str, expected: dict[str, str]) -> None:
    value = {
        "chosen": "P2.2",
        "absorbed_from": source,
        "absorbed": "the price",
        "why_not_others": "weaker",
        "risk": "cost",
        "answer": "Do it.",
    }
    decision = read_decision(value, IDS, model="m", compact=True)
    assert decision.absorbed == expected
    assert decision.discarded == {"P1.2": "weaker", "P3.2": "weaker"}
    assert decision_entries(value, decision, 2, compact=True)[0].kind == "risk"
