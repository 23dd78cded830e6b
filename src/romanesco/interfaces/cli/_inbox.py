"""Sends a command to the owner of a run and waits for its word."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import Any

from romanesco.errors import EXIT_CODES, InputError, RomanescoError, StopReason
from romanesco.interfaces.cli._ending import OPTIONS
from romanesco.interfaces.cli._read import find_run, open_store
from romanesco.interfaces.cli._screen import Screen
from romanesco.journal import Command, Store
from romanesco.runtime._supervise import LATE
from romanesco.task import Status

_POLL = 0.05
_NOTHING = {"stop": "nothing is left to stop", "answer": "no question waits", "budget": "no limit binds any more"}


async def stop_run(target: str, *, abandon: bool, wait: int, json: bool) -> int:
    """Stop a run or a node of it."""
    name, slash, node = target.partition("/")
    if abandon:
        if slash:
            raise InputError("--abandon ends a whole run", value=target, limit=name)
        return await _abandon(name, json=json)
    async with open_store(read_only=False) as store:
        run = await find_run(store, name)
        command = new_command(run, f"/{node.strip('/')}", "stop", {"why": "a person stopped it"})
        said = await send(store, command, wait=wait)
    return tell(said, run, json=json)


async def answer_question(name: str, question: str | None, text: str, *, wait: int, json: bool) -> int:
    """Answer a question of a run."""
    async with open_store(read_only=False) as store:
        run = await find_run(store, name)
        said = await send(store, new_command(run, "/", "answer", {"question": question, "text": text}), wait=wait)
    return tell(said, run, json=json)


async def change_limits(name: str, changes: dict[str, Any], *, wait: int, json: bool) -> int:
    """Change limits of a running run, one after the other."""
    said: list[dict[str, Any]] = []
    async with open_store(read_only=False) as store:
        run = await find_run(store, name)
        for dimension, value in changes.items():
            command = new_command(run, "/", "budget", {"dimension": dimension, "value": value})
            said.append(await send(store, command, wait=wait))
    ok = all(one["ok"] for one in said)
    return tell({"ok": ok, "message": " ".join(str(one["message"]) for one in said)}, run, json=json)


def new_command(run: str, node: str, verb: str, data: dict[str, Any]) -> Command:
    """A command with an id of its own."""
    return Command(uuid.uuid4().hex, run, node, verb, data, time.time())


async def send(store: Store, command: Command, *, wait: float) -> dict[str, Any]:
    """Post a command and wait for the owner's word.

    Raises:
        InputError: Nobody owns the run.
        RomanescoError: The owner did not say a word in time.
    """
    run = command.run
    if not store.owned(run):
        raise await _unowned(store, run, command)
    await store.post(command)
    until = time.monotonic() + wait
    while time.monotonic() < until:
        owned = store.owned(run)  # before the acknowledgement: an owner that answers and leaves has answered
        said = await store.acknowledgement(command.id)
        if said is not None and not (said == LATE and command.verb == "stop"):
            return said  # a stop that came too late is no failure: the run's end is waited for, and told
        if not owned:
            return await _left(store, run, command)
        await asyncio.sleep(_POLL)
    raise RomanescoError(
        f"The process that works on the run has not answered the {command.verb}",
        value=run,
        limit=f"{wait:g} s",
        advice="It may be busy; the command stays in its inbox. --wait waits longer.",
    )


async def _unowned(store: Store, run: str, command: Command) -> InputError:
    status = await _end(store, run)
    option = OPTIONS.get(command.data.get("dimension", ""), "--tokens N")
    if status is not None:
        again = command.verb == "budget" and status != Status.COMPLETED
        advice = f"Give the limit when you go on: romanesco resume {run} {option}." if again else ""
        return InputError(f"The run has ended ({status}): {_NOTHING[command.verb]}", value=run, advice=advice)
    advice = {
        "stop": f"End it: romanesco stop {run} --abandon. Go on: romanesco resume {run}.",
        "answer": f"Go on with it first: romanesco resume {run}; then answer.",
        "budget": f"Give the limit when you go on: romanesco resume {run} {option}.",
    }[command.verb]
    return InputError("Nobody is working on the run: its process died", value=run, advice=advice)


async def _left(store: Store, run: str, command: Command) -> dict[str, Any]:
    """The owner ended before it could answer: what that means for the command."""
    status = await _end(store, run)
    if status is None:
        message = "The process that worked on the run died before it could answer."
        return {"ok": command.verb == "stop", "message": message}
    ended = f"The run has ended ({status})."
    return {"ok": command.verb == "stop", "message": ended if command.verb == "stop" else f"Too late: {ended}"}


async def _end(store: Store, run: str) -> str | None:
    """Status of a run that has ended, None if it has not."""
    head = next((head for head in await store.runs() if head.run == run), None)
    last = await store.read(run, head.seq - 1) if head is not None and head.kind == "run.ended" else []
    return str(last[-1].data.get("status")) if last and last[-1].kind == "run.ended" else None


async def _abandon(name: str, *, json: bool) -> int:
    """End an interrupted run with the best answer it has: resume it, stopped from the first step on."""
    from romanesco._config import load_config
    from romanesco._prepare import open_parts
    from romanesco.runtime import resume

    async with open_parts(load_config()) as parts:
        run = await find_run(parts.store, name)
        status = await _end(parts.store, run)
        if status is not None:
            raise InputError(f"The run has ended ({status}): nothing is left to abandon", value=run)
        session = await resume(run, replace(parts, accounts=None))  # it spends no more: no account may refuse it
        await session.stop("Stopped: a person abandoned it")
        outcome = await session.drive()
    return tell({"ok": True, "message": f"The run has ended ({outcome.status.value})."}, run, json=json)


def tell(said: dict[str, Any], run: str, *, json: bool) -> int:
    """Print the owner's word; gives the exit status."""
    screen = Screen(json=json)
    if json:
        screen.document({"run": run, **said})
    elif said["ok"]:
        screen.text(str(said["message"]))
    else:
        raise InputError(str(said["message"]))
    return 0 if said["ok"] else EXIT_CODES[StopReason.INPUT]
