from __future__ import annotations

import json
from typing import Any

import pytest

from romanesco.errors import InputError
from romanesco.personas import builtin_personas
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal._params import PLANNED, Params, params_from_json, parse_params


def test_the_defaults_are_those_of_the_one_file() -> None:
    params = parse_params({})
    assert (params.k, params.rounds, params.tau_sat, params.delta) == (d.K, d.R_MAX, d.TAU_SAT, d.DELTA)
    assert (params.stop.r_dwell, params.stop.quorum, params.stop.eps) == (d.R_DWELL, d.QUORUM, d.EPS)


def test_json_both_ways() -> None:
    team = tuple(builtin_personas().values())[:3]
    params = parse_params({"k": 3, "switch": "paper", "seed": 7, "members": ["a", "b"]})
    params = params_from_json({**params.to_json(), "team": [], "distance": None})
    full = Params(k=3, team=team, judges=team[:2], distance=0.5, payload_chars=100, style="full")
    for one in (params, full):
        assert params_from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    "given",
    [
        {"k": 2},
        {"k": 6},
        {"k": 3.5},
        {"k": True},
        {"k": "4"},
        {"rounds": 0},
        {"rounds": -1},
        {"rounds": 10},
        {"tau_sat": float("nan")},
        {"quorum": 0},
        {"quorum": 1.1},
        {"switch": "never"},
        {"on_inadmissible": "hope"},
        {"style": "long"},
        {"evaluators_propose": "yes"},
        {"members": 3},
        {"members": [1]},
        {"personas": ""},
        {"proposal_tokens": 1},
        {"seed": -1},
        {"temperature": 3},
    ],
)
def test_a_wrong_value_is_named_with_its_range(given: dict[str, Any]) -> None:
    name = next(iter(given))
    with pytest.raises(InputError, match=f"parameter '{name}' of fractal.* limit ") as caught:
        parse_params(given)
    assert "Correct it" in str(caught.value)


@pytest.mark.parametrize("name", ["kk", *sorted(PLANNED)])
def test_an_unknown_or_planned_parameter_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match="no such parameter") as caught:
        parse_params({name: 1})
    assert "rounds" in str(caught.value) and "payload_chars" not in str(caught.value.limit)


def test_values_as_a_command_line_gives_them() -> None:
    params = parse_params({"k": 5.0, "members": "a, b", "temperature": 1})
    assert (params.k, params.members, params.temperature) == (5, ("a", "b"), 1.0)
