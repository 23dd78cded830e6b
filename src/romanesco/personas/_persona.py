"""What a persona is: who speaks, in what role, with which declared bias."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from romanesco.errors import InputError

AXES = (
    "novelty",
    "risk_appetite",
    "evidence_demand",
    "time_horizon",
    "abstraction",
    "user_focus",
    "dissent",
)
"""The named bias axes, in the order of a bias vector. ``library.toml`` says what -1 and 1 mean on each."""

FRAME_CHALLENGER = "frame-challenger"
"""Id of the one persona that proposes in every ensemble (spec, Def. 11)."""

GENERATORS = ("radical-speculator", "integrative-synthesizer", FRAME_CHALLENGER)
"""Ids of the paper's three generators."""

EVALUATORS = ("structural-purist", "friction-engine")
"""Ids of the paper's two evaluators (``m = 2``)."""

RESERVED_IDS = frozenset({"proposer", "evaluator", "decision-maker", "engine", "person", "user", "runtime"})
"""Names that mean something else where a persona's id may stand: in a model setting, as an entry's author."""

NAME_CHARS = 60
BRIEF_CHARS = 160
CHARTER_CHARS = 2000

_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")
_SLUG_CHARS = 40


class PersonaRole(enum.StrEnum):
    """What a persona does in a node: generators propose, evaluators criticise."""

    GENERATOR = "generator"
    EVALUATOR = "evaluator"


@dataclass(frozen=True, slots=True)
class Persona:
    """One agent's character: domain prompt and declared bias (Def. 1, ``e_i = (p_i, beta_i, T_i, phi_i)``).

    Attributes:
        id: Lower-case slug, at most 40 characters, for example ``operations-lead``.
        name: What readers and prompts call it, at most 60 characters.
        role: Generator or evaluator.
        brief: Domain prompt for small windows: one sentence, at most 160 characters (about 30 tokens in
        English). charter: Domain prompt for big windows: two to four sentences, at most 2,000 characters.
        bias: Number in [-1, 1] for each of ``AXES``. Axes left out become 0, "no leaning". A bias of zeros
            only is allowed; its distance to anything is unknown.
        mandatory: Whether it proposes in every ensemble. Only generators can be mandatory.
        tools: Names of tools that it prefers; () for none in particular.
        model: ``provider:model`` that it prefers, or None for the run's model.

    Raises:
        InputError: A field is outside its range; the message names persona, field, value and range.
    """

    id: str
    name: str
    role: PersonaRole
    brief: str
    charter: str
    bias: Mapping[str, float] = field(hash=False)
    mandatory: bool = False
    tools: tuple[str, ...] = ()
    model: str | None = None

    def __post_init__(self) -> None:
        """Check every field and put the bias into the order of the axes."""
        _check_id(self.id)
        _check_line(self.id, "name", self.name, NAME_CHARS)
        _check_line(self.id, "brief", self.brief, BRIEF_CHARS)
        _check_line(self.id, "charter", self.charter, CHARTER_CHARS)
        object.__setattr__(self, "role", _checked_role(self.id, self.role))
        object.__setattr__(self, "bias", _checked_bias(self.id, self.bias))
        _check_mandatory(self.id, self.role, self.mandatory)
        object.__setattr__(self, "tools", _checked_tools(self.id, self.tools))
        _check_model(self.id, self.model)

    @property
    def beta(self) -> tuple[float, ...]:
        """The bias vector, in the order of ``AXES``."""
        return tuple(self.bias.values())


def _problem(persona: str, name: str, what: str, *, value: object, limit: str, advice: str) -> InputError:
    return InputError(f"persona '{persona}', field '{name}': {what}", value=_shown(value), limit=limit, advice=advice)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def _check_id(value: object) -> None:
    if not isinstance(value, str) or len(value) > _SLUG_CHARS or not _SLUG.match(value):
        raise InputError(
            "persona id is not a slug",
            value=_shown(value),
            limit=f"lower-case letters, digits and single hyphens, at most {_SLUG_CHARS} characters",
            advice="Rename it, for example 'data-engineer'.",
        )
    if value in RESERVED_IDS:
        raise InputError(
            "persona id is reserved",
            value=_shown(value),
            limit=f"any slug but {', '.join(sorted(RESERVED_IDS))}",
            advice="Give the persona another id.",
        )


def _check_line(persona: str, name: str, value: object, limit: int) -> None:
    span = f"1 to {limit} printable characters on one line"
    if not isinstance(value, str):
        raise _problem(persona, name, "is not text", value=value, limit=span, advice="Put it in quotes.")
    if not value.strip():
        raise _problem(persona, name, "is empty", value=value, limit=span, advice="Write something.")
    if len(value) > limit:
        raise _problem(persona, name, f"is {len(value)} characters long", value=value, limit=span, advice="Shorten it.")
    if not value.isprintable():
        advice = "Remove line breaks and control characters."
        raise _problem(persona, name, "has unprintable characters", value=value, limit=span, advice=advice)


def _checked_role(persona: str, value: object) -> PersonaRole:
    if isinstance(value, str) and value in tuple(PersonaRole):
        return PersonaRole(value)
    limit = " or ".join(PersonaRole)
    advice = "Generators propose, evaluators criticise."
    raise _problem(persona, "role", "is not a role", value=value, limit=limit, advice=advice)


def _checked_bias(persona: str, value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        advice = "Write for example bias = { novelty = 0.5, dissent = -0.2 }."
        raise _problem(persona, "bias", "is not a table", value=value, limit="a table", advice=advice)
    for axis in value:
        if axis not in AXES:
            advice = "Correct the name or remove the line."
            limit = ", ".join(AXES)
            raise _problem(persona, "bias", "has an unknown axis", value=axis, limit=limit, advice=advice)
    return {axis: _checked_number(persona, axis, value.get(axis, 0.0)) for axis in AXES}


def _checked_number(persona: str, axis: str, value: object) -> float:
    name = f"bias.{axis}"
    advice = "0 means no leaning."
    # bool is an int to Python, and "dissent = true" is a slip that must not pass as 1.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _problem(persona, name, "is not a number", value=value, limit="-1 to 1", advice=advice)
    if not -1 <= value <= 1:  # NaN fails this too
        raise _problem(persona, name, "is out of range", value=value, limit="-1 to 1", advice=advice)
    return float(value) or 0.0  # -0.0 becomes 0.0, so that equal biases have equal text


def _check_mandatory(persona: str, role: PersonaRole, value: object) -> None:
    if not isinstance(value, bool):
        advice = "Write true or false without quotes."
        raise _problem(
            persona,
            "mandatory",
            "is not true or false",
            value=value,
            limit="true, false",
            advice=advice,
        )
    if value and role is PersonaRole.EVALUATOR:
        advice = "Remove 'mandatory', or make it a generator."
        raise _problem(
            persona, "mandatory", "can't be true for an evaluator", value=value, limit="false", advice=advice
        )


def _checked_tools(persona: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(tool, str) and tool.strip() for tool in value):
        return tuple(value)
    advice = 'Write for example tools = ["search"].'
    raise _problem(
        persona,
        "tools",
        "is not a list of names",
        value=value,
        limit="a list of names",
        advice=advice,
    )


def _check_model(persona: str, value: object) -> None:
    if value is None:
        return
    provider, colon, model = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not (provider.strip() and colon and model.strip()):
        advice = 'Write for example model = "openai:gpt-5-mini", or remove the line to use the run\'s model.'
        raise _problem(
            persona,
            "model",
            "names no provider and model",
            value=value,
            limit="provider:model",
            advice=advice,
        )
