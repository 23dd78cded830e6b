"""The list of runs: of each run no more is read than it shows."""

from __future__ import annotations

from collections import Counter

from romanesco.errors import StopReason
from romanesco.interfaces.cli._list import list_runs
from romanesco.journal import Event, Journal
from romanesco.testing import FakeServerProcess, MemoryStore
from tests.interfaces.commands import Commands

CREATED = {"spec": {"task": {"goal": "Why? " * 400}, "topology": "single"}}
RESERVED = {"tokens_in": 10, "tokens_out": 5, "usd": "0.5"}
USAGE = {"input": 7, "output": 3, "estimated": False}
EVENTS = 50


class Counting(MemoryStore):
    """Counts the events and payloads that it is asked for, by run."""

    def __init__(self) -> None:
        super().__init__()
        self.read_of: Counter[str] = Counter()
        self.payloads = 0

    async def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Count and read."""
        found = await super().read(run, after, limit)
        self.read_of[run] += len(found)
        return found

    async def blobs(self, digests: object) -> dict[str, bytes]:
        """Count and read."""
        found = await super().blobs(digests)  # type: ignore[arg-type]
        self.payloads += len(found)
        return found


async def write(store: MemoryStore, run: str, *, ended: bool, at: float) -> None:
    """A run of ``EVENTS`` events, with large payloads beside them; one that has not ended has a call out."""
    journal = await Journal.create(store, run, clock=lambda: at)
    await journal.append("run.created", data=CREATED)
    call = {"attempt": 1, "role": "a", "line": "l", "call_line": "l", "asked": 1, "fingerprint": "f", "purpose": "p"}
    for number in range((EVENTS - 2) // 2):
        asked = {**call, "reserved": RESERVED, "request": "x" * 2000}
        await journal.append("call.started", node="/", key=f"k{number}", data=asked)
        answered = {"attempt": 1, "usage": USAGE, "usd": "0.25", "reply": "y" * 2000, "elapsed": float(number)}
        await journal.append("call.finished", node="/", key=f"k{number}", data=answered)
    if ended:
        spend = {"calls": 24, "usd": "6"}
        end = {"status": "completed", "reason": StopReason.COMPLETED.value, "spend": spend, "outcome": "z" * 2000}
        await journal.append("run.ended", data=end)
    else:
        await journal.append("call.started", node="/", key="out", data={**call, "reserved": RESERVED})
    await journal.close()


async def test_a_long_list_reads_two_events_of_a_run_that_has_ended() -> None:
    store = Counting()
    for number in range(300):
        await write(store, f"r{number:03}", ended=number % 100 != 0, at=float(number))
    store.read_of.clear()
    store.payloads = 0
    listed, more = await list_runs(store, interrupted=False, limit=20)
    assert [one.run for one in listed] == [f"r{number}" for number in range(299, 279, -1)] and more == 280
    assert set(store.read_of) == {one.run for one in listed}, "what is not shown is not read"
    assert set(store.read_of.values()) == {2}
    assert store.payloads <= 20, "no more than the goals"
    assert (listed[0].goal, listed[0].spend.calls, str(listed[0].spend.usd)) == ("Why? " * 400, 24, "6")


async def test_only_what_was_interrupted_is_read_to_find_it() -> None:
    store = Counting()
    for number in range(300):
        await write(store, f"r{number:03}", ended=number % 100 != 0, at=float(number))
    store.read_of.clear()
    store.payloads = 0
    lock = store.lock("r200")
    listed, more = await list_runs(store, interrupted=True, limit=0)
    assert ([one.run for one in listed], more) == (["r100", "r000"], 0)
    assert set(store.read_of) == {"r100", "r000"}
    assert store.payloads <= 2, "what the calls cost stands in their events"
    spend = listed[0].spend
    assert (spend.calls, spend.tokens_in, spend.tokens_out, spend.in_doubt) == (25, 24 * 7 + 10, 24 * 3 + 5, 1)
    running, _ = await list_runs(store, interrupted=False, limit=100)
    assert [(one.run, one.status, one.in_flight, one.spend.in_doubt) for one in running if one.in_flight] == [
        ("r200", "running", 1, 0)
    ]
    lock.release()


def test_the_list_is_cut_at_its_limit_and_says_how_many_more(romanesco: Commands, server: FakeServerProcess) -> None:
    for number in range(3):
        words = ("--topology", "single", "-m", f"{server.url}#fake", "--id", f"r{number}", "--quiet")
        assert romanesco("run", "Why?", *words).code == 0
    listed = romanesco("runs", "--limit", "2")
    assert [line.split()[0] for line in listed.out.splitlines()[2:]] == ["r2", "r1"]
    assert listed.err == "1 more: romanesco runs --limit 0\n"
    whole = romanesco("runs", "--limit", "0", "--json").json
    assert [(one["run"], one["status"], one["spend"]["calls"]) for one in whole] == [
        (f"r{number}", "completed", 1) for number in (2, 1, 0)
    ]
