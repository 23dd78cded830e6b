from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.topologies.fractal._diversity import curve, log_det, mean_distance, usable


def vectors(count: int, seed: int = 1, size: int = 64) -> list[list[float]]:
    rng = random.Random(seed)
    return [[rng.gauss(0, 1) for _ in range(size)] for _ in range(count)]


def test_nothing_has_no_diversity_and_one_proposal_has_log_2() -> None:
    assert log_det([]) == 0.0
    assert log_det([[3.0, 4.0]]) == pytest.approx(math.log(2))


def test_identical_proposals() -> None:
    assert log_det([[1.0, 2.0]] * 4) == pytest.approx(math.log(5))
    points = curve([[[1.0, 2.0]] * 4, [[1.0, 2.0]] * 4], switch="first", threshold=0.65)
    assert points[0].distance == pytest.approx(0.0)
    assert points[1].ratio == pytest.approx((math.log(9) - math.log(5)) / math.log(5))
    assert points[1].ratio is not None and points[1].ratio < 0.65


def test_orthogonal_proposals() -> None:
    axes = [[float(i == j) for j in range(4)] for i in range(4)]
    assert log_det(axes) == pytest.approx(4 * math.log(2))
    assert mean_distance(axes) == pytest.approx(1.0)
    assert mean_distance(axes[:1]) is None


def test_the_first_round_has_no_ratio() -> None:
    (point,) = curve([vectors(3)], switch="first", threshold=0.65)
    assert (point.round, point.ratio, point.threshold) == (1, None, 0.65)
    assert point.value == point.gain


def test_fresh_rounds_do_not_saturate_and_repeated_ones_do() -> None:
    first = vectors(4)
    fresh = curve([first, vectors(4, seed=2)], switch="first", threshold=0.65)
    again = curve([first, first], switch="first", threshold=0.65)
    assert fresh[1].ratio is not None and again[1].ratio is not None
    assert again[1].ratio < 0.65 < fresh[1].ratio


def test_the_paper_compares_with_the_round_before() -> None:
    rounds = [vectors(4), vectors(4, seed=2), vectors(4, seed=3)]
    ours = curve(rounds, switch="first", threshold=0.65)
    paper = curve(rounds, switch="paper", threshold=0.65)
    assert ours[1].ratio == paper[1].ratio
    assert ours[1].gain is not None and ours[2].gain is not None
    assert paper[2].ratio == pytest.approx(ours[2].gain / ours[1].gain)


@pytest.mark.parametrize("bad", [None, [[0.0, 0.0]], [[math.nan, 1.0]], [[math.inf, 1.0]]])
def test_br_145_what_could_not_be_measured_is_unknown_from_there_on(bad: list[list[float]] | None) -> None:
    points = curve([[[1.0, 0.0]], bad, [[0.0, 1.0]]], switch="first", threshold=0.65)
    assert points[0].value is not None
    assert [(one.value, one.gain, one.ratio) for one in points[1:]] == [(None, None, None)] * 2


def test_a_round_in_which_everybody_failed_is_unknown_and_not_zero() -> None:
    points = curve([vectors(4), [], vectors(4, seed=2)], switch="first", threshold=0.65)
    assert (points[1].value, points[1].gain, points[1].ratio, points[1].distance) == (None, None, None, None)
    assert points[2] == replace(curve([vectors(4), vectors(4, seed=2)], switch="first", threshold=0.65)[1], round=3)


def test_silent_members_do_not_look_like_agreement() -> None:
    first, second = vectors(4), vectors(4, seed=2)
    points = curve([first, second[:1]], switch="first", threshold=0.65)
    assert points[0].gain is not None and points[1].gain is not None and points[1].ratio is not None
    assert points[1].gain / points[0].gain < 0.65 < points[1].ratio


def test_only_usable_vectors_are_measured() -> None:
    assert usable([[1.0]]) and not usable([[0.0]])
    with pytest.raises(ValueError, match="no finite length"):
        log_det([[0.0, 0.0]])


rows = st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda v: math.hypot(*v) > 0.1), min_size=1)


@given(rows, st.floats(0.1, 10))
@settings(deadline=None)
def test_a_proposal_always_adds_and_length_does_not_matter(found: list[list[float]], scale: float) -> None:
    values = [log_det(found[:n]) for n in range(len(found) + 1)]
    gains = [after - before for before, after in itertools.pairwise(values)]
    assert all(gain > 0 for gain in gains)
    assert all(gain <= math.log(2) + 1e-9 for gain in gains)
    assert log_det([[scale * x for x in vector] for vector in found]) == pytest.approx(values[-1])
