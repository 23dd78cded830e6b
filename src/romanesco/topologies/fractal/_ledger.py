"""Entries of a node's ledger: what counts as a fact, what is a duplicate, and how much a round added."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from romanesco.task import LedgerEntry, Source
from romanesco.topologies.fractal import _defaults as d

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SHORTEST_QUOTE = 12
_HEADLINE = 240
_SHORTEST_SENTENCE = 3  # words: "1." is no sentence


def quoted(quote: str, source: str, sources: Sequence[Source]) -> bool:
    """Whether a passage stands word for word in a source: what makes an entry a fact.

    White space and case don't matter; a passage of fewer than 12 characters proves nothing.
    """
    wanted = " ".join(quote.split()).casefold()
    if len(wanted) < _SHORTEST_QUOTE:
        return False
    return any(one.name == source and wanted in " ".join(one.text.split()).casefold() for one in sources)


def evidence_entries(
    items: Iterable[Mapping[str, str]], proposal: str, member: str, round: int, sources: Sequence[Source]
) -> list[LedgerEntry]:
    """The statements that a proposal rests on: facts where the quote is in the source, else claims."""
    entries = []
    for item in items:
        fact = quoted(item["quote"], item["source"], sources)
        evidence = (proposal, item["source"]) if fact else (proposal,)
        entries.append(LedgerEntry("fact" if fact else "claim", item["claim"].strip(), member, round, evidence))
    return entries


def headline(text: str, proposal: str, member: str, round: int) -> LedgerEntry:
    """A proposal's first sentence of at least three words as a claim: what it says must be done."""
    sentences = _SENTENCE.split(" ".join(text.split()))
    first = next((one for one in sentences if len(one.split()) >= _SHORTEST_SENTENCE), sentences[0])
    return LedgerEntry("claim", first[:_HEADLINE], member, round, (proposal,))


def fresh(ledger: Sequence[LedgerEntry], candidates: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Candidates that say something that no entry before them says: ``Jaccard`` of the words below ``DUPLICATE``."""
    seen = [_words(entry.text) for entry in ledger]
    kept = []
    for entry in candidates:
        words = _words(entry.text)
        if not words or any(_overlap(words, other) >= d.DUPLICATE for other in seen):
            continue
        seen.append(words)
        kept.append(entry)
    return kept


def gain(entries: Iterable[LedgerEntry]) -> float:
    """Ledger gain of new entries, weighted by kind."""
    return sum(d.ENTRY_WEIGHTS[entry.kind] for entry in entries)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0
