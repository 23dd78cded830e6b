"""Personas: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco._codec import from_json, to_json
from romanesco.errors import InputError
from romanesco.personas import AXES, Persona, PersonaRole


def make(**changes: Any) -> Persona:
    fields: dict[str, Any] = {
        "id": "data-engineer",
        "name": "Data Engineer",
        "role": "generator",
        "brief": "Propose what the data can carry.",
        "charter": "You follow the data. Say where it comes from.",
        "bias": {"novelty": 0.5, "dissent": -1},
    }
    return Persona(**{**fields, **changes})


def test_axes_left_out_are_no_leaning_and_the_vector_follows_the_order_of_axes() -> None:
    persona = make()
    assert persona.beta == (0.5, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)
    assert tuple(persona.bias) == AXES


def test_role_given_as_text_becomes_the_enum() -> None:
    assert make(role="evaluator").role is PersonaRole.EVALUATOR


def test_minus_zero_is_zero_so_that_equal_biases_have_equal_text() -> None:
    assert json.dumps(to_json(make(bias={"novelty": -0.0}))) == json.dumps(to_json(make(bias={})))


def test_the_bias_is_a_copy_of_what_was_given() -> None:
    given_bias = {"novelty": 0.5}
    persona = make(bias=given_bias)
    given_bias["novelty"] = 1.0
    assert persona.bias["novelty"] == 0.5


def test_a_persona_is_hashable() -> None:
    assert len({make(), make(), make(id="other")}) == 2


@given(st.fixed_dictionaries({}, optional={axis: st.floats(-1, 1) for axis in AXES}))
@settings(deadline=None)
def test_a_persona_survives_json(bias: dict[str, float]) -> None:
    persona = make(bias=bias, tools=("search",), model="openai:gpt-5-mini", mandatory=True)
    assert from_json(Persona, json.loads(json.dumps(to_json(persona)))) == persona


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"bias": {"dissent": 1.4}},
            "persona 'data-engineer', field 'bias.dissent': is out of range; got 1.4; limit -1 to 1."
            " 0 means no leaning.",
        ),
        (
            {"bias": {"dissent": float("nan")}},
            "persona 'data-engineer', field 'bias.dissent': is out of range; got nan; limit -1 to 1."
            " 0 means no leaning.",
        ),
        (
            {"bias": {"dissent": True}},
            "persona 'data-engineer', field 'bias.dissent': is not a number; got True; limit -1 to 1."
            " 0 means no leaning.",
        ),
        (
            {"bias": {"disent": 0.4}},
            "persona 'data-engineer', field 'bias': has an unknown axis; got 'disent'; limit novelty,"
            " risk_appetite, evidence_demand, time_horizon, abstraction, user_focus, dissent."
            " Correct the name or remove the line.",
        ),
        (
            {"bias": [0.1, 0.2]},
            "persona 'data-engineer', field 'bias': is not a table; got [0.1, 0.2]; limit a table."
            " Write for example bias = { novelty = 0.5, dissent = -0.2 }.",
        ),
        (
            {"role": "critic"},
            "persona 'data-engineer', field 'role': is not a role; got 'critic'; limit generator or"
            " evaluator."
            " Generators propose, evaluators criticise.",
        ),
        (
            {"brief": " "},
            "persona 'data-engineer', field 'brief': is empty; got ' '; limit 1 to 160 printable characters"
            " on"
            " one line. Write something.",
        ),
        (
            {"name": 7},
            "persona 'data-engineer', field 'name': is not text; got 7; limit 1 to 60 printable characters on"
            " one line. Put it in quotes.",
        ),
        (
            {"name": "Data\x1b[2JEngineer"},
            "persona 'data-engineer', field 'name': has unprintable characters; got 'Data\\x1b[2JEngineer';"
            " limit 1 to 60 printable characters on one line. Remove line breaks and control characters.",
        ),
        (
            {"brief": "x" * 161},
            f"persona 'data-engineer', field 'brief': is 161 characters long; got '{'x' * 59}..."
            " (163 characters); limit 1 to 160 printable characters on one line. Shorten it.",
        ),
        (
            {"mandatory": "yes"},
            "persona 'data-engineer', field 'mandatory': is not true or false; got 'yes'; limit true, false."
            " Write true or false without quotes.",
        ),
        (
            {"mandatory": True, "role": "evaluator"},
            "persona 'data-engineer', field 'mandatory': can't be true for an evaluator; got True; limit"
            " false."
            " Remove 'mandatory', or make it a generator.",
        ),
        (
            {"tools": "search"},
            "persona 'data-engineer', field 'tools': is not a list of names; got 'search'; limit a list of"
            ' names. Write for example tools = ["search"].',
        ),
        (
            {"model": "gpt-5-mini"},
            "persona 'data-engineer', field 'model': names no provider and model; got 'gpt-5-mini'; limit"
            ' provider:model. Write for example model = "openai:gpt-5-mini", or remove the line to use the'
            " run's model.",
        ),
        (
            {"id": "Data Engineer"},
            "persona id is not a slug; got 'Data Engineer'; limit lower-case letters, digits and single"
            " hyphens,"
            " at most 40 characters. Rename it, for example 'data-engineer'.",
        ),
        (
            {"id": "decision-maker"},
            "persona id is reserved; got 'decision-maker'; limit any slug but decision-maker, engine,"
            " evaluator,"
            " person, proposer, runtime, user. Give the persona another id.",
        ),
    ],
)
def test_a_wrong_field_is_refused_with_persona_field_value_and_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize("persona", ["", "-a", "a-", "a--b", "A", "a_b", "ä", "a" * 41, "1a", "a\n"])
def test_ids_that_are_no_slugs_are_refused(persona: str) -> None:
    with pytest.raises(InputError, match="not a slug"):
        make(id=persona)
