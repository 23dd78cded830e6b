"""The default embedder: a table of word vectors, read from a file, without a network or a neural network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from romanesco._assets import WORDLLAMA, require
from romanesco.errors import ConfigError, EmbeddingFailed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_INLINE_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class _Table:
    vectors: npt.NDArray[np.float16]
    tokenizer: Any


class StaticEmbedder:
    """An :class:`Embedder` whose vector of a text is the mean of its tokens' vectors, scaled to length 1.

    Word order does not count. Files: the 256-dimensional table and the tokenizer of the package ``wordllama``
    (MIT), found as ``romanesco._assets`` says; they are read at the first use (about 0.1 s), in a thread.

    Args:
        table: A safetensors file with one matrix, tokens x dimensions. Give both files or none.
        tokenizer: The tokenizer's JSON file that goes with it.
        dimensions: Numbers in each of the table's vectors.
    """

    def __init__(self, *, table: Path | None = None, tokenizer: Path | None = None, dimensions: int = 256) -> None:
        if (table is None) != (tokenizer is None):
            raise ConfigError("A table of word vectors needs its own tokenizer", advice="Give both files or none.")
        self.name = "static:l2_supercat_256" if table is None else f"static:{table.stem}"
        self.dimensions = dimensions
        self._paths = None if table is None or tokenizer is None else (table, tokenizer)
        self._loaded: _Table | None = None
        self._lock = threading.Lock()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts of any length; see :class:`Embedder`. Large batches are done in a thread.

        Raises:
            EmbeddingFailed: A text is empty, is not valid text or has no direction; or the files are missing.
        """
        if not texts:
            return []
        if self._loaded is None or sum(map(len, texts)) > _INLINE_CHARACTERS:
            return await asyncio.to_thread(self._embed, texts)
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        table = self._table()
        return [_vector(table, text, index) for index, text in enumerate(texts)]

    def _table(self) -> _Table:
        with self._lock:
            if self._loaded is None:
                self._loaded = _checked(_load(self._paths), self.dimensions)
            return self._loaded


def _load(paths: tuple[Path, ...] | None) -> _Table:
    try:
        from safetensors import SafetensorError, safe_open
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbeddingFailed(
            "The static embedder needs the packages safetensors and tokenizers",
            value=f"no module {error.name}",
            advice="Install them with: pip install 'romanesco[local]'",
        ) from error
    try:
        table, tokenizer = require(WORDLLAMA) if paths is None else paths
        with safe_open(str(table), "numpy") as tensors:
            (name,) = tensors.keys()
            vectors = tensors.get_tensor(name)
        loaded = Tokenizer.from_file(str(tokenizer))
    except ConfigError as error:
        raise EmbeddingFailed(error.what, value=error.value, limit=error.limit, advice=error.advice) from error
    except (OSError, SafetensorError, ValueError) as error:
        raise EmbeddingFailed(
            "The table of word vectors can't be read", value=str(error), advice="Check the two files."
        ) from error
    except Exception as error:  # the tokenizer library raises bare Exception on a bad file
        raise EmbeddingFailed("The tokenizer can't be read", value=str(error), advice="Check the file.") from error
    loaded.no_padding()
    loaded.no_truncation()
    return _Table(vectors, loaded)


def _checked(table: _Table, dimensions: int) -> _Table:
    shape = table.vectors.shape
    if len(shape) != 2 or shape[1] != dimensions or shape[0] < table.tokenizer.get_vocab_size():
        raise EmbeddingFailed(
            "The table of word vectors does not fit",
            value=f"a table of shape {shape}",
            limit=f"{table.tokenizer.get_vocab_size()} tokens x {dimensions} dimensions",
            advice="Give the table and the tokenizer that were made for each other.",
        )
    return table


def _vector(table: _Table, text: str, index: int) -> list[float]:
    import numpy as np

    if not text.strip():
        raise EmbeddingFailed(
            f"Text {index} is empty: nothing has no direction",
            advice="Leave it out; its likeness to others is unknown.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EmbeddingFailed(f"Text {index} is not valid Unicode", value=error.reason) from error
    ids = np.asarray(table.tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
    # Each token once, weighted by how often it occurs: a megabyte of text needs no megabytes of vectors.
    unique, counts = np.unique(ids, return_counts=True)
    total = counts.astype(np.float64) @ table.vectors[unique].astype(np.float64)
    length = float(np.linalg.norm(total))
    if not np.isfinite(length) or length == 0.0:
        raise EmbeddingFailed(f"Text {index} has no direction", value=f"a vector of length {length}")
    unit: list[float] = (total / length).tolist()
    return unit
