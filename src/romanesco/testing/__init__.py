"""Public test tools: a fake server with its own ledger, stores and engines in memory, topologies, conformance suites.

The scripted model, the other half of most tests, is ``romanesco.ScriptedModel``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from romanesco.testing._embedder import NgramEmbedder
    from romanesco.testing._embedder_conformance import embedder_conformance
    from romanesco.testing._engine import MemoryEngine
    from romanesco.testing._engine_conformance import engine_conformance
    from romanesco.testing._fake_server import FakeServer
    from romanesco.testing._fake_server_ledger import Ledger, LedgerEntry
    from romanesco.testing._fake_server_process import FakeServerProcess
    from romanesco.testing._fake_server_reply import FakeReply, Fault
    from romanesco.testing._fake_server_scenario import Rule, Scenario
    from romanesco.testing._model_conformance import model_conformance
    from romanesco.testing._store import MemoryStore
    from romanesco.testing._store_conformance import store_conformance
    from romanesco.testing._topologies import Chain, Members, Tree
    from romanesco.testing._topology_conformance import topology_conformance

__all__ = [
    "Chain",
    "FakeReply",
    "FakeServer",
    "FakeServerProcess",
    "Fault",
    "Ledger",
    "LedgerEntry",
    "Members",
    "MemoryEngine",
    "MemoryStore",
    "NgramEmbedder",
    "Rule",
    "Scenario",
    "Tree",
    "embedder_conformance",
    "engine_conformance",
    "model_conformance",
    "store_conformance",
    "topology_conformance",
]

_MODULES = {
    "_embedder": ("NgramEmbedder",),
    "_embedder_conformance": ("embedder_conformance",),
    "_engine": ("MemoryEngine",),
    "_engine_conformance": ("engine_conformance",),
    "_fake_server": ("FakeServer",),
    "_fake_server_ledger": ("Ledger", "LedgerEntry"),
    "_fake_server_process": ("FakeServerProcess",),
    "_fake_server_reply": ("FakeReply", "Fault"),
    "_fake_server_scenario": ("Rule", "Scenario"),
    "_model_conformance": ("model_conformance",),
    "_store": ("MemoryStore",),
    "_store_conformance": ("store_conformance",),
    "_topologies": ("Chain", "Members", "Tree"),
    "_topology_conformance": ("topology_conformance",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
