"""The journal against killed processes and full disks."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path

import pytest

from romanesco.journal import Journal, SQLiteStore, verify
from tests.support import PATIENCE, start

BURST = """
    import asyncio, sys
    from romanesco.journal import Journal, SQLiteStore
    async def main():
        path, answers = sys.argv[1], asyncio.Event()
        store = SQLiteStore(path)
        journal = await Journal.create(store, "r")
        await journal.append("run.created", data={})
        ready = 0
        async def member(number):
            nonlocal ready
            key, reserved = f"1/{number}", {"tokens_in": 9, "tokens_out": 9, "usd": "0"}
            await journal.append("call.started", node="/", key=key, data={"attempt": 1, "reserved": reserved})
            ready += 1
            if ready == 1000:
                answers.set()
            await answers.wait()
            usage = {"input": 5, "output": 5, "cached": 0, "reasoning": 0, "estimated": False}
            data = {"attempt": 1, "usage": usage, "usd": "0", "reply": {"text": "word " * 400, "n": number}}
            await journal.append("call.finished", node="/", key=key, data=data)
            sys.stdout.write(key + "\\n")
        async with asyncio.TaskGroup() as group:
            for number in range(1000):
                group.create_task(member(number))
        sys.stdout.write("all\\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
    asyncio.run(main())
"""


async def test_a_burst_of_1000_answers_is_durable_half_a_second_before_the_kill(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    process = start(BURST, str(path))
    assert process.stdout is not None
    told: list[str] = []
    while (line := process.stdout.readline().strip()) != "all":
        assert line, "the process ended early"
        told.append(line)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(told) == 1000
    async with SQLiteStore(path) as store, await Journal.open(store, "r") as journal:
        past = journal.take_past()
        finished = {event.key for event in past if event.kind == "call.finished"}
        assert finished == set(told)
        assert {event.key for event in past if event.kind == "call.started"} == finished


KILLED_ANYWHERE = """
    import asyncio, sys
    from romanesco.journal import Journal, SQLiteStore
    async def main():
        store = SQLiteStore(sys.argv[1])
        if await store.read("r", 0, 1):
            journal = await Journal.open(store, "r")
            past = journal.take_past()
            journal.append_nowait("run.resumed")
        else:
            journal = await Journal.create(store, "r")
            past = []
            journal.append_nowait("run.created", data={})
        if all(event.kind != "run.planned" for event in past):
            journal.append_nowait("run.planned", data={"plan": {"bill": {"lines": [], "nodes": 1}}})
        done = {event.key for event in past if event.kind == "call.finished"}
        starts = [event.key for event in past if event.kind == "call.started"]
        left = int(sys.argv[2])
        async def member(number):
            nonlocal left
            for step in range(200):
                key = f"{number}/{step}"
                if key in done:
                    continue
                if not left:
                    await asyncio.Event().wait()
                left -= 1
                attempt = 1 + starts.count(key)
                reserved = {"tokens_in": 9, "tokens_out": 9, "usd": "0"}
                data = {"attempt": attempt, "reserved": reserved}
                await journal.append("call.started", node="/", key=key, data=data)
                print(f"paid {key}", flush=True)
                usage = {"input": 5, "output": 5, "cached": 0, "reasoning": 0, "estimated": False}
                data = {"attempt": attempt, "usage": usage, "usd": "0", "reply": "word " * (number * 60)}
                await journal.append("call.finished", node="/", key=key, data=data)
                print(f"known {key}", flush=True)
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(member(number))
        await journal.close()
        await store.close()
        print("all", flush=True)
    asyncio.run(main())
"""


async def test_br_038_killed_anywhere_nothing_that_is_known_is_paid_twice(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    chance = random.Random(7)
    known: set[str] = set()
    paid: list[str] = []
    kills = 0
    whole = False
    while not whole:
        # However late its kill comes, none of the eight that are killed gets through to the end.
        process = start(KILLED_ANYWHERE, str(path), "190" if kills < 8 else "-1")
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        if kills < 8:
            await asyncio.sleep(chance.uniform(0.0, 0.05))
            process.send_signal(signal.SIGKILL)
            kills += 1
        lines += process.communicate()[0].splitlines()
        words = [line.split() for line in lines]
        now_paid = [word[1] for word in words if word[:1] == ["paid"] and len(word) == 2]
        assert not known & set(now_paid), "a call that was known to be finished was made again"
        paid += now_paid
        known |= {word[1] for word in words if word[:1] == ["known"] and len(word) == 2}
        whole = ["all"] in words
        assert process.returncode == (0 if whole else -signal.SIGKILL)
    assert kills == 8
    assert len(paid) - len(set(paid)) <= 8 * kills, "only what was in flight at a kill may be repeated"
    async with SQLiteStore(path) as store:
        events = await store.read("r")
        kinds = [event.kind for event in events]
        assert kinds.count("call.finished") == 8 * 200
        assert kinds.count("run.resumed") == kills  # each wrote that it goes on before it paid for anything
        found = await verify(store, "r")
        assert found.ok, found.findings
        assert found.totals.unknown == kinds.count("call.started") - kinds.count("call.finished")
        assert not store.owned("r")


FULL_DISK = """
    import asyncio, json, resource, sys
    from romanesco.errors import JournalUnwritable
    from romanesco.journal import Journal, SQLiteStore
    async def main():
        path = sys.argv[1]
        store = SQLiteStore(path)
        journal = await Journal.create(store, "r")
        await journal.append("run.created", data={})
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        durable = 1
        try:
            while True:
                writes = [journal.append("note", key=f"{n}", data={"x": f"{n}" * 20_000}) for n in range(3)]
                for written in writes:
                    durable = (await written).seq
        except JournalUnwritable as error:
            message = str(error)
        readable = len(await store.read("r"))
        await journal.close()
        other = None
        try:
            other = await Journal.create(store, "other")
            await other.append("run.created", data={"x": [str(n) for n in range(200_000)]})
        except JournalUnwritable as error:
            second = str(error)
        await other.close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        again = await Journal.open(store, "r")
        resumed = await again.append("run.resumed")
        await again.close()
        await store.close()
        print(json.dumps([message, second, durable, readable, resumed.seq]))
    asyncio.run(main())
"""


async def test_a_full_disk_is_a_clear_error_and_nothing_is_half_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    output = start(FULL_DISK, str(path)).communicate(timeout=PATIENCE)[0]
    message, second, durable, readable, resumed = json.loads(output)
    for text in (message, second):
        assert text.startswith(("The disk is full", "The disk did not take"))
        assert str(path) in text
        assert "free space" in text.lower() or "free some space" in text.lower()
    assert readable == durable
    assert resumed == durable + 1
    async with SQLiteStore(path) as store:
        found = await verify(store, "r")
        assert found.ok, found.findings
        assert await store.read("other") == []


async def test_a_full_database_does_not_stop_reading_and_later_writes(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        async with await Journal.create(store, "r") as journal:
            await journal.append("run.created", data={})
            assert store._writer is not None
            connection = store._writer._connection
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={pages}")
            with pytest.raises(Exception, match=r"The disk is full.*Free some space"):
                await journal.append("note", data={"x": "y" * 100_000})
        assert len(await store.read("r")) == 1
        assert await store.blobs(["0"]) == {}
        connection.execute("PRAGMA max_page_count=1000000")
        async with await Journal.open(store, "r") as journal:
            await journal.append("run.resumed", data={"x": "y" * 100_000})
        assert (await verify(store, "r")).ok
