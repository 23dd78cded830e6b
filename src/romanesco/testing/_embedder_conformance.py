"""What every embedder must do, as one function to call from a test."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from romanesco.embeddings import Embedder
from romanesco.errors import EmbeddingFailed

_TEXTS = (
    "The bakery opens at six in the morning.",
    "Bread is baked before sunrise.",
    "Quarterly revenue fell by four per cent.",
    "Ein zweiter Satz mit Umlauten: äöü, 漢字 and an emoji \U0001f950.",
    "x",
)


async def embedder_conformance(embedder: Embedder) -> None:
    """Check an embedder against the contract of :class:`~romanesco.embeddings.Embedder`.

    Checked: the right number of unit vectors of the declared length, in order, of finite numbers; the same vector
    for the same text, whatever its neighbours and however many callers; no text is cut silently; an empty text is
    refused by its index; no texts give no vectors.

    Raises:
        AssertionError: It breaks the contract; the message says where.
    """
    _require(isinstance(embedder.name, str) and bool(embedder.name), "the embedder has no name")
    vectors = await embedder.embed(_TEXTS)
    _check_shape(embedder, vectors, len(_TEXTS))
    _require(await embedder.embed([]) == [], "no texts must give no vectors")
    for text, vector in zip(_TEXTS, vectors, strict=True):
        (alone,) = await embedder.embed([text])
        _require(_near(alone, vector), f"the vector of {text!r} depends on its neighbours or its place")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(embedder.embed(_TEXTS)) for _ in range(8)]
    for task in tasks:
        same = all(_near(one, other) for one, other in zip(task.result(), vectors, strict=True))
        _require(same, "concurrent callers get different vectors")
    await _check_long(embedder)
    await _check_empty(embedder)


async def _check_long(embedder: Embedder) -> None:
    body = "The bakery sells bread, rolls and cake to its neighbours. " * 2_000
    tail = "Quarterly revenue of the steel mill fell by four per cent. " * 2_000
    try:
        one, other = await embedder.embed([body, body + tail])
    except EmbeddingFailed:
        return  # refusing a text that is too long is within the contract; cutting it is not
    _check_shape(embedder, [one, other], 2)
    _require(not _near(one, other), "the end of a long text makes no difference: it was cut silently")


async def _check_empty(embedder: Embedder) -> None:
    for empty in ("", " \n\t"):
        try:
            await embedder.embed(["something", empty])
        except EmbeddingFailed as error:
            _require("1" in str(error), f"the error for an empty text does not give its index: {error}")
        else:
            raise AssertionError(f"an empty text ({empty!r}) must raise EmbeddingFailed")


def _check_shape(embedder: Embedder, vectors: Sequence[Sequence[float]], count: int) -> None:
    _require(len(vectors) == count, f"{count} texts gave {len(vectors)} vectors")
    for index, vector in enumerate(vectors):
        _require(len(vector) == embedder.dimensions, f"vector {index} has {len(vector)} numbers")
        _require(all(math.isfinite(value) for value in vector), f"vector {index} holds numbers that are not finite")
        length = math.sqrt(math.fsum(value * value for value in vector))
        _require(abs(length - 1.0) < 1e-4, f"vector {index} has length {length}, not 1")


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) > 1.0 - 1e-5


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
