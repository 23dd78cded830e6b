"""How far apart personas are (Def. 3), behind one interface for several estimators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from romanesco.errors import InputError, UnknownName
from romanesco.personas._persona import Persona

DECIMALS = 9
"""Distances are rounded to this many decimals, so that a choice does not hang on the last bit of a machine's
arithmetic: a run resumed elsewhere must choose the same personas."""


def distance(beta_i: Sequence[float], beta_j: Sequence[float]) -> float | None:
    """Diversity of two bias vectors: ``1 - <beta_i, beta_j> / (|beta_i| |beta_j|)`` (Def. 3).

    Args:
        beta_i: A vector of finite numbers.
        beta_j: Another one of the same length.

    Returns:
        A number from 0 (same direction) to 2 (opposite), rounded to 9 decimals; None if a vector is zero, has
        no elements, or is not finite: the angle is then undefined, so the distance is unknown and not 0.

    Raises:
        InputError: The vectors differ in length.
    """
    if len(beta_i) != len(beta_j):
        raise InputError(
            "vectors of different length have no distance",
            value=f"{len(beta_i)} and {len(beta_j)} numbers",
            limit="equal lengths",
            advice="Use vectors of one estimator.",
        )
    norm_i, norm_j = math.hypot(*beta_i), math.hypot(*beta_j)
    if not (0 < norm_i < math.inf and 0 < norm_j < math.inf):
        return None
    # Divided before multiplying, so that tiny vectors do not vanish; summed exactly, so that order does not
    # matter.
    cosine = math.fsum((x / norm_i) * (y / norm_j) for x, y in zip(beta_i, beta_j, strict=True))
    return round(1.0 - max(-1.0, min(1.0, cosine)), DECIMALS)


@dataclass(frozen=True, slots=True)
class DistanceMatrix:
    """Pairwise distances of personas.

    Attributes:
        estimator: Which estimator measured them.
        ids: Persona ids, in the order of rows and columns.
        rows: Symmetric, with 0 on the diagonal; None where the distance is unknown.
    """

    estimator: str
    ids: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]

    def between(self, first: str, second: str) -> float | None:
        """Distance of two personas by id; None if unknown.

        Raises:
            UnknownName: One of them was not measured.
        """
        for persona in (first, second):
            if persona not in self.ids:
                raise UnknownName(
                    f"the {self.estimator} estimator did not measure this persona",
                    value=repr(persona),
                    limit=", ".join(self.ids),
                    advice="Measure all personas of the library.",
                )
        return self.rows[self.ids.index(first)][self.ids.index(second)]

    def minimum(self, members: Iterable[str]) -> float | None:
        """Smallest distance among some personas; None if one of them is unknown, or without a pair."""
        found = [self.between(first, second) for first, second in combinations(members, 2)]
        known = [value for value in found if value is not None]
        return min(known) if known and len(known) == len(found) else None


class DiversityEstimator(Protocol):
    """Measures how far apart personas are: from what they declare, are told or proposed."""

    @property
    def name(self) -> str:
        """``declared``, ``embedded`` or ``observed``."""
        ...

    async def distances(self, personas: Sequence[Persona]) -> DistanceMatrix:
        """Distances of all pairs, each from 0 to 2 or None for unknown."""
        ...


class DeclaredDiversity:
    """The distance of the biases that personas declare. Needs no model and always gives the same result."""

    name = "declared"

    async def distances(self, personas: Sequence[Persona]) -> DistanceMatrix:
        """Distances of all pairs; None where a persona declares no leaning at all."""
        return declared_distances(personas)


def declared_distances(personas: Sequence[Persona]) -> DistanceMatrix:
    """The declared estimator as a plain function.

    Args:
        personas: Personas with different ids.
    """
    rows = tuple(
        tuple(0.0 if one.id == other.id else distance(one.beta, other.beta) for other in personas) for one in personas
    )
    return DistanceMatrix(DeclaredDiversity.name, tuple(persona.id for persona in personas), rows)
