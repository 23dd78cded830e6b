"""Which call is being made: set by the runtime around ``complete``, read by adapters that need it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallContext:
    """Where in a run a call belongs. Nothing of it is sent to a model.

    Attributes:
        role: Role that the call is made for, for example ``proposer``.
        key: The step's key, for example ``blind/1/optimist``.
        node: Path of the node in the run's tree; ``/`` is the root.
    """

    role: str
    key: str
    node: str = "/"


current_call: ContextVar[CallContext | None] = ContextVar("romanesco_current_call", default=None)
"""The call that the running task makes, or None outside a run."""
