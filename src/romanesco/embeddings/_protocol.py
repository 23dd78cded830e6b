"""The one interface that every embedder has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of length 1, so that a dot product is a cosine similarity.

    The vector of a text depends on that text alone, not on its neighbours in the call, and covers the whole text:
    an embedder that has a limit says so with an error and never cuts silently. Whoever measures with an embedder
    treats a failure as *unknown*, never as agreement.
    """

    name: str
    """``kind:table``, recorded with every measurement: vectors of different embedders can't be compared."""

    dimensions: int
    """Length of each vector."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts.

        Args:
            texts: The texts. None of them may be empty or white space alone: nothing has no direction.

        Returns:
            A unit vector of ``dimensions`` finite numbers for each text, in the same order.

        Raises:
            EmbeddingFailed: There is no usable vector for one of the texts; the message gives its index.
        """
        ...
