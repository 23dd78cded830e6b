"""A desk and a scope without a runtime: they count what is asked and hold it against the bill."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from romanesco.budget import Price
from romanesco.errors import BudgetExceeded, EmbeddingFailed, OutputInvalid, ServerFault
from romanesco.models import FinishReason, ModelReply, ModelRequest, TokenCount
from romanesco.runtime import Structured
from romanesco.task import Budget, Deliberation, Outcome, Plan, Source, Task
from romanesco.topologies.fractal import Fractal

Answer = str | dict[str, Any] | Exception
Script = Callable[[str, ModelRequest], Answer]


def size(request: ModelRequest) -> int:
    """Bytes of a request's messages, plus a template."""
    return sum(len(message.content.encode()) + 16 for message in request.messages)


@dataclass
class FakeDesk:
    budget: Budget = field(default_factory=Budget)
    size_of_window: int | None = 32_768
    exactly: bool = False
    bytes_per_token: int = 1
    priced: Price | None = None
    models: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, str] = field(default_factory=dict)

    def account(self, dimension: str) -> str:
        return self.accounts.get(dimension, "")

    def model(self, role: str) -> str:
        return self.models.get(role, "fake:model")

    async def window(self, model: str) -> int | None:
        return self.size_of_window

    async def count(self, request: ModelRequest) -> TokenCount:
        return TokenCount(-(-size(request) // self.bytes_per_token), self.exactly)

    async def exact(self, model: str) -> bool:
        return self.exactly

    def price(self, model: str) -> Price | None:
        return self.priced


@dataclass
class FakeScope:
    plan: Plan
    script: Script
    vectors: Callable[[Sequence[str], str], list[list[float]]]
    desk: FakeDesk
    shuffle: int | None = None
    refuse: Callable[[str], bool] = lambda key: False
    node: str = "/"
    asked: dict[str, ModelRequest] = field(default_factory=dict)
    lines: Counter[str] = field(default_factory=Counter)
    records: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    offers: list[tuple[str, str, str]] = field(default_factory=list)
    together: int = 0
    most: int = 0

    def model(self, role: str) -> str:
        return self.desk.model(role)

    async def call(self, request: ModelRequest, *, key: str, role: str, purpose: str) -> ModelReply:
        answer = await self._answer(request, key, role, purpose)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        finish = FinishReason.LENGTH if text.endswith("...") else FinishReason.STOP
        return ModelReply(text, finish=finish, model=request.model)

    async def call_structured(self, request: ModelRequest, *, key: str, role: str, purpose: str) -> Structured:
        assert request.output is not None
        answer = await self._answer(request, key, role, purpose)
        if not isinstance(answer, dict):
            raise OutputInvalid("not JSON", value=answer[:40])
        return Structured(answer, ModelReply(json.dumps(answer), model=request.model), "cut" in str(answer))

    async def _answer(self, request: ModelRequest, key: str, role: str, purpose: str) -> str | dict[str, Any]:
        assert key not in self.asked, f"{key} is asked twice"
        if self.refuse(key):
            raise BudgetExceeded("refused", account="run", dimension="calls", value=1, limit=0)
        self.asked[key] = request
        self.lines[purpose] += 1
        await self._hold_against_bill(request, purpose)
        self.together += 1
        self.most = max(self.most, self.together)
        rng = random.Random(f"{self.shuffle}/{key}")
        await asyncio.sleep(0 if self.shuffle is None else rng.random() / 500)
        self.together -= 1
        answer = self.script(key, request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _hold_against_bill(self, request: ModelRequest, purpose: str) -> None:
        line = next(line for line in self.plan.bill.lines if line.purpose == purpose)
        assert self.lines[purpose] <= line.calls
        self.lines[f"{purpose} in"] += (await self.desk.count(request)).tokens
        self.lines[f"{purpose} out"] += request.max_output_tokens
        assert self.lines[f"{purpose} in"] <= line.tokens_in
        assert self.lines[f"{purpose} out"] <= line.tokens_out

    async def embed(self, texts: Sequence[str], *, key: str) -> list[list[float]]:
        return self.vectors(texts, key)

    async def spawn(self, topology: str, task: Task, *, key: str, budget: Budget | None = None) -> Outcome:
        raise AssertionError("a node of depth 0 spawns nobody")

    async def ask(self, question: str, *, key: str, choices: Sequence[str] = ()) -> str:
        raise AssertionError("nothing is asked")

    async def now(self, *, key: str) -> float:
        raise AssertionError("a node reads no clock")

    async def random(self, *, key: str) -> random.Random:
        raise AssertionError("a node draws no random number")

    async def record(self, kind: str, data: dict[str, Any], *, key: str) -> dict[str, Any]:
        json.dumps(data, allow_nan=False)
        assert key not in [one[1] for one in self.records]
        self.records.append((kind, key, data))
        return data

    async def offer(self, answer: str, *, key: str, note: str = "", deliberation: Deliberation | None = None) -> None:
        assert deliberation is not None
        self.offers.append((key, answer, note))

    async def hook(self, point: str, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def record_of(self, kind: str) -> list[dict[str, Any]]:
        return [data for name, _key, data in self.records if name == kind]


def apart(texts: Sequence[str], key: str) -> list[list[float]]:
    """Vectors that are all different: each text gets an axis of its own."""
    vectors = []
    for text in texts:
        rng = random.Random(text)
        vectors.append([rng.gauss(0, 1) for _ in range(256)])
    return vectors


def alike(texts: Sequence[str], key: str) -> list[list[float]]:
    """In round 1 as ``apart``; later, all the same direction."""
    return apart(texts, key) if key == "embed/1" else [[1.0] + [0.0] * 255 for _ in texts]


def broken(texts: Sequence[str], key: str) -> list[list[float]]:
    raise EmbeddingFailed("the embedder is down")


def talk(key: str, request: ModelRequest, **changes: Answer) -> Answer:
    """What a well-behaved team says; ``changes`` replaces answers by the key's first part."""
    kind = key.split("/", maxsplit=1)[0]
    if kind in changes:
        return changes[kind]
    if request.output is None:
        return f"Proposal of {key}. It works because {key} says so."
    fields = request.output.schema["properties"]
    value: dict[str, Any] = {}
    for name, shape in fields.items():
        if "enum" in shape:
            value[name] = shape["enum"][0]
        elif name == "critiques":
            value[name] = [f"critique {number} in {key}" for number in (1, 2, 3)]
        elif shape["type"] == "array":
            value[name] = []
        else:
            value[name] = f"{name} of {key}."
    return value


async def deliberate(
    *,
    script: Script = talk,
    vectors: Callable[[Sequence[str], str], list[list[float]]] = apart,
    goal: str = "Sell the tool",
    sources: tuple[Source, ...] = (),
    desk: FakeDesk | None = None,
    shuffle: int | None = None,
    refuse: Callable[[str], bool] = lambda key: False,
    **params: Any,
) -> tuple[Outcome, FakeScope]:
    """Plan and run one node."""
    desk = desk or FakeDesk()
    task = Task(goal, sources, params)
    plan = await Fractal().plan(task, desk)
    scope = FakeScope(plan, script, vectors, desk, shuffle, refuse)
    return await Fractal().solve(task, scope), scope


def prompt(request: ModelRequest) -> str:
    """All that a model would see of a request: its messages and its schema."""
    return "\n".join(message.content for message in request.messages) + json.dumps(
        request.output.schema if request.output else {}
    )


def kept(outcome: Outcome) -> Deliberation:
    """What a node did, which must be there."""
    assert outcome.deliberation is not None
    return outcome.deliberation


def failing(*keys: str, error: Exception | None = None) -> Script:
    """Everybody talks, but calls whose key starts with one of ``keys`` fail."""

    def script(key: str, request: ModelRequest) -> Answer:
        if key.startswith(keys):
            return error or ServerFault("the server answered 500")
        return talk(key, request)

    return script


def backing(votes: dict[str, str]) -> Script:
    """In integration each member backs the id that ``votes`` says, by persona."""

    def script(key: str, request: ModelRequest) -> Answer:
        answer = talk(key, request)
        if key.startswith("integrate/") and isinstance(answer, dict):
            _, round, member = key.split("/")
            wanted = votes.get(member)
            if wanted:
                answer["backs"] = f"{wanted}.{int(round) - 1}"
        return answer

    return script
