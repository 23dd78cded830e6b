"""From the Decision Maker's reply to a decision and ledger entries: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from romanesco.task import Decision, LedgerEntry
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


def decision_entries(value: Mapping[str, Any], decision: Decision, round: int, *, compact: bool) -> list[LedgerEntry]:
    """What the decision adds to the ledger: its entries, and each discarded alternative.

    The Decision Maker reads no source, so none of them is a fact.
    """
    items = [{"kind": "risk", "text": str(value["risk"])}] if compact else list(value["ledger"])
    entries = [
        LedgerEntry(item["kind"], item["text"].strip(), DECISION_MAKER, round, (decision.chosen,))
        for item in items
        if item["text"].strip()
    ]
    for proposal, why in decision.discarded.items():
        entries.append(LedgerEntry("discarded", f"{proposal}: {why}", DECISION_MAKER, round, (proposal,)))
    return entries
