"""Shapes of the replies.

Short fields come first, so that a cut reply loses only the end of its long text; in the compact decision, where a
grammar prevents the cut, the answer follows the choice.

``x-size`` is in characters and is derived from the output cap: with the compact prompts so tight that a model held
by a grammar closes its JSON before the cap, with the full ones so wide that the cap is met first. Endpoints without
a grammar never see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from romanesco.models._types import OutputSchema
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._params import Caps

NONE = "none"
"""Stands for "no proposal" or "no source" in an enum."""

CHALLENGE_JSON, STANCE_JSON, INTEGRATION_JSON, CRITIQUES_JSON = 28, 42, 20, 15
"""Tokens that names, quotes and brackets of a reply's JSON take, by kind of reply."""
EVIDENCE_JSON, COMPACT_DECISION_JSON, DECISION_JSON = 90, 50, 170
"""The same where the reply has lists, with as many items as are asked for at most."""

_SHORTEST = {"proposal": 40, "part": 15, "critique": 20, "note": 10, "answer": 40}
"""Least characters in the compact style: held by a grammar, a very small model else closes a text before it began."""
_CHARS_PER_TOKEN = {"compact": 3.5, "full": 8.0}
_ENTRY_KINDS = ("claim", "constraint", "risk")
"""Kinds that the Decision Maker can add. It reads no source, so it brings in no fact."""
STANCES = ("keep", "change", "withdraw")
"""What the Frame Challenger can do with its frame in Integration."""


def challenge_schema(caps: Caps, style: str) -> OutputSchema:
    """The Frame Challenger's three required parts (Def. 11)."""
    return _object("challenge", _challenge_parts(caps.proposal, style, overhead=CHALLENGE_JSON))


def integration_schema(caps: Caps, style: str, ids: Sequence[str]) -> OutputSchema:
    """The id of the proposal that the member backs, and its new proposal."""
    text = _text(caps.proposal - INTEGRATION_JSON, style, "proposal")
    return _object("integration", {"backs": _enum(ids), "proposal": text})


def stance_schema(caps: Caps, style: str, ids: Sequence[str]) -> OutputSchema:
    """The Frame Challenger's Integration: whom it backs, what it does with its frame, and the three parts."""
    short = {"backs": _enum(ids), "stance": _enum(STANCES)}
    return _object("challenge", {**short, **_challenge_parts(caps.proposal, style, overhead=STANCE_JSON)})


def evidence_schema(caps: Caps, style: str, sources: Sequence[str]) -> OutputSchema:
    """A proposal with the statements that it takes from sources, each with a word-for-word quote."""
    item = _shape({
        "source": _enum([*sources, NONE]),
        "claim": {"type": "string", "minLength": 1},
        "quote": {"type": "string"},
    })
    evidence = {"type": "array", "maxItems": 6, "items": item}
    return _object("proposal", {"proposal": _text(caps.proposal, style, "proposal"), "evidence": evidence})


def critique_schema(caps: Caps, style: str) -> OutputSchema:
    """Exactly three critiques."""
    item = _text((caps.critiques - CRITIQUES_JSON) // d.CRITIQUES, style, "critique")
    count = {"minItems": d.CRITIQUES, "maxItems": d.CRITIQUES}
    return _object("critiques", {"critiques": {"type": "array", **count, "items": item}})


def decision_schema(caps: Caps, style: str, ids: Sequence[str]) -> OutputSchema:
    """The decision: flat for small models, with lists for big ones."""
    if style == "compact":
        left = caps.decision - COMPACT_DECISION_JSON
        note = _text(left // 6, style, "note")
        return _object(
            "decision",
            {
                "chosen": _enum(ids),
                # Right after the choice: what a very small model writes gets worse with every field before it.
                "answer": _text(left // 2, style, "answer"),
                "absorbed_from": _enum([*ids, NONE]),
                "absorbed": {"type": "string", "x-size": [0, note["x-size"][1]]},
                "why_not_others": note,
                "risk": note,
            },
        )
    text = {"type": "string", "minLength": 1}
    entry = {"kind": _enum(_ENTRY_KINDS), "text": text}
    absorbed = _shape({"from": _enum(ids), "what": text})
    discarded = _shape({"id": _enum(ids), "why": text})
    return _object(
        "decision",
        {
            "chosen": _enum(ids),
            "absorbed": {"type": "array", "maxItems": d.K_MAX, "items": absorbed},
            "discarded": {"type": "array", "maxItems": d.K_MAX, "items": discarded},
            "ledger": {"type": "array", "maxItems": 8, "items": _shape(entry)},
            "answer": _text(caps.decision, style, "answer"),
        },
    )


def _challenge_parts(cap: int, style: str, *, overhead: int) -> dict[str, Any]:
    part = _text((cap - overhead) // 3, style, "part")
    return {"failure_scenario": part, "alternative_mechanism": part, "modification": part}


def _text(tokens: int, style: str, kind: str) -> dict[str, Any]:
    longest = max(24, int(tokens * _CHARS_PER_TOKEN[style]))
    shortest = min(_SHORTEST[kind], longest) if style == "compact" else 1
    return {"type": "string", "minLength": 1, "x-size": [shortest, longest]}


def _enum(values: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(dict.fromkeys(values))}


def _shape(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _object(name: str, properties: dict[str, Any]) -> OutputSchema:
    return OutputSchema(name, _shape(properties))
