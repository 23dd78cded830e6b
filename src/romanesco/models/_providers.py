"""Which providers there are, where they answer, and which variable holds their key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from romanesco.models._types import Capabilities


@dataclass(frozen=True, slots=True)
class Provider:
    """A server, or a kind of server, that speaks the OpenAI wire.

    Attributes:
        name: What stands before the colon in ``provider:model``.
        base_url: Where it answers, up to and with the version.
        key_env: Environment variables that may hold the key, the first one set wins; empty: no key is needed.
        local: Runs on this machine and costs no money.
        capabilities: What is known of it; None: probe.
        note: What a user should know.
    """

    name: str
    base_url: str
    key_env: tuple[str, ...] = ()
    local: bool = False
    capabilities: Capabilities | None = None
    note: str = ""


PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider("openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
        Provider(
            "anthropic",
            "https://api.anthropic.com/v1",
            ("ANTHROPIC_API_KEY",),
            capabilities=Capabilities(json_schema=False),
            note="through its OpenAI-compatible endpoint, which ignores schemas and seeds",
        ),
        Provider(
            "google",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            note="Gemini through its OpenAI-compatible endpoint",
        ),
        Provider("openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
        Provider("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)),
        Provider("mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
        Provider(
            "deepseek",
            "https://api.deepseek.com/v1",
            ("DEEPSEEK_API_KEY",),
            capabilities=Capabilities(json_schema=False),
            note="takes no JSON schema: values are asked for by tool call",
        ),
        Provider("together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
        Provider("ollama", "http://localhost:11434/v1", local=True),
        Provider("llamacpp", "http://localhost:8080/v1", local=True),
        Provider("vllm", "http://localhost:8000/v1", local=True),
        Provider("lmstudio", "http://localhost:1234/v1", local=True),
    )
}
"""The providers that work without any configuration but a key."""

EMBEDDED = "embedded"
CUSTOM = "custom"


def key_for(provider: Provider, env: Mapping[str, str]) -> str | None:
    """The key from the first of the provider's variables that is set, or None."""
    return next((env[name].strip() for name in provider.key_env if env.get(name, "").strip()), None)


def published_window(provider: str, model: str) -> int | None:
    """The window that the package ``genai-prices`` knows of a model, in tokens, or None.

    Args:
        provider: Its provider; one that the package does not know has no windows there.
        model: The model's name there.
    """
    from genai_prices.data_snapshot import get_snapshot  # 0.3 s at import: the price of a model needs it anyway

    try:
        _, info = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    return info.context_window or None
