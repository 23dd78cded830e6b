"""Words to a running run from another process; signals; death and what is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from romanesco.journal import Journal, SQLiteStore
from romanesco.runtime._supervise import LATE
from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands, Done, finish, until
from tests.support import PATIENCE

SLOW = ("run", "Think [slow]", "--topology", "members", "--param", "members=3", "--id", "r")


def start_slow(romanesco: Commands, server: FakeServerProcess) -> subprocess.Popen[str]:
    """A run with three calls in flight that won't come back by themselves."""
    process = romanesco.start(*SLOW, "-m", f"{server.url}#fake")
    until(lambda: len(server.ledger.requests) == 3, "three requests")
    return process


def test_stop_from_another_process(romanesco: Commands, slow: FakeServerProcess) -> None:
    process = start_slow(romanesco, slow)
    listed = romanesco("runs", "--json").json
    assert [(one["run"], one["status"], one["spend"]["calls"]) for one in listed] == [("r", "running", 3)]
    assert "running" in romanesco("show", "r").out
    busy = romanesco("resume", "r")
    assert busy.code == 2 and "owned by process" in busy.error
    said = romanesco("stop", "r", "--json")
    assert said.code == 0 and said.json["ok"] is True, said.err
    sent = len(slow.ledger.requests)
    done = finish(process)
    assert done.code == 5
    assert "(stopped): Stopped: a person stopped it" in done.out and "romanesco resume r" in done.out
    assert len(slow.ledger.requests) == sent == 3
    late = romanesco("stop", "r")
    assert late.code == 2 and "The run has ended" in late.error


def test_a_node_that_does_not_exist_can_not_be_stopped(romanesco: Commands, slow: FakeServerProcess) -> None:
    process = start_slow(romanesco, slow)
    wrong = romanesco("stop", "r/nowhere")
    assert wrong.code == 2 and "nowhere" in wrong.error
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_in_good_order(romanesco: Commands, slow: FakeServerProcess, number: signal.Signals) -> None:
    process = start_slow(romanesco, slow)
    process.send_signal(number)
    done = finish(process)
    assert done.code == 5
    assert "(stopped)" in done.out and "stopping; what is done is kept" in done.err
    record = romanesco("show", "r", "--json").json
    assert (record["ended"], record["outcome"]["reason"], record["spend"]["calls"]) == (True, "stopped", 3)
    assert romanesco("verify", "r").code == 0


def test_two_signals_leave_at_once_and_nothing_is_lost(romanesco: Commands, slow: FakeServerProcess) -> None:
    process = start_slow(romanesco, slow)
    os.kill(process.pid, signal.SIGSTOP)  # so that both signals wait when it goes on
    os.waitpid(process.pid, os.WUNTRACED)  # until it stands still
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    done = finish(process)
    assert done.code == 130
    assert done.err.endswith("\nInterrupted at once. Go on: romanesco resume r\n")
    assert romanesco("verify", "r").code == 0


def test_br_055_a_killed_run_is_listed_shown_and_resumed(romanesco: Commands, tmp_path: Path) -> None:
    second_waits = {"rules": [{"match": "[1]", "calls": [0], "fault": {"stall": "inf"}}]}
    with FakeServerProcess(tmp_path, second_waits) as server:
        process = romanesco.start("run", "Think", "--topology", "chain", "-m", f"{server.url}#fake", "--id", "r")
        until(lambda: len(server.ledger.requests) == 2, "the second request")
        process.kill()
        finish(process)
        listed = romanesco("runs", "--interrupted", "--json").json
        assert [(one["run"], one["status"]) for one in listed] == [("r", "interrupted")]
        shown = romanesco("show", "r")
        assert "INTERRUPTED" in shown.out and "romanesco resume r" in shown.out
        for command in (("stop", "r"), ("answer", "r", "yes"), ("budget", "r", "--calls", "9")):
            said = romanesco(*command)
            assert said.code == 2 and "Nobody is working on the run" in said.error
        done = romanesco("resume", "r", "--json")
        assert (done.code, done.json["status"]) == (0, "completed")
        assert done.json["spend"]["in_doubt"] == 1
        requests = server.ledger.requests
        assert len(requests) == done.json["spend"]["calls"] == 4
        assert len({entry.digest for entry in requests}) == 3, "only the call in flight was made again"
        assert romanesco("runs", "--interrupted", "--json").json == []
        assert romanesco("verify", "r").code == 0


def test_an_interrupted_run_can_be_abandoned(romanesco: Commands, slow: FakeServerProcess) -> None:
    process = start_slow(romanesco, slow)
    process.kill()
    finish(process)
    said = romanesco("stop", "r", "--abandon")
    assert said.code == 0 and "The run has ended" in said.out
    assert len(slow.ledger.requests) == 3
    assert romanesco("runs", "--interrupted", "--json").json == []
    assert romanesco("stop", "r", "--abandon").code == 2


def asked(romanesco: Commands, number: int) -> str:
    """Id of the question that waits, once there is one."""
    found: list[str] = []

    def waits() -> bool:
        done = romanesco("show", "q", "--json")
        questions = done.json["questions"] if done.code == 0 else []
        found[:] = [one["id"] for one in questions if one["question"] == f"Question {number}?"]
        return bool(found)

    until(waits, "a question")
    return found[0]


def test_questions_are_answered_from_another_process(romanesco: Commands, server: FakeServerProcess) -> None:
    words = ("--topology", "asking", "--param", "questions=2", "-m", f"{server.url}#fake", "--id", "q")
    process = romanesco.start("run", "Ask me", *words)
    first = asked(romanesco, 0)
    assert f"romanesco answer q {first} TEXT" in romanesco("show", "q").out
    wrong = romanesco("answer", "q", "maybe")
    assert wrong.code == 2 and "not one of the choices" in wrong.error
    assert romanesco("answer", "q", "nonsense", "yes").code == 2
    assert romanesco("answer", "q", first, "yes").code == 0
    asked(romanesco, 1)
    again = romanesco("answer", "q", first, "no")
    assert again.code == 2 and "No such question is pending" in again.error
    assert romanesco("answer", "q", "no").code == 0
    done = finish(process)
    assert done.code == 0
    assert done.out.startswith("yes, no\n")
    assert f"question {first}: Question 0? [yes / no]" in done.err


def test_br_119_an_answer_after_a_stop_is_refused(romanesco: Commands, server: FakeServerProcess) -> None:
    process = romanesco.start("run", "Ask me", "--topology", "asking", "-m", f"{server.url}#fake", "--id", "q")
    question = asked(romanesco, 0)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 5
    late = romanesco("answer", "q", question, "yes")
    assert late.code == 2 and "The run has ended" in late.error
    assert romanesco("show", "q", "--json").json["questions"] == []


def test_limits_are_changed_while_it_runs(romanesco: Commands, server: FakeServerProcess) -> None:
    process = romanesco.start("run", "Ask me", "--topology", "asking", "-m", f"{server.url}#fake", "--id", "q")
    asked(romanesco, 0)
    said = romanesco("budget", "q", "--tokens", "500", "--calls", "none", "--json")
    assert (said.code, said.json["ok"]) == (0, True), said.err
    assert said.json["message"] == "The limit of tokens is 500 now. There is no limit of calls now."
    said = romanesco("budget", "q", "--tokens", "5000", "--minutes", "90")
    assert said.out == "The limit of tokens is 5,000 now. The limit of time is 90 min now.\n"
    said = romanesco("budget", "q", "--tokens", "500", "--minutes", "none")
    assert said.out == "The limit of tokens is 500 now. There is no limit of time now.\n"
    assert romanesco("budget", "q", "--minutes", "-1").code == 2
    assert romanesco("answer", "q", "yes").code == 0
    done = finish(process)
    assert done.code == 0
    assert "limit of tokens: 500" in done.err and "limit of calls: none" in done.err


def test_a_server_that_fails_ends_in_a_labelled_outcome(romanesco: Commands, tmp_path: Path) -> None:
    with FakeServerProcess(tmp_path, {"default": {"fault": {"status": 500}}}) as server:
        done: Done = romanesco("run", "Hi", "--topology", "single", "-m", f"{server.url}#fake", "--id", "r")
        assert done.code == 6
        assert done.out.startswith("FAILED (model): ")
        assert "attempt 2" in done.err
        assert len(server.ledger.requests) == 3
        assert romanesco("show", "r", "--json").json["spend"]["calls"] == 3


def test_a_project_whose_limit_was_lowered_refuses_a_resume_and_no_abandoning(
    romanesco: Commands, slow: FakeServerProcess
) -> None:
    romanesco.env.update(ROMANESCO_PROJECT_NAME="web", ROMANESCO_PROJECT_CALLS="100", ROMANESCO_BUDGET_CALLS="12")
    process = start_slow(romanesco, slow)
    process.kill()
    finish(process)
    romanesco.env.update(ROMANESCO_PROJECT_CALLS="3")
    refused = romanesco("resume", "r")
    assert refused.code == 3 and "project:web" in refused.error and "limit 3" in refused.error
    said = romanesco("stop", "r", "--abandon")
    assert said.code == 0 and "The run has ended" in said.out, "it spends nothing more, so no account is asked"
    assert len(slow.ledger.requests) == 3
    assert romanesco("verify", "r").code == 0


async def test_a_stop_that_comes_when_the_run_has_ended_is_no_failure(romanesco: Commands) -> None:
    """Its owner reads it too late, says so, and leaves: there is nothing left to stop, as was wanted."""
    async with SQLiteStore(romanesco.home / "journal.db") as store:
        journal = await Journal.create(store, "r")
        await journal.append("run.created", data={})
        process = romanesco.start("stop", "r")
        async with asyncio.timeout(PATIENCE):
            while not (commands := await store.take("r")):  # noqa: ASYNC110 - another process sends it
                await asyncio.sleep(0.01)
        await journal.append("run.ended", data={"status": "completed"})
        await store.acknowledge(commands[0].id, LATE)
        await journal.close()
        done = await asyncio.to_thread(finish, process)
    assert (done.code, done.out, done.err) == (0, "The run has ended (completed).\n", "")
