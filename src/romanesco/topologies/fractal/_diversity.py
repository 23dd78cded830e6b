"""Diversity of the proposals over the rounds, by a determinant.

``Div(r) = log det(I + K_r)``, where ``K_r`` is the Gram matrix of the unit embeddings of all proposals of rounds
1..r, and ``Div(0) = 0``. Adding a proposal always raises it and by less the nearer it is to what is there, which
neither the mean pairwise distance nor ``log det K_r`` of the paper's reading does.

Cases, all tested:

- a round in which nobody proposed: its value and gain are None, because nothing was measured; the rounds after it are
  measured on what there is;
- one proposal: ``Div = log 2``; all ``n`` identical: ``Div = log(1 + n)``;
- a text that the embedder could not embed, a vector without length or with
  a NaN: the round's value is None (*unknown*), and so is every ratio that needs it. Unknown is never "saturated";
- some members missing in a round: gains are compared *per proposal*, so that silence does not look like agreement.
  With nobody missing this is the plain ratio of gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from romanesco.task import DiversityPoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vector = Sequence[float]
Round = Sequence[Vector] | None
"""The vectors of one round's proposals, or None if any of them could not be measured."""


def log_det(vectors: Sequence[Vector]) -> float:
    """``log det(I + K)`` of the vectors' Gram matrix after scaling each to length 1; 0 for no vectors.

    Raises:
        ValueError: A vector has no length or holds a NaN or an infinity.
    """
    if not vectors:
        return 0.0
    import numpy as np  # 60 ms at import: only where something is measured

    unit = _units(vectors)
    _sign, value = np.linalg.slogdet(np.eye(len(vectors)) + unit @ unit.T)
    return float(value)


def mean_distance(vectors: Sequence[Vector]) -> float | None:
    """Mean pairwise cosine distance, or None for fewer than two vectors."""
    if len(vectors) < 2:
        return None
    unit = _units(vectors)
    gram = unit @ unit.T
    n = len(vectors)
    return float((n * n - gram.sum() - (n - gram.trace())) / (n * (n - 1)))


def usable(vectors: Sequence[Vector]) -> bool:
    """Whether every vector has a finite length above zero."""
    return all(0.0 < math.fsum(x * x for x in vector) < math.inf for vector in vectors)


def curve(rounds: Sequence[Round], *, switch: str, threshold: float) -> tuple[DiversityPoint, ...]:
    """Diversity after each round (Def. 9).

    Args:
        rounds: For each round the vectors of its new proposals, or None if they could not be measured.
        switch: ``first``: the ratio is this round's gain over the first round's (ours); ``paper``: over the round's
            before.
        threshold: What the ratio will be compared with; copied into the points.
    """
    points: list[DiversityPoint] = []
    seen: list[Vector] = []
    known = True
    before = 0.0
    shares: list[float | None] = []  # gain per new proposal
    for number, vectors in enumerate(rounds, start=1):
        known = known and vectors is not None and usable(vectors)
        if not known or vectors is None:
            shares.append(None)
            points.append(DiversityPoint(number, None, None, None, threshold, None))
            continue
        if not vectors:  # nobody proposed: 0 would say that nothing new was said
            shares.append(None)
            points.append(DiversityPoint(number, None, None, None, threshold, None))
            continue
        seen.extend(vectors)
        value = log_det(seen)
        gain = value - before
        before = value
        shares.append(gain / len(vectors))
        ratio = _ratio(shares, switch)
        points.append(DiversityPoint(number, value, gain, ratio, threshold, mean_distance(vectors)))
    return tuple(points)


def _ratio(shares: Sequence[float | None], switch: str) -> float | None:
    if len(shares) < 2:
        return None
    reference = shares[0] if switch == "first" else shares[-2]
    latest = shares[-1]
    if latest is None or reference is None or reference <= 0.0:
        return None
    return latest / reference


def _units(vectors: Sequence[Vector]) -> NDArray[np.float64]:
    import numpy as np

    if not usable(vectors):
        raise ValueError("a vector has no finite length above zero")
    matrix = np.asarray(vectors, dtype=np.float64)
    units: NDArray[np.float64] = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    return units
