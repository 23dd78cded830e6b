"""Vectors for texts: the protocol and the default embedder."""

from romanesco.embeddings._protocol import Embedder
from romanesco.embeddings._static import StaticEmbedder

__all__ = ["Embedder", "StaticEmbedder"]
