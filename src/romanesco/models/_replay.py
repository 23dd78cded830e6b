"""A model that gives back recorded replies and never calls anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from romanesco.errors import Diverged
from romanesco.models._context import current_call
from romanesco.models._types import Capabilities, ModelReply, ModelRequest, TokenCount

Fingerprint = Callable[[ModelRequest], str]


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """One recorded reply and the call that it answered.

    Attributes:
        reply: What the model answered.
        key: The step's key.
        node: Path of the node.
    """

    reply: ModelReply
    key: str
    node: str = "/"


def request_fingerprint(request: ModelRequest) -> str:
    """SHA-256 of everything in a request that can change its reply: all but the deadlines."""
    data = asdict(request)
    del data["deadlines"]
    text = json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class ReplayModel:
    """A :class:`ChatModel` that answers from recorded replies.

    Equal requests under different keys have replies of their own: four samples of one prompt stay four samples.

    Args:
        recorded: For each request's fingerprint the replies recorded for it: one ``ModelReply`` for every call with
            that fingerprint, or a sequence of ``RecordedReply``, found by node and key.
        name: ``provider:model`` that the recording was made with.
        fingerprint: How the recording's fingerprints were made.
        counts: What ``count`` answers: tokens by fingerprint. A request that is not in it is counted as unknown:
            the upper bound of one token a UTF-8 byte.
        capabilities: What ``capabilities`` answers.
    """

    endpoint = "replay"

    def __init__(
        self,
        recorded: Mapping[str, ModelReply | Sequence[RecordedReply]],
        *,
        name: str = "replay:journal",
        fingerprint: Fingerprint = request_fingerprint,
        counts: Mapping[str, TokenCount] | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.name = name
        self._recorded = recorded
        self._fingerprint = fingerprint
        self._counts = counts or {}
        self._capabilities = capabilities or Capabilities()

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        """Give back the recorded reply.

        Raises:
            Diverged: This request was not recorded, or not under this key.
        """
        reply = self._find(self._fingerprint(request))
        if on_token is not None and reply.text:
            on_token(reply.text)
        return reply

    async def count(self, request: ModelRequest) -> TokenCount:
        """The recorded count, or one token a UTF-8 byte as the upper bound."""
        known = self._counts.get(self._fingerprint(request))
        if known is not None:
            return known
        overhead = self._capabilities.template_overhead
        size = sum(len(message.content.encode("utf-8", "surrogatepass")) + overhead for message in request.messages)
        return TokenCount(tokens=size, exact=False)

    async def capabilities(self) -> Capabilities:
        """As given."""
        return self._capabilities

    async def close(self) -> None:
        """Nothing to free."""

    def _find(self, fingerprint: str) -> ModelReply:
        found = self._recorded.get(fingerprint)
        if isinstance(found, ModelReply):
            return found
        context = current_call.get()
        where = f"{context.node} {context.key}" if context else "a call outside a run"
        if not found:
            raise Diverged(
                f"The recording has no reply for the request of {where}",
                value=f"fingerprint {fingerprint[:16]}",
                limit=f"{len(self._recorded)} recorded requests",
                advice="The code, the configuration or the input differs from the recorded run.",
            )
        if context is None:
            if len(found) == 1:
                return found[0].reply
        else:
            for one in found:
                if one.key == context.key and one.node == context.node:
                    return one.reply
        raise Diverged(
            f"The recording has this request, but not for {where}",
            value=f"fingerprint {fingerprint[:16]}",
            limit=f"recorded for {', '.join(f'{one.node} {one.key}' for one in found[:5])}",
            advice="The code, the configuration or the input differs from the recorded run.",
        )
