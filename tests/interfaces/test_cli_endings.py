"""How a run stands, what cut it short, what it cost of what at most, and the command that goes on from there."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from romanesco.journal import Journal, SQLiteStore
from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands, Done, finish, until
from tests.interfaces.terminal import Terminal

SLOW = ("--topology", "members", "--param", "members=3")
ROUNDS = ("--k", "4", "--rounds", "6", "--param", "tau_sat=0", "--param", "eps=0")


def start_slow(romanesco: Commands, server: FakeServerProcess, run: str = "r", *more: str) -> subprocess.Popen[str]:
    """A run with three calls out that won't come back by themselves."""
    before = len(server.ledger.requests)
    process = romanesco.start("run", "Think [slow]", *SLOW, "-m", f"{server.url}#fake", "--id", run, *more)
    until(lambda: len(server.ledger.requests) == before + 3, "three requests")
    return process


def top(done: Done) -> str:
    """What ``show`` says before its first section."""
    return done.out.split("\n\n")[0]


def go_on(shown: str) -> list[str]:
    """The command that a text tells to go on with, as words."""
    (line,) = [line for line in shown.splitlines() if line.startswith("Go on")]
    return shlex.split(line.rpartition(": ")[2].removeprefix("romanesco "))


def test_calls_are_in_flight_while_their_process_lives_and_in_doubt_after(
    romanesco: Commands, slow: FakeServerProcess
) -> None:
    process = start_slow(romanesco, slow)
    shown, listed = romanesco("show", "r"), romanesco("runs")
    assert "3 calls are in flight." in top(shown)
    assert "3 calls in flight, counted in full until they are done" in shown.out
    assert "running (3 in flight)" in listed.out
    assert "doubt" not in shown.out + listed.out
    for data in (romanesco("show", "r", "--json").json, romanesco("runs", "--json").json[0]):
        assert (data["status"], data["in_flight"]) == ("running", 3)
        assert (data["spend"]["calls"], data["spend"]["in_doubt"]) == (3, 0)
    process.kill()
    finish(process)
    shown, listed = romanesco("show", "r"), romanesco("runs")
    assert "3 calls were in flight then." in top(shown)
    assert "3 calls in doubt, counted in full" in shown.out
    assert "interrupted (3 in doubt)" in listed.out
    for data in (romanesco("show", "r", "--json").json, romanesco("runs", "--json").json[0]):
        assert (data["status"], data["in_flight"], data["spend"]["in_doubt"]) == ("interrupted", 0, 3)


def test_what_a_dead_process_had_out_stays_in_doubt_while_the_next_one_works(
    romanesco: Commands, slow: FakeServerProcess
) -> None:
    process = start_slow(romanesco, slow)
    process.kill()
    finish(process)
    process = romanesco.start("resume", "r")
    until(lambda: len(slow.ledger.requests) == 6, "three more requests")
    data = romanesco("show", "r", "--json").json
    assert (data["in_flight"], data["spend"]["in_doubt"], data["spend"]["calls"]) == (3, 3, 6)
    assert "3 calls in flight, counted in full until they are done, 3 calls in doubt" in romanesco("show", "r").out
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 5


def test_a_capped_run_is_held_against_its_cap_and_the_bill_is_told(
    romanesco: Commands, server: FakeServerProcess
) -> None:
    words = ("run", "Why?", *ROUNDS, "--calls", "24", "-m", f"{server.url}#fake")
    ran = romanesco(*words, "--id", "piped")
    bill = sum(line["calls"] for line in romanesco("show", "piped", "--json").json["plan"]["bill"]["lines"])
    told = f"24 of 24 calls (limit; bill {bill})"
    assert f"\ncost  {told}, " in ran.out
    assert f"\nspent  {told}, " in romanesco("show", "piped").out
    terminal = Terminal(romanesco, *words, "--id", "live")
    assert terminal.finish() == 3
    assert any(line.startswith(f"{told}  ") for line in terminal.lines), "the live view"
    free = romanesco("run", "Why?", "--k", "3", "--rounds", "1", "-m", f"{server.url}#fake", "--id", "free")
    assert "(limit" not in free.out


def test_a_limit_that_a_resume_raised_is_the_one_that_is_told(romanesco: Commands, server: FakeServerProcess) -> None:
    words = ("--topology", "members", "-m", f"{server.url}#fake", "--id", "r")
    assert romanesco("run", "Why?", *words, "--calls", "5").code == 3
    more = romanesco("resume", "r", "--calls", "20")
    assert "\ncost  8 of 20 calls (limit), " in more.out
    shown = romanesco("show", "r").out
    assert "\nspent  8 of 20 calls (limit), " in shown and "\nlimits 20 calls\n" in shown


def test_show_begins_with_what_was_cut_by_which_limit_and_how_to_go_on(
    romanesco: Commands, server: FakeServerProcess
) -> None:
    ran = romanesco("run", "Why?", *ROUNDS, "--calls", "24", "-m", f"{server.url}#fake", "--id", "r")
    assert ran.code == 3
    first = top(romanesco("show", "r"))
    for told in (top(ran), first):
        assert "PARTIAL (budget): Cut short: " in told
        assert "\nlimit  24 calls; 25 would have been needed (account run: the run's own limit)\n" in told
        assert go_on(told) == ["resume", "r", "--calls", "N"]
    data = romanesco("show", "r", "--json").json
    named = {name: data["cut_by"][name] for name in ("account", "dimension", "value", "limit")}
    assert named == {"account": "run", "dimension": "calls", "value": "25", "limit": "24"}
    assert data["go_on"] == "romanesco resume r --calls N"
    part = romanesco("show", "r", "--section", "answer")
    assert part.err.startswith("PARTIAL (budget): ") and "romanesco resume r --calls N" in part.err
    assert "PARTIAL" not in part.out, "the part itself can be piped"
    done = romanesco(*(word.replace("N", "200") for word in go_on(first)), "--json")
    assert (done.code, done.json["status"]) == (0, "completed"), "the command that is told goes on"
    over = romanesco("show", "r", "--json").json
    assert (over["cut_by"], over["go_on"]) == (None, "")


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (("--calls", "5"), ["resume", "r", "--calls", "N"]),
        (("--tokens", "200"), ["resume", "r", "--tokens", "N"]),
        (("--minutes", "0.02"), ["resume", "r", "--minutes", "N"]),
    ],
)
def test_after_a_limit_the_command_raises_that_limit(
    romanesco: Commands, slow: FakeServerProcess, limit: tuple[str, str], told: list[str]
) -> None:
    goal = "Think [slow]" if limit[0] == "--minutes" else "Think"
    words = ("--topology", "members", "-m", f"{slow.url}#fake", "--id", "r")
    ran = romanesco("run", goal, *words, *limit)
    assert ran.code in (3, 4)
    shown = romanesco("show", "r")
    assert go_on(top(ran)) == go_on(top(shown)) == told
    assert "(account run: the run's own limit)" in top(shown)


def test_after_a_roles_limit_no_resume_is_told_that_would_not_help(
    romanesco: Commands, server: FakeServerProcess
) -> None:
    (romanesco.folder / "romanesco.toml").write_text("[limits.member-1]\ncalls = 0\n", encoding="utf-8")
    ran = romanesco("run", "Why?", *SLOW, "-m", f"{server.url}#fake", "--id", "r")
    assert ran.code == 3
    for told in (top(ran), top(romanesco("show", "r"))):
        assert "(account run/role:member-1: the role member-1)" in told
        assert "[limits.member-1] of romanesco.toml" in told and "romanesco resume" not in told
    again = romanesco("resume", "r", "--calls", "100")
    assert again.code == 3, "a resume ends at the same limit"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_one_signal_the_end_and_show_tell_the_command(
    romanesco: Commands, slow: FakeServerProcess, number: signal.Signals
) -> None:
    process = start_slow(romanesco, slow)
    process.send_signal(number)
    done = finish(process)
    assert done.code == 5
    assert go_on(done.out) == go_on(top(romanesco("show", "r"))) == ["resume", "r"]
    assert "Interrupted" not in romanesco("runs").err, "it ended in good order"


def test_after_two_signals_the_run_itself_is_named_though_another_is_newer(
    romanesco: Commands, slow: FakeServerProcess
) -> None:
    process = start_slow(romanesco, slow, "older")
    newer = romanesco("run", "Why?", "--topology", "single", "-m", f"{slow.url}#fake", "--id", "newer")
    assert newer.code == 0, newer.err
    os.kill(process.pid, signal.SIGSTOP)  # so that both signals wait when it goes on
    os.waitpid(process.pid, os.WUNTRACED)  # until it stands still
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    done = finish(process)
    assert done.code == 130
    assert done.err.splitlines()[-1] == "Interrupted at once. Go on: romanesco resume older"
    assert go_on(top(romanesco("show", "older"))) == ["resume", "older"]
    assert romanesco("runs").err == "Interrupted; go on: romanesco resume older\n"


def test_after_kills_the_list_tells_how_to_go_on(romanesco: Commands, slow: FakeServerProcess) -> None:
    for run in ("a", "b"):
        process = start_slow(romanesco, slow, run)
        process.kill()
        finish(process)
    for words in (("runs",), ("runs", "--interrupted")):
        said = romanesco(*words).err
        assert said.startswith("2 runs were interrupted; ") and said.endswith(": romanesco resume b\n")
    assert romanesco("runs", "--json").err == ""
    assert romanesco("show", "a", "--json").json["go_on"] == "romanesco resume a"


def test_after_a_model_that_fails_the_end_tells_to_go_on(romanesco: Commands, tmp_path: Path) -> None:
    with FakeServerProcess(tmp_path, {"default": {"fault": {"status": 500}}}) as server:
        ran = romanesco("run", "Hi", "--topology", "single", "-m", f"{server.url}#fake", "--id", "r")
    assert ran.code == 6
    assert go_on(top(ran)) == go_on(top(romanesco("show", "r"))) == ["resume", "r"]


@pytest.mark.parametrize(("option", "told"), [("--calls", "--calls N"), ("--usd", "--usd AMOUNT")])
def test_a_limit_for_a_run_that_nobody_works_on_is_told_to_be_given_to_resume(
    romanesco: Commands, slow: FakeServerProcess, option: str, told: str
) -> None:
    process = start_slow(romanesco, slow)
    process.kill()
    finish(process)
    said = romanesco("budget", "r", option, "9")
    assert said.code == 2 and f"romanesco resume r {told}." in said.error
    assert romanesco("stop", "r", "--abandon").code == 0
    said = romanesco("budget", "r", option, "9")
    assert said.code == 2 and "The run has ended" in said.error and f"romanesco resume r {told}." in said.error


async def test_a_run_that_died_before_it_was_planned_is_not_told_to_be_resumed(romanesco: Commands) -> None:
    async with SQLiteStore(romanesco.home / "journal.db") as store:
        journal = await Journal.create(store, "r")
        await journal.append("run.created", data={"spec": {"task": {"goal": "Why?"}, "topology": "single"}})
        await journal.close()
    listed = romanesco("runs")
    assert "interrupted (never planned)" in listed.out and "resume" not in listed.err
    shown = romanesco("show", "r")
    assert shown.code == 8 and "start it again" in shown.error


def test_a_reply_that_is_nested_too_deep_is_a_failure_in_words(romanesco: Commands, tmp_path: Path) -> None:
    """It is the server's fault and told as such, with no trace."""
    deep = "[" * 600 + "]" * 600
    message = f'{{"content": "hello", "odd": {deep}}}'
    choice = f'{{"index": 0, "message": {message}, "finish_reason": "stop"}}'
    body = f'{{"choices": [{choice}], "usage": {{"prompt_tokens": 5, "completion_tokens": 5}}}}'
    rules = {"rules": [{"match": "", "reply": {"fault": {"garbage": body}}}]}
    with FakeServerProcess(tmp_path, rules) as server:
        model = f'[models.mine]\nbase_url = "{server.url}"\nmodel = "fake"\nkey_env = "MY_KEY"\n'
        settings = f"{model}[retry]\nattempts = 1\n"
        (romanesco.folder / "romanesco.toml").write_text(settings, encoding="utf-8")
        words = ("run", "Hi", "--topology", "single", "-m", "custom:mine", "--id", "r")
        done = romanesco(*words, env={"MY_KEY": "sk-canary-7f3a9b21"})
    assert done.code == 6
    assert "nested more than 100 deep" in done.out + done.err
    assert "Traceback" not in done.err and "Error:" not in done.err
