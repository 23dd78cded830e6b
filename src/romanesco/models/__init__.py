"""Models: what goes to them and comes back, the adapters that reach them, and how they are named.

Adapters are loaded when they are first used, so that importing this package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from romanesco.models._context import CallContext, current_call
from romanesco.models._protocol import ChatModel
from romanesco.models._types import (
    Capabilities,
    Deadlines,
    FinishReason,
    Message,
    ModelReply,
    ModelRequest,
    OutputSchema,
    Timing,
    TokenCount,
    ToolCall,
    ToolSpec,
    Usage,
)

if TYPE_CHECKING:
    from romanesco.models._configured import CustomEndpoint, ProviderStatus, configured, custom_endpoints
    from romanesco.models._embedded import EmbeddedModel
    from romanesco.models._fetch import fetch
    from romanesco.models._ladder import (
        Accept,
        Fail,
        Reask,
        Rung,
        first_rung,
        judge,
        judge_text,
        prepare,
        reask_overhead,
    )
    from romanesco.models._openai import OpenAICompatible
    from romanesco.models._pool import ModelPool
    from romanesco.models._providers import CUSTOM, PROVIDERS, Provider
    from romanesco.models._replay import RecordedReply, ReplayModel, request_fingerprint
    from romanesco.models._scripted import (
        Rule,
        ScriptedCall,
        ScriptedModel,
        by_key,
        by_role,
        byte_usage,
        when,
    )

__all__ = [
    "CUSTOM",
    "PROVIDERS",
    "Accept",
    "CallContext",
    "Capabilities",
    "ChatModel",
    "CustomEndpoint",
    "Deadlines",
    "EmbeddedModel",
    "Fail",
    "FinishReason",
    "Message",
    "ModelPool",
    "ModelReply",
    "ModelRequest",
    "OpenAICompatible",
    "OutputSchema",
    "Provider",
    "ProviderStatus",
    "Reask",
    "RecordedReply",
    "ReplayModel",
    "Rule",
    "Rung",
    "ScriptedCall",
    "ScriptedModel",
    "Timing",
    "TokenCount",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "by_key",
    "by_role",
    "byte_usage",
    "configured",
    "current_call",
    "custom_endpoints",
    "fetch",
    "first_rung",
    "judge",
    "judge_text",
    "prepare",
    "reask_overhead",
    "request_fingerprint",
    "when",
]

_MODULES = {
    "_configured": ("CustomEndpoint", "ProviderStatus", "configured", "custom_endpoints"),
    "_embedded": ("EmbeddedModel",),
    "_fetch": ("fetch",),
    "_ladder": (
        "Accept",
        "Fail",
        "Reask",
        "Rung",
        "first_rung",
        "judge",
        "judge_text",
        "prepare",
        "reask_overhead",
    ),
    "_openai": ("OpenAICompatible",),
    "_pool": ("ModelPool",),
    "_providers": ("CUSTOM", "PROVIDERS", "Provider"),
    "_replay": ("RecordedReply", "ReplayModel", "request_fingerprint"),
    "_scripted": ("Rule", "ScriptedCall", "ScriptedModel", "by_key", "by_role", "byte_usage", "when"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
