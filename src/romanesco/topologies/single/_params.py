"""Parameters of the topology ``single``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from romanesco._codec import from_json, to_json
from romanesco.errors import InputError
from romanesco.topologies._params import number, wrong

ROLE = "answerer"
"""Role of the one agent: configure its model under this name."""
TEMPERATURE = 0.3
"""Default sampling temperature."""
ANSWER_SHARE = 4
"""Without ``answer_tokens`` the answer may take this part of the window, ..."""
ANSWER_MAX = 2000
"""... and at most so many tokens."""
UNKNOWN_WINDOW = 8192
"""What is planned for when nobody knows the model's window."""


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters in force.

    Attributes:
        answer_tokens: Output cap of the answer; 0 until the plan chose by the window.
        reasoning_tokens: Added to the cap for a model that reasons before it answers.
        temperature: Sampling temperature.
        seed: Sampling seed; None leaves it to the server.
        schema: JSON schema of an object that the answer must fit, or None for text.
        source_chars: Set by the plan: how much of the sources is shown, in characters, names and markers included.
    """

    answer_tokens: int = 0
    reasoning_tokens: int = 0
    temperature: float = TEMPERATURE
    seed: int | None = None
    schema: dict[str, Any] | None = None
    source_chars: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, for ``Plan.params``."""
        data: dict[str, Any] = to_json(self)
        return data


_RANGES = {
    "answer_tokens": (1, 100_000),
    "reasoning_tokens": (0, 1_000_000),
    "temperature": (0, 2),
    "seed": (0, 2**31 - 1),
}


def params_from_json(data: Mapping[str, Any]) -> Params:
    """Parameters as the plan left them."""
    return from_json(Params, dict(data))


def parse_params(given: Mapping[str, Any]) -> Params:
    """What the user set, checked, on top of the defaults.

    Raises:
        InputError: An unknown parameter, a wrong type, or a value outside its range.
    """
    known = [item.name for item in fields(Params) if item.name != "source_chars"]
    for name in given:
        if name not in known:
            raise InputError("single has no such parameter", value=repr(name), limit=", ".join(known))
    return replace(Params(), **{name: _checked(name, value) for name, value in given.items()})


def _checked(name: str, value: object) -> Any:
    if name == "schema":
        if not isinstance(value, dict) or value.get("type") != "object":
            raise wrong("single", name, value, "a JSON schema of an object")
        return value
    return number("single", name, value, _RANGES[name], whole=name != "temperature")
