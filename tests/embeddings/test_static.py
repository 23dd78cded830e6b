"""The static embedder with its real table."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from romanesco import _assets
from romanesco._assets import WORDLLAMA, require
from romanesco.embeddings import Embedder, StaticEmbedder, _static
from romanesco.errors import ConfigError, EmbeddingFailed
from romanesco.testing._embedder_conformance import embedder_conformance

EMBEDDER = StaticEmbedder()


def likeness(one: list[float], other: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


async def test_it_conforms() -> None:
    assert isinstance(EMBEDDER, Embedder)
    await embedder_conformance(EMBEDDER)


async def test_near_meanings_are_nearer_than_far_ones() -> None:
    bakery, bread, steel = await EMBEDDER.embed([
        "The bakery opens at six.",
        "Bread is baked early in the morning.",
        "Steel revenue fell by four per cent.",
    ])
    assert likeness(bakery, bread) > likeness(bakery, steel) + 0.2


async def test_a_long_text_is_the_mean_of_all_of_it() -> None:
    one, twice, tail = await EMBEDDER.embed([
        "bread " * 30_000,
        "bread " * 60_000,
        "bread " * 30_000 + "steel " * 30_000,
    ])
    assert likeness(one, twice) > 0.9999
    assert likeness(one, tail) < 0.9


@pytest.mark.parametrize("empty", ["", "   ", "\n\t", "\u3000"])
async def test_an_empty_text_is_refused_by_its_index(empty: str) -> None:
    with pytest.raises(EmbeddingFailed, match="Text 2 is empty"):
        await EMBEDDER.embed(["a", "b", empty])


async def test_broken_unicode_is_refused_by_its_index() -> None:
    with pytest.raises(EmbeddingFailed, match="Text 1 is not valid Unicode"):
        await EMBEDDER.embed(["a", "b\ud800"])


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=80).filter(lambda text: text.strip() != ""))
def test_any_text_has_a_unit_vector(text: str) -> None:
    (vector,) = asyncio.run(EMBEDDER.embed([text]))
    assert len(vector) == EMBEDDER.dimensions
    assert abs(math.fsum(value * value for value in vector) - 1.0) < 1e-6


async def test_the_table_is_loaded_once_for_concurrent_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[object] = []
    load = _static._load

    def counted(paths: tuple[Path, ...] | None) -> object:
        loads.append(paths)
        return load(paths)

    monkeypatch.setattr(_static, "_load", counted)
    embedder = StaticEmbedder()
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(embedder.embed(["hello"]))
    assert loads == [None]


async def test_br_145_a_missing_table_is_a_failure_and_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_assets, "folders", lambda env=None: iter([tmp_path]))
    with pytest.raises(EmbeddingFailed, match="romanesco models --fetch"):
        await StaticEmbedder().embed(["a"])


async def test_own_tables_are_checked(tmp_path: Path) -> None:
    tokenizer = require(WORDLLAMA)[1]
    tokens = len(json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"])
    good, small, hollow = (
        tmp_path / "good.safetensors",
        tmp_path / "small.safetensors",
        tmp_path / "nan.safetensors",
    )
    save_file({"table": np.ones((tokens, 4), dtype=np.float16)}, good)
    save_file({"table": np.ones((tokens - 1, 4), dtype=np.float16)}, small)
    save_file({"table": np.full((tokens, 4), np.nan, dtype=np.float16)}, hollow)
    embedder = StaticEmbedder(table=good, tokenizer=tokenizer, dimensions=4)
    assert embedder.name == "static:good"
    assert await embedder.embed(["any text"]) == [[0.5, 0.5, 0.5, 0.5]]
    with pytest.raises(EmbeddingFailed, match="does not fit"):
        await StaticEmbedder(table=small, tokenizer=tokenizer, dimensions=4).embed(["a"])
    with pytest.raises(EmbeddingFailed, match="does not fit"):
        await StaticEmbedder(table=good, tokenizer=tokenizer).embed(["a"])
    with pytest.raises(EmbeddingFailed, match="Text 0 has no direction; got a vector of length nan"):
        await StaticEmbedder(table=hollow, tokenizer=tokenizer, dimensions=4).embed(["a"])
    with pytest.raises(EmbeddingFailed, match="can't be read"):
        await StaticEmbedder(table=tokenizer, tokenizer=tokenizer).embed(["a"])
    with pytest.raises(EmbeddingFailed, match="tokenizer can't be read"):
        await StaticEmbedder(table=good, tokenizer=good, dimensions=4).embed(["a"])
    with pytest.raises(ConfigError, match="its own tokenizer"):
        StaticEmbedder(table=good)
