"""The one interface that every model adapter has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from romanesco.models._types import Capabilities, ModelReply, ModelRequest, TokenCount


@runtime_checkable
class ChatModel(Protocol):
    """A model that answers requests.

    An adapter makes exactly one attempt a call: retries, budgets, limits and the journal are the runtime's.
    It never reads the clock for decisions other than the request's own deadlines and keeps no history.
    """

    name: str
    """``provider:model``; the runtime looks adapters up by it."""

    endpoint: str
    """What the limiter counts by: models behind the same endpoint and key share it. Holds no secret."""

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Answer one request.

        Args:
            request: What to ask.
            on_token: Called with each piece of visible text as it arrives, where the endpoint streams.

        Raises:
            ModelError: One of its subclasses, saying whether the request was sent and may be retried.
        """
        ...

    async def count(self, request: ModelRequest) -> TokenCount:
        """Count the request's input tokens, or bound them from above (one token a UTF-8 byte + template)."""
        ...

    async def capabilities(self) -> Capabilities:
        """What the endpoint can do: probed once and cached, or as configured."""
        ...

    async def close(self) -> None:
        """Free connections and processes. May be called twice."""
        ...
