"""An embedder for tests: no files, no network, the same vectors on every machine."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from romanesco.errors import EmbeddingFailed


class NgramEmbedder:
    """An :class:`~romanesco.embeddings.Embedder` that counts the character n-grams of a text into hashed buckets.

    Texts that share wording are near each other, texts that do not are far apart; meaning plays no part.

    Args:
        dimensions: Number of buckets.
        size: Characters in an n-gram.
        fail_on: Texts that contain this raise ``EmbeddingFailed``: for tests of a failing instrument.
    """

    def __init__(self, *, dimensions: int = 256, size: int = 3, fail_on: str | None = None) -> None:
        self.name = f"ngram:{size}x{dimensions}"
        self.dimensions = dimensions
        self.calls = 0
        self._size = size
        self._fail_on = fail_on

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts.

        Raises:
            EmbeddingFailed: A text is empty or contains ``fail_on``.
        """
        self.calls += 1
        return [self._vector(text, index) for index, text in enumerate(texts)]

    def _vector(self, text: str, index: int) -> list[float]:
        if not text.strip():
            raise EmbeddingFailed(f"Text {index} is empty: nothing has no direction")
        if self._fail_on is not None and self._fail_on in text:
            raise EmbeddingFailed(f"Text {index} contains {self._fail_on!r}, which this embedder was told to fail on")
        padded = f" {' '.join(text.lower().split())} "
        buckets = [0.0] * self.dimensions
        for start in range(max(1, len(padded) - self._size + 1)):
            piece = padded[start : start + self._size].encode("utf-8", "surrogatepass")
            buckets[zlib.crc32(piece) % self.dimensions] += 1.0
        length = math.sqrt(sum(value * value for value in buckets))
        return [value / length for value in buckets]
