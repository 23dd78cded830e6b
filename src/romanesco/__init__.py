"""Romanesco: bounded multi-agent orchestration.

The worst case of a run is known before the first token and proved after the last. Names are loaded when they are
first used, so that importing the package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from romanesco._version import __version__ as __version__

if TYPE_CHECKING:
    from romanesco._api import open_resumed, open_run, plan, replay, resume, run, run_sync
    from romanesco._config import Config, load_config
    from romanesco._workspace import Workspace, open_workspace
    from romanesco.errors import (
        BudgetExceeded,
        InputError,
        JournalError,
        ModelError,
        PlanRefused,
        RomanescoError,
        RunStopped,
        StopReason,
    )
    from romanesco.models import ChatModel, Message, ModelReply, ModelRequest, ScriptedModel
    from romanesco.personas import Persona
    from romanesco.runtime import HookPoint, Hooks, RunEvent, Scope, Topology
    from romanesco.task import Bill, Budget, Deliberation, Outcome, Plan, Source, Spend, Status, Task

_PLACES = {
    "romanesco._api": ("open_resumed", "open_run", "plan", "replay", "resume", "run", "run_sync"),
    "romanesco._config": ("Config", "load_config"),
    "romanesco._workspace": ("Workspace", "open_workspace"),
    "romanesco.errors": (
        "BudgetExceeded",
        "InputError",
        "JournalError",
        "ModelError",
        "PlanRefused",
        "RomanescoError",
        "RunStopped",
        "StopReason",
    ),
    "romanesco.models": ("ChatModel", "Message", "ModelReply", "ModelRequest", "ScriptedModel"),
    "romanesco.personas": ("Persona",),
    "romanesco.runtime": ("HookPoint", "Hooks", "RunEvent", "Scope", "Topology"),
    "romanesco.task": ("Bill", "Budget", "Deliberation", "Outcome", "Plan", "Source", "Spend", "Status", "Task"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "Bill",
    "Budget",
    "BudgetExceeded",
    "ChatModel",
    "Config",
    "Deliberation",
    "HookPoint",
    "Hooks",
    "InputError",
    "JournalError",
    "Message",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "Outcome",
    "Persona",
    "Plan",
    "PlanRefused",
    "RomanescoError",
    "RunEvent",
    "RunStopped",
    "Scope",
    "ScriptedModel",
    "Source",
    "Spend",
    "Status",
    "StopReason",
    "Task",
    "Topology",
    "Workspace",
    "load_config",
    "open_resumed",
    "open_run",
    "open_workspace",
    "plan",
    "replay",
    "resume",
    "run",
    "run_sync",
]


def __getattr__(name: str) -> Any:
    place = _PLACE_OF.get(name)
    if place is None:
        raise AttributeError(f"module 'romanesco' has no attribute {name!r}")
    value = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
