"""``run_sync`` and Ctrl-C: an interrupt is a stop, and nothing is spent behind the back of who pressed it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import romanesco
from romanesco import Outcome, Scope, ScriptedModel, Status, Task
from romanesco._api import in_thread
from romanesco.models import ModelRequest
from romanesco.runtime import _supervise
from romanesco.testing import Chain
from tests.runtime.checks import check_run, kinds
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in, events_of

MOST = 50
"""Calls that a run would make that nobody stops."""


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, as on a terminal: what a shell starts in the background begins with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    """What a terminal does on Ctrl-C. The main thread waits for the run's thread, from which this is called."""
    main = threading.main_thread().ident
    assert main is not None and main != threading.get_ident()
    signal.pthread_kill(main, signal.SIGINT)


async def never() -> str:
    return str(await asyncio.get_running_loop().create_future())


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "romanesco"]


def test_after_ctrl_c_no_request_is_made_and_the_run_is_resumed(tmp_path: Path) -> None:
    async def third(_request: ModelRequest) -> str:
        press()
        return await never()

    config = config_in(tmp_path)
    model = ScriptedModel({"step/2": third, "*": "ok"})
    with pytest.raises(KeyboardInterrupt):
        romanesco.run_sync("g", model=model, topology=Chain(), params={"length": MOST}, config=config, run="r")
    assert len(model.calls) == 3 and not threads()  # who is not there any more sends nothing

    async def look() -> None:
        ended = kinds(await events_of(config, "r"), "run.ended")
        assert [data["reason"] for *_, data in ended] == ["stopped"]
        whole = ScriptedModel("ok")
        outcome = await romanesco.resume("r", model=whole, topologies=[Chain()], config=config)
        assert outcome.status is Status.COMPLETED and len(whole.calls) == MOST - 2
        await check_run(config, outcome)

    asyncio.run(look())


def test_a_second_ctrl_c_ends_what_does_not_end_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_supervise, "GRACE", 3600.0)

    async def stubborn(task: Task, scope: Scope) -> Outcome:
        await say(scope, "hello", "first")
        try:
            await say(scope, "hello", "second")
        except romanesco.RomanescoError:
            press()
            await never()
        return done()

    async def second(_request: ModelRequest) -> str:
        press()
        return await never()

    model = ScriptedModel({"first": "ok", "second": second})
    config = config_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        romanesco.run_sync("g", model=model, topology=Plain(stubborn), config=config, run="r")
    assert len(model.calls) == 2 and not threads()

    async def calm(task: Task, scope: Scope) -> Outcome:
        return done(await say(scope, "hello", "first") + await say(scope, "hello", "second"))

    async def look() -> None:
        again = ScriptedModel("later")
        outcome = await romanesco.resume("r", model=again, topologies=[Plain(calm)], config=config)
        assert outcome.answer == "oklater" and len(again.calls) == 1

    asyncio.run(look())


def test_work_that_ends_with_the_interrupt_is_still_interrupted() -> None:
    async def work() -> str:
        press()
        return "done"

    with pytest.raises(KeyboardInterrupt):
        in_thread(work())
    assert not threads()


def test_what_fails_while_it_is_stopped_is_the_cause() -> None:
    async def work() -> None:
        press()
        try:
            await never()
        finally:
            raise ZeroDivisionError("in the way out")

    with pytest.raises(KeyboardInterrupt) as caught:
        in_thread(work())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
