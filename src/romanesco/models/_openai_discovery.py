"""What an OpenAI-compatible server says of itself, and its own count of tokens. Costs no tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from romanesco.models._types import Capabilities

Ask = Callable[[str, "dict[str, Any] | None"], Awaitable["Any | None"]]
"""Ask a free endpoint: path (from the server's root, or ``models`` from the base URL) and a body to post, or
None to get. Answers the JSON, or None if the server has no such endpoint."""

_WINDOW_FIELDS = (
    "max_model_len",  # vLLM, SGLang
    "loaded_context_length",  # LM Studio
    "context_window",  # Groq
    "context_length",  # OpenRouter, Together
    "max_context_length",  # Mistral
)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a server says of itself.

    Attributes:
        kind: ``llamacpp``, ``vllm``, another word that the server uses for itself, or empty.
        models: Names of the models it lists; None if it has no list.
        listed: Whether the wanted model is among them; None if it has no list.
        capabilities: What follows from it; unknown things have their defaults.
    """

    kind: str
    models: tuple[str, ...] | None
    listed: bool | None
    capabilities: Capabilities


async def discover(ask: Ask, model: str) -> Discovery:
    """Read the list of models and, on a llama.cpp server, its properties.

    Args:
        ask: How to reach the server.
        model: The model's name on the wire.
    """
    listing = await ask("models", None)
    entries = listing.get("data") if isinstance(listing, dict) else listing
    if not isinstance(entries, list):
        return Discovery("", None, None, Capabilities())
    entries = [entry for entry in entries if isinstance(entry, dict)]
    names = tuple(str(entry.get("id") or entry.get("name") or "") for entry in entries)
    mine = next((entry for entry, name in zip(entries, names, strict=True) if name == model), None)
    kind = str((mine or (entries[0] if entries else {})).get("owned_by") or "")
    window = _window(mine or {})
    if kind == "llamacpp":
        # It takes any name for its one model; its slots share the window, so only the properties tell.
        properties = await ask("/props", None)
        settings = properties.get("default_generation_settings") if isinstance(properties, dict) else None
        window = _positive(settings.get("n_ctx")) if isinstance(settings, dict) else None
    supported = (mine or {}).get("supported_parameters")
    schema = tools = True
    if isinstance(supported, list):
        schema, tools = "structured_outputs" in supported, "tools" in supported
    capabilities = Capabilities(window=window, json_schema=schema, tools=tools, tokenizer=kind in ("llamacpp", "vllm"))
    listed = mine is not None or (kind == "llamacpp" and bool(entries))
    return Discovery(kind, names, listed, capabilities)


def _window(entry: dict[str, Any]) -> int | None:
    return next((size for name in _WINDOW_FIELDS if (size := _positive(entry.get(name)))), None)


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


async def count_templated(ask: Ask, body: dict[str, Any]) -> int | None:
    """llama.cpp's count of a request's input tokens: it applies the chat template, then counts the text.

    Args:
        ask: How to reach the server.
        body: The request body as it would be sent, not streaming.

    Returns:
        Tokens, or None if the server can't tell in this way.
    """
    applied = await ask("/apply-template", body)
    if not isinstance(applied, dict) or not isinstance(applied.get("prompt"), str):
        return None
    counted = await ask("/tokenize", {"content": applied["prompt"], "add_special": True, "parse_special": True})
    tokens = counted.get("tokens") if isinstance(counted, dict) else None
    return len(tokens) if isinstance(tokens, list) else None


async def count_messages(ask: Ask, body: dict[str, Any]) -> int | None:
    """The same as vLLM counts: it takes the messages. Arguments and result as in ``count_templated``."""
    wanted: dict[str, Any] = {name: body[name] for name in ("model", "messages", "tools") if name in body}
    counted = await ask("/tokenize", wanted)
    return _positive(counted.get("count")) if isinstance(counted, dict) else None
