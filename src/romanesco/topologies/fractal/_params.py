"""Parameters of the FRACTAL topology: what the user may set, checked, and what is in force after planning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from romanesco._codec import from_json, to_json
from romanesco.errors import InputError
from romanesco.personas import Persona
from romanesco.topologies._params import number, wrong
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._stopping import StopRules


@dataclass(frozen=True, slots=True)
class Caps:
    """Output caps in tokens: of one proposal, of one critique, of the decision."""

    proposal: int
    critique: int
    decision: int

    @property
    def critiques(self) -> int:
        """Cap of one critique call: all critiques of one proposal by one evaluator."""
        return d.CRITIQUES * self.critique


@dataclass(frozen=True, slots=True)
class Spare:
    """Tokens of the window that the plan left free in the fullest prompt of each kind, its reply included."""

    integration: int = 0
    critique: int = 0
    decision: int = 0
    wrap_up: int = 0


@dataclass(frozen=True, slots=True)
class Params:
    """All parameters of a node, JSON-able both ways.

    Attributes:
        k: Proposing members, 3 to 5.
        rounds: Divergent rounds at most (``r_max``), 1 to 9.
        r_dwell: No switch by saturation before this round.
        tau_sat: The switch fires below this ratio of diversity gains.
        switch: ``first`` compares a round's gain with the first round's (ours), ``paper`` with the round's before.
        quorum: Share of the eligible members for a supermajority.
        eps: Ledger gain below which a round counts towards diminishing returns.
        delta: Least bias distance of an admissible ensemble.
        on_inadmissible: ``go-on`` or ``stop`` if no ensemble reaches ``delta``.
        evaluators_propose: Whether the two evaluators are among the ``k`` proposers.
        reread: Whether each proposer sees its own part of the sources again in every later round.
        members: Persona ids that must be among the proposers.
        personas: Path of a persona file, or "".
        style: ``compact`` or ``full`` prompts; "" until the plan chose by the window.
        proposal_tokens: Output cap of a proposal; 0 until the plan chose by the window.
        critique_tokens: Output cap of one critique; 0 until the plan chose.
        decision_tokens: Output cap of the decision; 0 until the plan chose.
        reasoning_tokens: Added to each output cap for models that reason before they answer.
        temperature: Of proposals.
        critique_temperature: Of critiques.
        decision_temperature: Of the decision; None until the plan chose by the style.
        seed: Sampling seed of the run; each call gets its own from it. None leaves it to the server.
        team: Set by the plan: the proposers, in their order.
        judges: Set by the plan: the evaluators, in their order.
        distance: Set by the plan: least bias distance among the proposers, or None if unknown.
        payload_chars: Set by the plan: payload of one member at most, in characters.
        again_chars: Set by the plan: how much of it the member sees again in later rounds, in characters.
        spare: Set by the plan: what the prompts leave of the window.
    """

    k: int = d.K
    rounds: int = d.R_MAX
    r_dwell: int = d.R_DWELL
    tau_sat: float = d.TAU_SAT
    switch: str = "first"
    quorum: float = d.QUORUM
    eps: float = d.EPS
    delta: float = d.DELTA
    on_inadmissible: str = "go-on"
    evaluators_propose: bool = False
    reread: bool = True
    members: tuple[str, ...] = ()
    personas: str = ""
    style: str = ""
    proposal_tokens: int = 0
    critique_tokens: int = 0
    decision_tokens: int = 0
    reasoning_tokens: int = 0
    temperature: float = d.PROPOSAL_TEMPERATURE
    critique_temperature: float = d.CRITIQUE_TEMPERATURE
    decision_temperature: float | None = None
    seed: int | None = None
    team: tuple[Persona, ...] = ()
    judges: tuple[Persona, ...] = ()
    distance: float | None = None
    payload_chars: int = 0
    again_chars: int = 0
    spare: Spare = Spare()

    @property
    def caps(self) -> Caps:
        """The output caps in force."""
        return Caps(self.proposal_tokens, self.critique_tokens, self.decision_tokens)

    @property
    def stop(self) -> StopRules:
        """The thresholds of the stopping tests."""
        return StopRules(
            r_max=self.rounds,
            r_dwell=self.r_dwell,
            tau_sat=self.tau_sat,
            quorum=self.quorum,
            eps=self.eps,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, for ``Plan.params``."""
        data: dict[str, Any] = to_json(self)
        return data


def params_from_json(data: Mapping[str, Any]) -> Params:
    """Parameters as the plan left them."""
    return from_json(Params, dict(data))


PLANNED = frozenset({"team", "judges", "distance", "payload_chars", "again_chars", "spare"})
"""Fields that only the plan sets."""

_RANGES: dict[str, tuple[float, float]] = {
    "k": (d.K_MIN, d.K_MAX),
    "rounds": (1, d.ROUNDS_MAX),
    "r_dwell": (1, d.ROUNDS_MAX),
    "tau_sat": (0, 10),
    "quorum": (0, 1),
    "eps": (0, 1e6),
    "delta": (0, 2),
    "proposal_tokens": (40, 100_000),
    "critique_tokens": (10, 100_000),
    "decision_tokens": (100, 100_000),
    "reasoning_tokens": (0, 1_000_000),
    "temperature": (0, 2),
    "critique_temperature": (0, 2),
    "decision_temperature": (0, 2),
    "seed": (0, 2**31 - 1),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "switch": ("first", "paper"),
    "on_inadmissible": ("go-on", "stop"),
    "style": ("compact", "full"),
}
_INTEGERS = frozenset({
    "k",
    "rounds",
    "r_dwell",
    "proposal_tokens",
    "critique_tokens",
    "decision_tokens",
    "reasoning_tokens",
    "seed",
})


def parse_params(given: Mapping[str, Any]) -> Params:
    """What the user set, checked, on top of the defaults.

    Raises:
        InputError: An unknown parameter, a wrong type, or a value outside its range; the message names them.
    """
    known = [item.name for item in fields(Params) if item.name not in PLANNED]
    for name in given:
        if name not in known:
            raise InputError("fractal has no such parameter", value=repr(name), limit=", ".join(known))
    return replace(Params(), **{name: _checked(name, value) for name, value in given.items()})


def _checked(name: str, value: object) -> Any:
    if name in _RANGES:
        return _number(name, value)
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise _wrong(name, value, " or ".join(_CHOICES[name]))
        return value
    if name in ("evaluators_propose", "reread"):
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")
        return value
    if name == "members":
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(item, str) for item in names):
            raise _wrong(name, value, "a list of persona ids")
        return tuple(item.strip() for item in names if item.strip())
    if not isinstance(value, str) or not value:
        raise _wrong(name, value, "a file's path")
    return value


def _number(name: str, value: object) -> float | int:
    found = number("fractal", name, value, _RANGES[name], whole=name in _INTEGERS)
    if name == "quorum" and found == 0:
        raise _wrong(name, value, "a number above 0, up to 1")
    return found


def _wrong(name: str, value: object, limit: str) -> InputError:
    return wrong("fractal", name, value, limit)
