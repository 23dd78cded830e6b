"""Distance of personas (Def. 3) and the declared estimator."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.errors import InputError, UnknownName
from romanesco.personas import (
    AXES,
    DeclaredDiversity,
    DiversityEstimator,
    Persona,
    PersonaRole,
    builtin_personas,
    declared_distances,
    distance,
)

# Zero, or far enough from it that scaling by a thousandth still leaves a whole number of digits.
coordinate = st.floats(-1, 1).map(lambda x: round(x, 6))
vector = st.lists(coordinate, min_size=7, max_size=7)


def persona(name: str, *bias: float) -> Persona:
    return Persona(name, name, PersonaRole.GENERATOR, "x", "x", dict(zip(AXES, bias, strict=False)))


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ([1, 0], [1, 0], 0.0),
        ([1, 0], [0, 1], 1.0),
        ([1, 0], [-1, 0], 2.0),
        ([1, 0], [1, 1], round(1 - 1 / math.sqrt(2), 9)),
        ([0.3, 0.4], [0.6, 0.8], 0.0),
        ([1e-200, 0], [1e-200, 1e-200], round(1 - 1 / math.sqrt(2), 9)),
    ],
)
def test_distance_is_one_minus_the_cosine(one: list[float], other: list[float], value: float) -> None:
    assert distance(one, other) == value


@pytest.mark.parametrize(
    ("one", "other"),
    [([0, 0], [1, 0]), ([0, 0], [0, 0]), ([], []), ([math.nan, 0], [1, 0]), ([math.inf, 0], [1, 0])],
)
def test_distance_without_a_direction_is_unknown_and_not_zero(one: list[float], other: list[float]) -> None:
    assert distance(one, other) is None
    assert distance(other, one) is None


def test_vectors_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="got 1 and 2 numbers; limit equal lengths"):
        distance([1], [1, 2])


@given(vector, vector)
@settings(deadline=None)
def test_distance_is_symmetric_and_between_0_and_2(one: list[float], other: list[float]) -> None:
    value = distance(one, other)
    assert value == distance(other, one)
    assert (value is None) == (not any(one) or not any(other))
    assert value is None or 0 <= value <= 2


@given(vector.filter(any), vector.filter(any), st.floats(0.001, 1))
@settings(deadline=None)
def test_distance_depends_on_direction_only(one: list[float], other: list[float], factor: float) -> None:
    whole, scaled = distance(one, other), distance([factor * x for x in one], other)
    assert whole is not None
    assert scaled == pytest.approx(whole, abs=2e-9)
    opposite = distance([-x for x in one], other)
    assert opposite == pytest.approx(2 - whole, abs=2e-9)


async def test_the_declared_estimator_measures_all_pairs() -> None:
    estimator: DiversityEstimator = DeclaredDiversity()
    matrix = await estimator.distances([persona("a", 1), persona("b", 0, 1), persona("c", -1), persona("d")])
    assert estimator.name == matrix.estimator == "declared"
    assert matrix.ids == ("a", "b", "c", "d")
    assert matrix.rows == (
        (0.0, 1.0, 2.0, None),
        (1.0, 0.0, 1.0, None),
        (2.0, 1.0, 0.0, None),
        (None, None, None, 0.0),
    )
    assert matrix.between("c", "a") == 2.0


def test_the_minimum_of_some_personas_is_unknown_if_one_distance_is() -> None:
    matrix = declared_distances([persona("a", 1), persona("b", 0, 1), persona("c", -1), persona("d")])
    assert matrix.minimum(["a", "c"]) == 2.0
    assert matrix.minimum(["a", "b", "c"]) == 1.0
    assert matrix.minimum(["a", "b", "d"]) is None
    assert matrix.minimum(["a"]) is None


def test_a_persona_that_was_not_measured_is_named() -> None:
    matrix = declared_distances([persona("a", 1)])
    with pytest.raises(UnknownName, match="did not measure this persona; got 'z'; limit a"):
        matrix.between("a", "z")


def test_the_shipped_library_has_no_unknown_distance() -> None:
    matrix = declared_distances(list(builtin_personas().values()))
    assert all(value is not None for row in matrix.rows for value in row)
