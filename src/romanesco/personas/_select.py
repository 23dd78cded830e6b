"""Which personas deliberate: the most dispersed ensemble of the library (spec, section 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from romanesco.errors import InputError, PlanRefused
from romanesco.personas._diversity import DECIMALS, DistanceMatrix, declared_distances
from romanesco.personas._library import find_persona
from romanesco.personas._persona import EVALUATORS, FRAME_CHALLENGER, Persona, PersonaRole

K_MIN = 3
K_MAX = 5
"""Smallest and largest number of proposers (Def. 1)."""

EXACT_SUBSETS = 20_000
"""Above this many possible ensembles the search is greedy with swaps instead of exact. With one required
member the search stays exact up to 201 generators for k = 3, 50 for k = 4 and 28 for k = 5."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Who deliberates.

    Attributes:
        proposers: 3 to 5 personas, in the order of their ids.
        evaluators: The two evaluators, in the order asked for.
        min_distance: Smallest distance between two proposers, 0 to 2; None if a pair's distance is unknown.
        delta: The distance that was asked for.
        admissible: Whether ``min_distance >= delta`` (Def. 3). An unknown distance is not admissible.
        closest: Ids of the two proposers with the smallest known distance; () if none is known.
        estimator: Which estimator measured the distances.
        searched: How many ensembles were compared.
        exact: Whether these were all possible ones; if not, a better one may exist.
    """

    proposers: tuple[Persona, ...]
    evaluators: tuple[Persona, ...]
    min_distance: float | None
    delta: float
    admissible: bool
    closest: tuple[str, ...]
    estimator: str
    searched: int
    exact: bool


def select_ensemble(
    library: Mapping[str, Persona],
    *,
    k: int,
    delta: float,
    required: Sequence[str] = (),
    evaluators: Sequence[str] = EVALUATORS,
    evaluators_propose: bool = False,
    distances: DistanceMatrix | None = None,
    fit: Mapping[str, float] | None = None,
    on_inadmissible: Literal["go-on", "stop"] = "go-on",
) -> Ensemble:
    """The ensemble whose closest pair of proposers is farthest apart (max-min dispersion).

    The Frame Challenger and every mandatory persona propose in any case. Ensembles with equal smallest
    distance are told apart by the sum of ``fit``, then by their mean distance, then by their ids; the order
    of the library does not matter.

    Args:
        library: Personas by id.
        k: Number of proposers, 3 to 5.
        delta: Distance that any two proposers should have, 0 to 2.
        required: Ids of further personas that must propose.
        evaluators: Ids of exactly two personas with role evaluator.
        evaluators_propose: Whether the two evaluators are among the k proposers too.
        distances: Distances of at least all candidates; the declared ones by default.
        fit: How well a persona fits the goal, by id, any finite number; 0 for personas left out.
        on_inadmissible: ``go-on`` returns the best ensemble with ``admissible=False``; ``stop`` refuses.

    Raises:
        InputError: An argument is out of range, or the required personas are more than k.
        UnknownName: An id is not in the library.
        PlanRefused: No ensemble reaches ``delta`` and ``on_inadmissible`` is ``stop``.
    """
    _check_numbers(k, delta, on_inadmissible)
    judges = _judges(library, evaluators)
    fixed = _fixed(library, required, judges if evaluators_propose else ())
    candidates = [p.id for p in library.values() if p.role is PersonaRole.GENERATOR or p.id in fixed]
    _check_size(k, fixed, candidates)
    matrix = distances or declared_distances([library[persona] for persona in candidates])
    scale = _Scale(matrix, candidates, _checked_fit(library, fit))
    free = sorted(set(candidates) - fixed)
    seats = k - len(fixed)
    exact = math.comb(len(free), seats) <= EXACT_SUBSETS
    best, searched = (_exact if exact else _greedy)(scale, sorted(fixed), free, seats)
    lowest, pair = scale.closest(best)
    known = not scale.unknown(best)
    ensemble = Ensemble(
        proposers=tuple(library[persona] for persona in best),
        evaluators=judges,
        min_distance=lowest if known else None,
        delta=float(delta),
        admissible=known and lowest >= delta,
        closest=pair,
        estimator=matrix.estimator,
        searched=searched,
        exact=exact,
    )
    if on_inadmissible == "stop" and not ensemble.admissible:
        raise _refusal(ensemble)
    return ensemble


_Score = tuple[int, float, float, float]


class _Scale:
    """Compares ensembles: fewest unknown distances, then the closest pair, then fit, then mean distance."""

    def __init__(self, matrix: DistanceMatrix, candidates: Iterable[str], fit: Mapping[str, float]) -> None:
        self._fit = fit
        self._distances: dict[tuple[str, str], float | None] = {}
        place = {persona: index for index, persona in enumerate(matrix.ids)}
        for first, second in combinations(sorted(candidates), 2):
            if first not in place or second not in place:
                matrix.between(first, second)  # raises the error that names the persona
            self._distances[first, second] = matrix.rows[place[first]][place[second]]

    def score(self, members: Sequence[str]) -> _Score:
        """Larger is better. Members are in the order of their ids."""
        found = [self._distances[pair] for pair in combinations(members, 2)]
        known = [value for value in found if value is not None]
        fit = round(math.fsum(self._fit.get(persona, 0.0) for persona in members), DECIMALS)
        if not known:
            return (-len(found), 0.0, fit, 0.0)
        return (len(known) - len(found), min(known), fit, round(math.fsum(known) / len(known), DECIMALS))

    def closest(self, members: Sequence[str]) -> tuple[float, tuple[str, ...]]:
        """Smallest known distance and the pair that has it."""
        known = [(self._distances[pair], pair) for pair in combinations(members, 2)]
        return min(((value, pair) for value, pair in known if value is not None), default=(0.0, ()))

    def unknown(self, members: Sequence[str]) -> bool:
        """Whether any pair's distance is unknown."""
        return any(self._distances[pair] is None for pair in combinations(members, 2))


def _exact(scale: _Scale, fixed: list[str], free: list[str], seats: int) -> tuple[list[str], int]:
    best: list[str] = []
    top: _Score | None = None
    searched = 0
    for chosen in combinations(free, seats):
        members = sorted([*fixed, *chosen])
        score = scale.score(members)
        searched += 1
        # Strictly better only: of equals the first stays, and combinations come in the order of the ids.
        if top is None or score > top:
            best, top = members, score
    return best, searched


def _greedy(scale: _Scale, fixed: list[str], free: list[str], seats: int) -> tuple[list[str], int]:
    chosen: list[str] = []
    searched = 0
    for _ in range(seats):
        trials = [sorted([*fixed, *chosen, one]) for one in free if one not in chosen]
        searched += len(trials)
        best = max(trials, key=scale.score)  # max keeps the first of equals
        chosen = [persona for persona in best if persona not in fixed]
    while True:
        members = sorted([*fixed, *chosen])
        trials = [
            sorted([*(persona for persona in members if persona != out), one])
            for out in chosen
            for one in free
            if one not in chosen
        ]
        searched += len(trials)
        best = max(trials, key=scale.score, default=members)
        if scale.score(best) <= scale.score(members):  # each swap is strictly better, so this ends
            return members, searched
        chosen = [persona for persona in best if persona not in fixed]


def _check_numbers(k: object, delta: object, on_inadmissible: object) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not K_MIN <= k <= K_MAX:
        raise InputError(
            "number of proposers k is out of range",
            value=repr(k),
            limit=f"{K_MIN} to {K_MAX}",
            advice="Set k to 3, 4 or 5; for one agent use the topology 'single'.",
        )
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta <= 2:
        raise InputError(
            "diversity threshold delta is out of range",
            value=repr(delta),
            limit="0 to 2",
            advice="It is a cosine distance: 0 admits every ensemble, 0.4 is the paper's choice.",
        )
    if on_inadmissible not in ("go-on", "stop"):
        raise InputError(
            "on_inadmissible is not a choice",
            value=repr(on_inadmissible),
            limit="go-on, stop",
            advice="Use one of them.",
        )


def _judges(library: Mapping[str, Persona], evaluators: Sequence[str]) -> tuple[Persona, ...]:
    if len(set(evaluators)) != 2 or len(evaluators) != 2:
        raise InputError(
            "an ensemble has exactly two different evaluators",
            value=", ".join(evaluators) or "none",
            limit="2",
            advice=f"The library's are {' and '.join(EVALUATORS)}.",
        )
    judges = tuple(find_persona(library, persona) for persona in evaluators)
    for judge in judges:
        if judge.role is not PersonaRole.EVALUATOR:
            raise InputError(
                "this persona can't evaluate",
                value=f"'{judge.id}' with role {judge.role}",
                limit="role evaluator",
                advice="Name a persona whose role is evaluator.",
            )
    return judges


def _fixed(library: Mapping[str, Persona], required: Sequence[str], judges: Sequence[Persona]) -> set[str]:
    seated = {judge.id for judge in judges}
    for persona in (find_persona(library, one) for one in required):
        if persona.role is PersonaRole.EVALUATOR and persona.id not in seated:
            raise InputError(
                "a required proposer is an evaluator",
                value=f"'{persona.id}'",
                limit="role generator",
                advice="Set evaluators_propose and seat it as an evaluator, or require a generator.",
            )
    mandatory = {persona.id for persona in library.values() if persona.mandatory}
    challenger = find_persona(library, FRAME_CHALLENGER)
    return {challenger.id, *mandatory, *required, *seated}


def _check_size(k: int, fixed: set[str], candidates: Sequence[str]) -> None:
    if len(fixed) > k:
        raise InputError(
            "more proposers are required than the ensemble has seats",
            value=f"{len(fixed)} ({', '.join(sorted(fixed))})",
            limit=f"k = {k}",
            advice="Require fewer or raise k (at most 5). The Frame Challenger is always required.",
        )
    if len(candidates) < k:
        raise InputError(
            "the library has too few generators",
            value=len(candidates),
            limit=f"at least k = {k}",
            advice="Add personas to it or lower k (at least 3).",
        )


def _checked_fit(library: Mapping[str, Persona], fit: Mapping[str, float] | None) -> Mapping[str, float]:
    for persona, value in (fit or {}).items():
        find_persona(library, persona)
        if not math.isfinite(value):
            raise InputError(
                f"fit of persona '{persona}' is not a finite number",
                value=value,
                limit="finite numbers",
                advice="Leave a persona out whose fit is unknown.",
            )
    return fit or {}


def _refusal(ensemble: Ensemble) -> PlanRefused:
    members = ", ".join(persona.id for persona in ensemble.proposers)
    if ensemble.min_distance is None:
        value = f"unknown for the best ensemble ({members}): a persona declares no leaning"
    else:
        pair = " and ".join(ensemble.closest)
        value = f"{ensemble.min_distance:.3f} between {pair} in the best ensemble ({members})"
    return PlanRefused(
        "no ensemble is diverse enough",
        value=value,
        limit=f"delta = {ensemble.delta:g}",
        advice="Lower delta, require fewer personas, add some to the library, or go on with this one.",
    )
