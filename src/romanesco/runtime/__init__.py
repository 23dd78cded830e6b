"""The runtime: what runs, in which order, inside which bounds, and what is left of it when a process dies."""

from romanesco.runtime._ends import first_error, with_answer
from romanesco.runtime._engine import Engine, LocalEngine
from romanesco.runtime._envelope import Envelope
from romanesco.runtime._feed import RunEvent, Watcher
from romanesco.runtime._hooks import Guard, HookPoint, Hooks
from romanesco.runtime._open import (
    new_run_id,
    plan_run,
    read_events,
    replay,
    resume,
    spec_and_plan,
    start,
)
from romanesco.runtime._overruns import overrun_text
from romanesco.runtime._recording import recorded_models
from romanesco.runtime._recover import Attempted, FoldedEvent, Recovery, Spent, recover
from romanesco.runtime._registry import BUILT_IN, ENTRY_POINT_GROUP, Topologies
from romanesco.runtime._session import Parts, Session
from romanesco.runtime._shared import spent_of_account
from romanesco.runtime._spec import RetryPolicy, RunSpec, SharedAccount
from romanesco.runtime._topology import PlanningDesk, Scope, Structured, Topology

__all__ = [
    "BUILT_IN",
    "ENTRY_POINT_GROUP",
    "Attempted",
    "Engine",
    "Envelope",
    "FoldedEvent",
    "Guard",
    "HookPoint",
    "Hooks",
    "LocalEngine",
    "Parts",
    "PlanningDesk",
    "Recovery",
    "RetryPolicy",
    "RunEvent",
    "RunSpec",
    "Scope",
    "Session",
    "SharedAccount",
    "Spent",
    "Structured",
    "Topologies",
    "Topology",
    "Watcher",
    "first_error",
    "new_run_id",
    "overrun_text",
    "plan_run",
    "read_events",
    "recorded_models",
    "recover",
    "replay",
    "resume",
    "spec_and_plan",
    "spent_of_account",
    "start",
    "with_answer",
]
