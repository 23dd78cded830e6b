"""The embedder for tests, and that the conformance suite finds what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from romanesco.embeddings import Embedder
from romanesco.errors import EmbeddingFailed
from romanesco.testing._embedder import NgramEmbedder
from romanesco.testing._embedder_conformance import embedder_conformance

Vectors = list[list[float]]


async def test_it_conforms() -> None:
    assert isinstance(NgramEmbedder(), Embedder)
    await embedder_conformance(NgramEmbedder())
    await embedder_conformance(NgramEmbedder(dimensions=64, size=2))


async def test_shared_wording_is_near() -> None:
    a, b, c = await NgramEmbedder().embed([
        "sell bread online",
        "sell bread in shops",
        "quarterly mill revenue",
    ])
    near, far = (math.fsum(x * y for x, y in zip(a, other, strict=True)) for other in (b, c))
    assert near > far + 0.3


async def test_it_is_the_same_everywhere() -> None:
    (vector,) = await NgramEmbedder(dimensions=4).embed(["abc"])
    assert vector == pytest.approx([2 / math.sqrt(5), 0.0, 1 / math.sqrt(5), 0.0])


async def test_it_fails_when_told_to() -> None:
    embedder = NgramEmbedder(fail_on="poison")
    await embedder.embed(["fine"])
    with pytest.raises(EmbeddingFailed, match="Text 1 contains 'poison'"):
        await embedder.embed(["fine", "some poison"])
    assert embedder.calls == 2


class Faulty:
    """Wraps a good embedder and spoils what it gives."""

    name = "faulty"
    dimensions = 256

    def __init__(self, spoil: Callable[[Sequence[str], Vectors], Vectors]) -> None:
        self._good = NgramEmbedder()
        self._spoil = spoil

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return self._spoil(texts, await self._good.embed([text if text.strip() else "blank" for text in texts]))


def cut(texts: Sequence[str], vectors: Vectors) -> Vectors:
    return [[1.0] + [0.0] * 255 if len(text) > 1000 else vector for text, vector in zip(texts, vectors, strict=True)]


def by_place(_texts: Sequence[str], vectors: Vectors) -> Vectors:
    return [vector if index % 2 else vector[::-1] for index, vector in enumerate(vectors)]


@pytest.mark.parametrize(
    ("spoil", "finds"),
    [
        (lambda _texts, vectors: vectors[:-1], "texts gave"),
        (lambda _texts, vectors: [vector[:-1] for vector in vectors], "has 255 numbers"),
        (lambda _texts, vectors: [[math.nan] * 256 for _ in vectors], "not finite"),
        (lambda _texts, vectors: [[2 * value for value in vector] for vector in vectors], "length 2"),
        (by_place, "depends on its neighbours or its place"),
        (cut, "cut silently"),
        (lambda _texts, vectors: vectors, "must raise EmbeddingFailed"),
    ],
)
async def test_the_suite_finds(spoil: Callable[[Sequence[str], Vectors], Vectors], finds: str) -> None:
    with pytest.raises(AssertionError, match=finds):
        await embedder_conformance(Faulty(spoil))
