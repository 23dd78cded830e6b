"""The ports between a topology and the runtime."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from romanesco.models._types import ModelReply, ModelRequest, TokenCount
from romanesco.task import Budget, Deliberation, Outcome, Plan, Task

if TYPE_CHECKING:
    from romanesco.budget import Price


@dataclass(frozen=True, slots=True)
class Structured:
    """A reply that fits its schema: the value, the reply, and whether the output cap cut its last text."""

    value: dict[str, Any]
    reply: ModelReply
    truncated: bool = False


class PlanningDesk(Protocol):
    """What a topology may ask while it plans. Nothing here spends a generated token."""

    @property
    def budget(self) -> Budget:
        """The limits to plan for: the user's, or what accounts shared with other runs have left where that is less."""
        ...

    def account(self, dimension: str) -> str:
        """Name of the shared account that sets the budget's limit of a dimension; "" where it is the user's own."""
        ...

    def model(self, role: str) -> str:
        """Name of the model for a role."""
        ...

    async def window(self, model: str) -> int | None:
        """The model's context window in tokens, or None if unknown."""
        ...

    async def count(self, request: ModelRequest) -> TokenCount:
        """Input tokens of a request: exact, or an upper bound."""
        ...

    async def exact(self, model: str) -> bool:
        """Whether the model's endpoint counts tokens exactly."""
        ...

    def price(self, model: str) -> Price | None:
        """The model's price, or None if it is unknown."""
        ...


class Scope(Protocol):
    """All that a topology may do while it solves. It has no other clock, randomness or input.

    Keys name steps and are unique within a node; they never depend on the order in which calls happen to
    finish. A finished step gives its recorded result again when a run is resumed.
    """

    node: str
    """Path of this node; ``/`` for the root."""

    plan: Plan
    """The plan as it was journaled; ``plan.params`` are the parameters in force."""

    def model(self, role: str) -> str:
        """Name of the model for a role."""
        ...

    async def call(self, request: ModelRequest, *, key: str, role: str, purpose: str) -> ModelReply:
        """Ask a model for text.

        Args:
            request: What to ask.
            key: The step's key, for example ``generate/1/speculator``.
            role: Who asks: a persona or role; it has its own account.
            purpose: The line of the bill that this is charged to. ``wrap-up`` may use the held-back share.

        Raises:
            BudgetExceeded: An account can't carry the call's worst case.
            ModelError: All permitted attempts failed.
            RunStopped: The run or this node was stopped.
        """
        ...

    async def call_structured(self, request: ModelRequest, *, key: str, role: str, purpose: str) -> Structured:
        """Ask a model for a value of ``request.output``; climbs the structured-output ladder.

        Args:
            request: What to ask; ``request.output`` is the schema of the value.
            key: The step's key, for example ``decide``; a re-ask gets ``KEY/repair/1``.
            role: Who asks: a persona or role; it has its own account.
            purpose: The line of the bill that this is charged to; re-asks are charged to ``repair``.

        Raises:
            OutputInvalid: No rung gave a value that fits.
            BudgetExceeded: An account can't carry the call's worst case.
            ModelError: All permitted attempts failed.
            RunStopped: The run or this node was stopped.
        """
        ...

    async def embed(self, texts: Sequence[str], *, key: str) -> list[list[float]]:
        """Unit vectors of texts.

        Raises:
            EmbeddingFailed: The embedder gave no usable vectors: what was to be measured is unknown.
        """
        ...

    async def spawn(self, topology: str, task: Task, *, key: str, budget: Budget | None = None) -> Outcome:
        """Run a child node and wait for it. A child's failure is its outcome, never an exception.

        Args:
            topology: Registered name.
            task: JSON-able data.
            key: Name of the child below this node.
            budget: Its allotment, carved from this node's remainder; None lets it share this node's.
        """
        ...

    async def ask(self, question: str, *, key: str, choices: Sequence[str] = ()) -> str:
        """Ask a person and wait, durably. The wait is outside the wall-time account.

        Args:
            question: What is asked.
            key: The step's key.
            choices: The permitted answers; empty permits any text.

        Returns:
            The answer.

        Raises:
            RunStopped: The run or this node was stopped.
        """
        ...

    async def now(self, *, key: str) -> float:
        """Wall-clock time in seconds since 1970, recorded."""
        ...

    async def random(self, *, key: str) -> random.Random:
        """A random source whose seed is recorded."""
        ...

    async def record(self, kind: str, data: dict[str, Any], *, key: str) -> dict[str, Any]:
        """Journal a decision or a state of the topology, once for a key.

        Args:
            kind: The event's kind, for example ``fractal.switched``.
            data: JSON-able data.
            key: The record's key, unique among the records of this node.

        Returns:
            What is on record: branch on it, so that a resumed or replayed run decides as before.
        """
        ...

    async def offer(self, answer: str, *, key: str, note: str = "", deliberation: Deliberation | None = None) -> None:
        """Journal the best answer so far: it becomes the outcome if the run is cut short.

        Args:
            answer: The answer as it stands.
            key: The offer's key, unique among the offers of this node; the latest offer counts.
            note: One sentence on where it comes from.
            deliberation: What a FRACTAL node has done so far.
        """
        ...

    async def hook(self, point: str, data: dict[str, Any]) -> dict[str, Any]:
        """Let the guards at a hook point see, change or refuse ``data``; see ``romanesco.runtime.Hooks``.

        Raises:
            Refused: A guard refused.
        """
        ...


class Topology(Protocol):
    """A way of working on a task. Registered by name; see CONTRIBUTING for how to add one."""

    name: str

    async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
        """Say what will be done and what it costs at worst.

        Raises:
            PlanRefused: No plan of this topology fits the budget or the model's window.
            InputError: A parameter is wrong.
        """
        ...

    async def solve(self, task: Task, scope: Scope) -> Outcome:
        """Do it. Deterministic given the results of its steps."""
        ...
