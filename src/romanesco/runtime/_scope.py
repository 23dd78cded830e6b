"""A node's scope: all that its topology may do. See ``romanesco.runtime.Scope`` for what each method promises."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any

from romanesco.errors import BudgetExceeded, EmbeddingFailed, Refused
from romanesco.journal import canonical, digest
from romanesco.models import ModelReply, ModelRequest, judge_text
from romanesco.runtime._accounts import WRAP_UP
from romanesco.runtime._attempts import call_model
from romanesco.runtime._codec import read_reply, request_data
from romanesco.runtime._context import RunContext
from romanesco.runtime._envelope import Envelope
from romanesco.runtime._hooks import Guard, HookPoint
from romanesco.runtime._sending import CallStep
from romanesco.runtime._spawn import Order, run_child
from romanesco.runtime._steps import MEMOISED_FAILURES, failure_from, record_failure, step
from romanesco.runtime._structured import climb
from romanesco.runtime._topology import Structured
from romanesco.task import Budget, Deliberation, Outcome, Plan, Task


@dataclass(slots=True)
class NodeScope:
    """The scope of one node of one run."""

    run: RunContext
    node: str
    plan: Plan
    envelope: Envelope
    guarding: tuple[Guard, ...] = ()
    """Guards at work, for whom this scope is: what they ask a model passes the others, else it would never end."""

    def model(self, role: str) -> str:
        """Name of the model for a role."""
        return self.run.spec.model(role)

    async def call(self, request: ModelRequest, *, key: str, role: str, purpose: str) -> ModelReply:
        """Ask a model for text."""
        return (await climb(_Caller(self, role), request, key=key, purpose=purpose, judging=judge_text)).reply

    async def call_structured(self, request: ModelRequest, *, key: str, role: str, purpose: str) -> Structured:
        """Ask a model for a value of ``request.output``."""
        return await climb(_Caller(self, role), request, key=key, purpose=purpose)

    async def embed(self, texts: Sequence[str], *, key: str) -> list[list[float]]:
        """Unit vectors of texts."""
        embedder = self.run.embedder

        async def do() -> list[list[float]]:
            try:
                async with asyncio.timeout(self.run.spec.deadlines.total):
                    with self.run.stopwatch.working():
                        return usable(await embedder.embed(list(texts)), len(texts))
            except EmbeddingFailed:
                raise
            except TimeoutError:
                why = f"no answer in {self.run.spec.deadlines.total:g} s"
            except Exception as error:  # noqa: BLE001 - an instrument that fails, however it does, has measured nothing
                why = f"{type(error).__name__}: {error}"
            raise EmbeddingFailed(
                f"The embedder {embedder.name} failed ({why})", advice="What it was to measure is unknown."
            )

        what = {"embedder": embedder.name, "texts": [digest(text) for text in texts]}
        result: list[list[float]] = await step(self.run, self.node, key, what, do)
        return result

    async def spawn(self, topology: str, task: Task, *, key: str, budget: Budget | None = None) -> Outcome:
        """Run a child node and wait for it."""
        order = Order.of(self.node, self.envelope, topology, task, key=key, budget=budget)
        return await run_child(self.run, order)

    async def ask(self, question: str, *, key: str, choices: Sequence[str] = ()) -> str:
        """Ask a person and wait, durably."""
        run = self.run
        question_id = digest(f"{run.spec.run} {self.node} {key}")[:8]

        async def do() -> str:
            given = run.answers.get(question_id)
            if given is not None and given["digest"] == digest(question):
                return str(given["text"])  # the process died between the person's answer and its use
            # It waits before anybody hears of it: who answers at once is not too early.
            waiting = run.questions.open(question_id, self.node, key, question, tuple(choices))
            run.stopwatch.pause()
            try:
                await run.journal.append(
                    "question.asked",
                    node=self.node,
                    key=key,
                    data={
                        "id": question_id,
                        "question": question,
                        "choices": list(choices),
                        "digest": digest(question),
                    },
                )
                return await waiting.answer
            finally:
                run.stopwatch.resume()
                run.questions.close(question_id)

        what = {"question": question, "choices": list(choices)}
        answer: str = await step(run, self.node, key, what, do)
        return answer

    async def now(self, *, key: str) -> float:
        """Wall-clock time in seconds since 1970, recorded."""

        async def do() -> float:
            return self.run.wall()

        result: float = await step(self.run, self.node, key, "now", do)
        return result

    async def random(self, *, key: str) -> random.Random:
        """A random source whose seed is recorded."""

        async def do() -> int:
            return secrets.randbits(62)

        return random.Random(await step(self.run, self.node, key, "random", do))  # noqa: S311 - not for secrets

    async def record(self, kind: str, data: dict[str, Any], *, key: str) -> dict[str, Any]:
        """Journal a decision or a state of the topology, once for a key; gives what is on record."""
        run = self.run
        canonical(data)  # what is not JSON is the topology's fault, and told so before the journal is asked to hold it
        run.memo.claim(self.node, f"record:{key}")
        recorded = run.memo.steps.get((self.node, f"record:{key}"))
        if recorded is not None and recorded.data is not None:
            return recorded.data
        await run.journal.append(kind, node=self.node, key=f"record:{key}", data=data)
        return data

    async def offer(self, answer: str, *, key: str, note: str = "", deliberation: Deliberation | None = None) -> None:
        """Journal the best answer so far."""
        from romanesco._codec import to_json

        data = {
            "answer": answer,
            "note": note,
            "deliberation": None if deliberation is None else to_json(deliberation),
        }
        self.run.offers[self.node] = await self.record("offer", data, key=f"offer:{key}")

    async def hook(self, point: str, data: dict[str, Any]) -> dict[str, Any]:
        """Let the guards at a hook point see, change or refuse ``data``."""
        for name, guard in self.run.hooks.at(HookPoint(point)):
            if guard in self.guarding:
                continue
            key = f"hook:{point}:{name}:{digest(canonical(data))[:12]}"
            refused = self.run.memo.steps.get((self.node, f"record:{key}"))
            if refused is not None and refused.data is not None and "refused" in refused.data:
                raise Refused(refused.data["refused"])
            seen = deepcopy(data)  # a guard that changes its argument in place has changed it too
            try:
                given = await guard(seen, replace(self, guarding=(*self.guarding, guard)))
            except Refused as error:
                await self._acted(key, {"point": point, "guard": name, "refused": str(error)})
                raise
            if given != data:
                await self._acted(key, {"point": point, "guard": name, "changed": True})
            data = given
        return data

    async def _acted(self, key: str, what: dict[str, Any]) -> None:
        """Note what a guard did, once for what it was shown."""
        if (self.node, f"record:{key}") not in self.run.memo.used:
            await self.record("hook.acted", what, key=key)


@dataclass(slots=True)
class _Caller:
    """Makes the calls of one role in one node."""

    scope: NodeScope
    role: str

    async def __call__(self, request: ModelRequest, *, key: str, purpose: str) -> ModelReply:
        scope, run = self.scope, self.scope.run
        if run.hooks.guards:
            request = await _before_agent(scope, request, key=key, role=self.role, purpose=purpose)
        run.memo.claim(scope.node, key)
        fingerprint = digest(canonical(request_data(request)))
        recorded = run.memo.find(scope.node, key, fingerprint)
        if recorded is None:
            reply = await self._live(request, key, purpose, fingerprint)
        elif recorded.failure is not None:
            raise failure_from(recorded.failure)
        else:
            assert recorded.data is not None
            reply = read_reply(recorded.data)
        if run.hooks.guards:
            reply = await _after_model(scope, reply, key=key, role=self.role, purpose=purpose)
        return reply

    async def _live(self, request: ModelRequest, key: str, purpose: str, fingerprint: str) -> ModelReply:
        scope, run = self.scope, self.scope.run
        asked = run.journal.seq
        if request.deadlines != run.spec.deadlines:
            request = replace(request, deadlines=run.spec.deadlines)
        call = CallStep(scope.node, key, self.role, purpose, request, fingerprint, asked)
        work = run.engine.step(f"{scope.node} {key}", partial(call_model, run, call))
        left = run.time_left(wrap_up=purpose == WRAP_UP)
        deadline = None if left is None else asyncio.timeout(left)  # thousands may wait here, most without a deadline
        try:
            with run.stopwatch.working():
                if deadline is None:
                    return await run.stops.guard(scope.node, work)
                async with deadline:
                    return await run.stops.guard(scope.node, work)
        except TimeoutError:
            if deadline is None or not deadline.expired():
                raise
            error = _out_of_time(run)
            await record_failure(run, scope.node, key, fingerprint, asked, error)
            raise error from None
        except MEMOISED_FAILURES as error:
            await record_failure(run, scope.node, key, fingerprint, asked, error)
            raise


def _out_of_time(run: RunContext) -> BudgetExceeded:
    """What a call hears whose time is up. Ordinary calls leave the wrap-up's share of the time untouched."""
    return BudgetExceeded(
        "The run's time is used up",
        account="run",
        dimension="seconds",
        value=f"{run.stopwatch.elapsed:.1f} s",
        limit=f"{run.seconds} s",
        advice="Give it more with --minutes and resume.",
    )


async def _before_agent(scope: NodeScope, request: ModelRequest, *, key: str, role: str, purpose: str) -> ModelRequest:
    messages = [{"role": m.role, "content": m.content} for m in request.messages]
    data = await scope.hook(
        HookPoint.BEFORE_AGENT, {"role": role, "key": key, "purpose": purpose, "messages": messages}
    )
    changed = tuple(
        replace(message, content=new["content"])
        for message, new in zip(request.messages, data["messages"], strict=True)
    )
    return replace(request, messages=changed)


async def _after_model(scope: NodeScope, reply: ModelReply, *, key: str, role: str, purpose: str) -> ModelReply:
    # A value that was asked for as a tool call stands in its arguments: the guards see it all the same.
    text = "\n".join([*filter(None, [reply.text]), *(call.arguments for call in reply.tool_calls)])
    data = await scope.hook(HookPoint.AFTER_MODEL, {"role": role, "key": key, "purpose": purpose, "text": text})
    return reply if data["text"] == text else replace(reply, text=data["text"], tool_calls=())


def usable(vectors: Sequence[Sequence[float]], count: int) -> list[list[float]]:
    """Vectors as they are journaled: one for each text, all of one length, every number finite.

    Raises:
        EmbeddingFailed: They are not.
    """
    rows = [[round(float(number), 7) for number in vector] for vector in vectors]
    if len(rows) != count or len({len(row) for row in rows}) > 1:
        raise EmbeddingFailed("The embedder gave vectors that don't fit", value=f"{len(rows)} of {count}")
    if not all(isfinite(number) for row in rows for number in row):
        raise EmbeddingFailed("The embedder gave numbers that are none", value="NaN or infinity")
    return rows
