"""Ensemble selection: who must be in, who is chosen, and what happens where delta is out of reach."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco._codec import from_json, to_json
from romanesco.errors import InputError, PlanRefused, UnknownName
from romanesco.personas import (
    AXES,
    EVALUATORS,
    FRAME_CHALLENGER,
    DistanceMatrix,
    Ensemble,
    Persona,
    builtin_personas,
    declared_distances,
    select_ensemble,
)


def persona(name: str, bias: Mapping[str, float], **changes: Any) -> Persona:
    fields: dict[str, Any] = {"role": "generator", "name": name, "brief": "x", "charter": "x", **changes}
    return Persona(id=name, bias=bias, **fields)


def library_of(*personas: Persona) -> dict[str, Persona]:
    """A library of these, with a Frame Challenger and two evaluators that lean along axes of their own."""
    named = (
        persona(FRAME_CHALLENGER, {"dissent": 1}, mandatory=True),
        persona(EVALUATORS[0], {"abstraction": 1}, role="evaluator"),
        persona(EVALUATORS[1], {"abstraction": -1}, role="evaluator"),
    )
    return {one.id: one for one in (*named, *personas)}


def ids(ensemble: Ensemble) -> list[str]:
    return [one.id for one in ensemble.proposers]


AXIAL = library_of(
    persona("a", {"novelty": 1}),
    persona("b", {"novelty": -1}),
    persona("c", {"novelty": 1, "risk_appetite": 0.1}),
    persona("d", {"risk_appetite": 1}),
)


@pytest.mark.parametrize("k", [3, 4, 5])
def test_the_shipped_library_is_admissible_at_delta_04(k: int) -> None:
    ensemble = select_ensemble(builtin_personas(), k=k, delta=0.4)
    assert len(ensemble.proposers) == k
    assert FRAME_CHALLENGER in ids(ensemble)
    assert ensemble.admissible
    assert ensemble.exact
    assert [one.id for one in ensemble.evaluators] == list(EVALUATORS)
    assert not set(ids(ensemble)) & set(EVALUATORS)


@pytest.mark.parametrize("k", [3, 4, 5])
@pytest.mark.parametrize("wanted", [one for one in builtin_personas() if one not in EVALUATORS])
def test_any_shipped_generator_can_be_required_at_delta_04(k: int, wanted: str) -> None:
    ensemble = select_ensemble(builtin_personas(), k=k, delta=0.4, required=[wanted])
    assert {wanted, FRAME_CHALLENGER} <= set(ids(ensemble))
    assert ensemble.admissible


def test_the_papers_walkthrough_ensemble_is_admissible() -> None:
    ensemble = select_ensemble(
        builtin_personas(), k=4, delta=0.4, required=["radical-speculator"], evaluators_propose=True
    )
    assert ids(ensemble) == ["frame-challenger", "friction-engine", "radical-speculator", "structural-purist"]
    assert [one.id for one in ensemble.evaluators] == list(EVALUATORS)
    assert ensemble.admissible
    assert (ensemble.searched, ensemble.exact) == (1, True)


def test_the_closest_pair_is_as_far_apart_as_can_be() -> None:
    ensemble = select_ensemble(AXIAL, k=4, delta=0.4)
    assert ids(ensemble) == ["a", "b", "d", FRAME_CHALLENGER]
    assert ensemble.min_distance == 1.0
    assert ensemble.searched == 4
    assert ensemble.estimator == "declared"


def test_ties_are_broken_by_fit_then_by_mean_distance_then_by_id() -> None:
    # Any pair of a, b, d keeps the smallest distance at 1; a and b are the farthest apart.
    assert ids(select_ensemble(AXIAL, k=3, delta=0.4)) == ["a", "b", FRAME_CHALLENGER]
    assert ids(select_ensemble(AXIAL, k=3, delta=0.4, fit={"d": 0.2})) == ["a", "d", FRAME_CHALLENGER]
    assert ids(select_ensemble(AXIAL, k=3, delta=0.4, fit={"d": 0.2, "b": 0.1})) == [
        "b",
        "d",
        FRAME_CHALLENGER,
    ]


def test_fit_never_outweighs_distance() -> None:
    assert "c" not in ids(select_ensemble(AXIAL, k=4, delta=0.4, fit={"c": 1000}))


def test_delta_out_of_reach_gives_the_best_with_its_value() -> None:
    ensemble = select_ensemble(AXIAL, k=5, delta=0.4)
    assert ids(ensemble) == ["a", "b", "c", "d", FRAME_CHALLENGER]
    assert not ensemble.admissible
    assert ensemble.closest == ("a", "c")
    assert ensemble.min_distance == pytest.approx(1 - 1 / math.hypot(1, 0.1), abs=1e-9)
    assert ensemble.delta == 0.4


def test_delta_out_of_reach_is_refused_if_asked_for() -> None:
    with pytest.raises(PlanRefused) as caught:
        select_ensemble(AXIAL, k=5, delta=0.4, on_inadmissible="stop")
    assert str(caught.value) == (
        "no ensemble is diverse enough; got 0.005 between a and c in the best ensemble"
        " (a, b, c, d, frame-challenger); limit delta = 0.4. Lower delta, require fewer personas, add some"
        " to the"
        " library, or go on with this one."
    )


def test_exactly_delta_is_admissible() -> None:
    assert select_ensemble(AXIAL, k=4, delta=1, on_inadmissible="stop").admissible
    assert not select_ensemble(AXIAL, k=4, delta=1.000001).admissible


def test_an_unknown_distance_is_avoided_and_never_admissible() -> None:
    library = {**AXIAL, "blank": persona("blank", {})}
    assert "blank" not in ids(select_ensemble(library, k=5, delta=0))
    ensemble = select_ensemble(library, k=3, delta=0, required=["blank"])
    assert ensemble.min_distance is None
    assert not ensemble.admissible
    assert ensemble.closest == ("a", FRAME_CHALLENGER)
    with pytest.raises(PlanRefused, match="got unknown for the best ensemble"):
        select_ensemble(library, k=3, delta=0, required=["blank"], on_inadmissible="stop")


def test_nothing_but_unknown_distances_still_gives_an_ensemble() -> None:
    library = library_of(persona("a", {}), persona("b", {}))
    ensemble = select_ensemble({**library, FRAME_CHALLENGER: persona(FRAME_CHALLENGER, {})}, k=3, delta=0.4)
    assert (ids(ensemble), ensemble.min_distance, ensemble.closest) == (
        ["a", "b", FRAME_CHALLENGER],
        None,
        (),
    )


def test_a_users_mandatory_persona_is_always_in() -> None:
    library = {**AXIAL, "z": persona("z", {"novelty": 1}, mandatory=True)}
    assert {"z", FRAME_CHALLENGER} <= set(ids(select_ensemble(library, k=3, delta=0.4)))


def test_a_users_evaluator_can_be_seated_and_does_not_propose() -> None:
    library = {**AXIAL, "judge": persona("judge", {"user_focus": 1}, role="evaluator")}
    ensemble = select_ensemble(library, k=3, delta=0.4, evaluators=["judge", EVALUATORS[0]])
    assert [one.id for one in ensemble.evaluators] == ["judge", EVALUATORS[0]]
    assert "judge" not in ids(ensemble)


def test_other_distances_than_the_declared_can_be_given() -> None:
    order = sorted(one for one in AXIAL if one not in EVALUATORS)
    rows = tuple(tuple(abs(order.index(x) - order.index(y)) / 4 for y in order) for x in order)
    ensemble = select_ensemble(AXIAL, k=3, delta=0.4, distances=DistanceMatrix("embedded", tuple(order), rows))
    assert ids(ensemble) == ["a", "c", FRAME_CHALLENGER]
    assert (ensemble.estimator, ensemble.min_distance) == ("embedded", 0.5)


def test_distances_that_miss_a_candidate_are_refused() -> None:
    with pytest.raises(UnknownName, match="did not measure this persona"):
        select_ensemble(AXIAL, k=3, delta=0.4, distances=declared_distances([AXIAL["a"], AXIAL["b"]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"k": 2},
            "number of proposers k is out of range; got 2; limit 3 to 5. Set k to 3, 4 or 5; for one agent"
            " use the"
            " topology 'single'.",
        ),
        (
            {"k": 6},
            "number of proposers k is out of range; got 6; limit 3 to 5. Set k to 3, 4 or 5; for one agent"
            " use the"
            " topology 'single'.",
        ),
        (
            {"k": True},
            "number of proposers k is out of range; got True; limit 3 to 5. Set k to 3, 4 or 5; for one"
            " agent use"
            " the topology 'single'.",
        ),
        (
            {"delta": -0.1},
            "diversity threshold delta is out of range; got -0.1; limit 0 to 2. It is a cosine distance: 0"
            " admits"
            " every ensemble, 0.4 is the paper's choice.",
        ),
        (
            {"delta": math.nan},
            "diversity threshold delta is out of range; got nan; limit 0 to 2. It is a cosine distance: 0"
            " admits"
            " every ensemble, 0.4 is the paper's choice.",
        ),
        (
            {"required": ["a", "b", "c"]},
            "more proposers are required than the ensemble has seats; got 4 (a, b, c, frame-challenger);"
            " limit"
            " k = 3. Require fewer or raise k (at most 5). The Frame Challenger is always required.",
        ),
        (
            {"required": [EVALUATORS[0]]},
            "a required proposer is an evaluator; got 'structural-purist'; limit role generator. Set"
            " evaluators_propose and seat it as an evaluator, or require a generator.",
        ),
        (
            {"evaluators": ["friction-engine", "friction-engine"]},
            "an ensemble has exactly two different evaluators; got friction-engine, friction-engine; limit"
            " 2. The"
            " library's are structural-purist and friction-engine.",
        ),
        (
            {"evaluators": ["a", "friction-engine"]},
            "this persona can't evaluate; got 'a' with role generator; limit role evaluator. Name a persona"
            " whose"
            " role is evaluator.",
        ),
        (
            {"on_inadmissible": "halt"},
            "on_inadmissible is not a choice; got 'halt'; limit go-on, stop. Use one of them.",
        ),
        (
            {"fit": {"a": math.inf}},
            "fit of persona 'a' is not a finite number; got inf; limit finite numbers. Leave a persona out"
            " whose"
            " fit is unknown.",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        select_ensemble(AXIAL, **{"k": 3, "delta": 0.4, **options})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "options",
    [{"required": ["nobody"]}, {"evaluators": ["nobody", "friction-engine"]}, {"fit": {"nobody": 1}}],
)
def test_unknown_ids_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownName, match="got 'nobody'"):
        select_ensemble(AXIAL, **{"k": 3, "delta": 0.4, **options})


def test_a_library_without_frame_challenger_is_refused() -> None:
    library = {key: one for key, one in AXIAL.items() if key != FRAME_CHALLENGER}
    with pytest.raises(UnknownName, match="got 'frame-challenger'"):
        select_ensemble(library, k=3, delta=0.4)


def test_a_library_with_too_few_generators_is_refused() -> None:
    with pytest.raises(InputError, match="too few generators; got 2; limit at least k = 3"):
        select_ensemble(library_of(persona("a", {"novelty": 1})), k=3, delta=0.4)


def test_an_ensemble_survives_json() -> None:
    ensemble = select_ensemble(builtin_personas(), k=4, delta=0.4)
    assert from_json(Ensemble, json.loads(json.dumps(to_json(ensemble)))) == ensemble


biases = st.lists(
    st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=len(AXES), max_size=len(AXES)),
    min_size=4,
    max_size=8,
)


@given(biases, st.integers(3, 5), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_no_other_ensemble_is_better_and_the_order_of_the_library_does_not_matter(
    vectors: list[list[float]], k: int, random: Any
) -> None:
    library = library_of(*(persona(f"p{i}", dict(zip(AXES, one, strict=True))) for i, one in enumerate(vectors)))
    ensemble = select_ensemble(library, k=k, delta=0.4)
    generators = sorted(one for one in library if one not in EVALUATORS)
    matrix = declared_distances([library[one] for one in generators])
    rivals = [matrix.minimum(one) for one in combinations(generators, k) if FRAME_CHALLENGER in one]
    assert ensemble.searched == len(rivals)
    assert ensemble.min_distance == max((one for one in rivals if one is not None), default=None)
    assert ensemble.min_distance == matrix.minimum(ids(ensemble))
    shuffled = list(library.items())
    random.shuffle(shuffled)
    assert select_ensemble(dict(shuffled), k=k, delta=0.4) == ensemble


def circle(count: int) -> dict[str, Persona]:
    """Generators at equal angles in a plane that is square to the Frame Challenger."""
    angles = [2 * math.pi * i / count for i in range(count)]
    return library_of(
        *(persona(f"p{i:03}", {"novelty": math.cos(x), "risk_appetite": math.sin(x)}) for i, x in enumerate(angles))
    )


def test_a_large_library_is_searched_greedily_with_a_good_result() -> None:
    ensemble = select_ensemble(circle(60), k=5, delta=0.4)
    assert not ensemble.exact
    assert ensemble.searched < 5_000
    # The best there is: four at right angles to each other, and the Frame Challenger to all of them.
    assert ensemble.min_distance == 1.0
    assert ensemble.admissible


def test_the_greedy_search_takes_the_same_from_any_order() -> None:
    library = circle(60)
    turned = dict(reversed(library.items()))
    assert select_ensemble(turned, k=5, delta=0.4) == select_ensemble(library, k=5, delta=0.4)


def test_the_greedy_search_swaps_out_a_bad_first_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    # Greedy alone takes m, the farthest from the Frame Challenger, and stays near it; the swap finds x and y.
    library = library_of(
        persona("m", {"dissent": -1}),
        persona("x", {"dissent": -0.8, "novelty": 0.6}),
        persona("y", {"dissent": -0.8, "novelty": -0.6}),
    )
    exact = select_ensemble(library, k=3, delta=0.4)
    assert ids(exact) == ["frame-challenger", "x", "y"]
    monkeypatch.setattr("romanesco.personas._select.EXACT_SUBSETS", 0)
    greedy = select_ensemble(library, k=3, delta=0.4)
    assert not greedy.exact
    assert (ids(greedy), greedy.min_distance) == (ids(exact), exact.min_distance)
    assert greedy.searched > 3 + 2  # at least one round of swaps was tried
