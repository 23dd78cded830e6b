"""From the Decision Maker's reply to a decision and ledger entries: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from romanesco.task import Decision, LedgerEntry, Source
from romanesco.topologies.fractal._ledger import quoted
from romanesco.topologies.fractal._schemas import NONE
from romanesco.topologies.fractal._state import DECISION_MAKER

NO_REASON = "not chosen; no reason was given"


def read_decision(value: Mapping[str, Any], ids: Sequence[str], *, model: str, compact: bool) -> Decision:
    """The decision that a reply means.

    Args:
        value: The reply's value; it fits the decision schema.
        ids: Ids of the proposals alive.
        model: Which model decided.
        compact: Which of the two schemas it has.
    """
    chosen = str(value["chosen"])
    if compact:
        taken = [(str(value["absorbed_from"]), str(value["absorbed"]))]
        reasons = dict.fromkeys(ids, str(value["why_not_others"]).strip())
    else:
        taken = [(item["from"], item["what"]) for item in value["absorbed"]]
        reasons = {item["id"]: item["why"].strip() for item in value["discarded"]}
    absorbed: dict[str, str] = {}
    for source, what in taken:
        if source in ids and source != chosen and what.strip():
            absorbed[source] = "; ".join(filter(None, (absorbed.get(source), what.strip())))
    discarded = {one: reasons.get(one) or NO_REASON for one in ids if one != chosen}
    return Decision(chosen, str(value["answer"]).strip(), absorbed, discarded, DECISION_MAKER, model)


def decision_entries(
    value: Mapping[str, Any], decision: Decision, round: int, sources: Sequence[Source], *, compact: bool
) -> list[LedgerEntry]:
    """What the decision adds to the ledger: its entries, and each discarded alternative."""
    if compact:
        items = [{"kind": "risk", "text": str(value["risk"]), "source": NONE, "quote": ""}]
    else:
        items = list(value["ledger"])
    entries = []
    for item in items:
        kind, evidence = item["kind"], (decision.chosen,)
        proven = quoted(item["quote"], item["source"], sources)
        if proven:
            evidence = (item["source"],)
        if kind == "fact" and not proven:
            kind = "claim"  # a fact needs a check or a cited source
        if item["text"].strip():
            entries.append(LedgerEntry(kind, item["text"].strip(), DECISION_MAKER, round, evidence))
    for proposal, why in decision.discarded.items():
        text = f"{proposal}: {why}"
        entries.append(LedgerEntry("discarded", text, DECISION_MAKER, round, (proposal,)))
    return entries
