"""Every adapter against the one contract, and the suite against adapters that break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from romanesco.models import (
    Capabilities,
    EmbeddedModel,
    ModelReply,
    ModelRequest,
    OpenAICompatible,
    ScriptedModel,
    TokenCount,
    Usage,
)
from romanesco.testing import FakeServer, Scenario, model_conformance

CANARY = "sk-canary-6f1d2c9ab0"


async def test_the_scripted_model() -> None:
    await model_conformance(lambda: ScriptedModel(auto=True))


@pytest.mark.parametrize("flavour", ["openai", "llamacpp", "vllm"])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_openai_compatible_client(flavour: Any, stream: bool) -> None:
    async with FakeServer(scenario=Scenario(flavour=flavour, api_key=CANARY)) as server:

        def make() -> OpenAICompatible:
            return OpenAICompatible(name="fake:fake", model="fake", base_url=server.url, api_key=CANARY, stream=stream)

        await model_conformance(make, secret=CANARY)
        assert server.ledger.in_flight == 0


async def test_the_embedded_model() -> None:
    await model_conformance(EmbeddedModel)


class Broken(ScriptedModel):
    """A scripted model with one fault."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(auto=True)
        self.parts = parts
        self.name = parts.get("name", self.name)
        self.endpoint = parts.get("endpoint", "broken")

    def __repr__(self) -> str:
        return f"Broken({self.parts.get('repr', '')})"

    async def count(self, request: ModelRequest) -> TokenCount:
        if "count" in self.parts:
            return TokenCount(self.parts["count"], exact=True)
        return await super().count(request)

    async def capabilities(self) -> Capabilities:
        known = await super().capabilities()
        if self.parts.get("moody"):
            self.parts["moody"] += 1
            return replace(known, window=self.parts["moody"])
        return replace(known, grammar=self.parts.get("grammar", False))

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        if on_token is not None and "piece" in self.parts:
            on_token(self.parts["piece"])
        reply = await super().complete(request)
        if "text" in self.parts:
            reply = replace(reply, text=self.parts["text"])
        used = self.parts.get("used")
        return replace(reply, usage=Usage(*used)) if used else reply


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"name": "nameless"}, "provider:model"),
        ({"endpoint": ""}, "no endpoint"),
        ({"repr": CANARY}, "key shows"),
        ({"endpoint": f"http://box/{CANARY}"}, "key shows"),
        ({"moody": 1}, "changes from call to call"),
        ({"count": 0}, "gives no tokens"),
        ({"count": 7}, "200 words counts no more"),
        ({"used": (1, 999)}, "under a cap"),
        ({"used": (9_999, 1)}, "a bill would be too small"),
        ({"piece": "something else"}, "on_token"),
        ({"grammar": True, "text": "no JSON"}, "does not fit the schema"),
    ],
)
async def test_the_suite_finds(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        await model_conformance(lambda: Broken(**fault), secret=CANARY)
