"""What the command line says of a call that used more than was reserved, and of a run that was killed at its start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from romanesco import Outcome, Status, StopReason, Task
from romanesco._codec import to_json
from romanesco.interfaces.cli._ending import Refusal, way_on
from romanesco.journal import Journal, SQLiteStore
from romanesco.runtime import RunSpec, SharedAccount
from romanesco.task import Budget
from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands

FALSE = {"rules": [{"match": "", "reply": "word " * 300, "fault": {"usage": "over"}}]}


@pytest.fixture
def overran(romanesco: Commands, tmp_path: Path) -> Commands:
    """A run ``r`` of one call, completed, whose server said that it used ten times as much."""
    with FakeServerProcess(tmp_path, FALSE) as server:
        words = ("run", "Say hello", "-m", f"{server.url}#fake", "--topology", "single", "--param", "answer_tokens=600")
        ran = romanesco(*words, "--id", "r")
        assert ran.code == 0, ran.err
        assert "OVERRUN: A call used more" in ran.out and "Note:" not in ran.out
        quiet = romanesco(*words, "--id", "quiet", "--quiet")
        assert quiet.code == 0 and "OVERRUN: A call used more" in quiet.err and "OVERRUN" not in quiet.out
    return romanesco


def test_an_overrun_of_the_last_call_is_told_on_every_screen(overran: Commands) -> None:
    shown = overran("show", "r")
    assert "OVERRUN: A call used more" in shown.out and "tokens_out more" in shown.out
    outcome = overran("show", "r", "--json").json["outcome"]
    assert outcome["status"] == "completed" and "tokens_out more" in outcome["note"]
    assert {"tokens", "tokens_out"} <= {one["dimension"] for one in outcome["overruns"]}
    found = overran("verify", "r")
    assert found.code == 10 and "VIOLATED" in found.out
    again = overran("resume", "r")
    assert again.code == 0 and "OVERRUN: A call used more" in again.out


def test_a_run_that_kept_to_its_bill_says_nothing_of_it(romanesco: Commands, server: FakeServerProcess) -> None:
    ran = romanesco("run", "Say hello", "-m", f"{server.url}#fake", "--topology", "single", "--id", "r")
    assert ran.code == 0 and "OVERRUN" not in ran.out + ran.err
    assert "OVERRUN" not in romanesco("show", "r").out


def begun(file: Path) -> None:
    """Leave what a process leaves that was killed after it held its worst case and before it planned its run."""

    async def begin() -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        spec = RunSpec(
            "r",
            Task("Say hello"),
            "single",
            {"default": "scripted:test"},
            shared=(SharedAccount("project:web", Budget(calls=20)),),
        )
        async with SQLiteStore(file) as store, await Journal.create(store, "r") as journal:
            await journal.append("run.created", data={"spec": to_json(spec), "guards": {}})
            await store.charge("project:web", "r", {"calls": "12"}, {})

    asyncio.run(begin())


def held(file: Path) -> dict[str, str]:
    async def look() -> dict[str, str]:
        async with SQLiteStore(file) as store:
            return await store.charged("project:web")

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("words", "code"), [(("stop", "r", "--abandon"), 0), (("resume", "r"), 130)], ids=["abandon", "resume"]
)
def test_what_a_run_holds_that_was_never_planned_can_be_freed(
    words: tuple[str, ...], code: int, romanesco: Commands
) -> None:
    file = romanesco.home / "journal.db"
    begun(file)
    assert romanesco("runs", "--json").json[0]["status"] == "interrupted"
    assert "romanesco stop r --abandon" in romanesco("show", "r").error
    done = romanesco(*words)
    assert done.code == code, done.err
    assert held(file) == {}
    assert romanesco("runs", "--json").json[0]["status"] == "cancelled"
    shown = romanesco("show", "r").out
    assert "never planned" in shown and "romanesco resume" not in shown
    assert romanesco("verify", "r").code == 0
    assert "nothing to replay" in romanesco("replay", "r").error


def test_a_plan_refuses_the_limit_that_a_run_refuses(romanesco: Commands, server: FakeServerProcess) -> None:
    refusals = [romanesco(verb, "Hi", "-m", f"{server.url}#fake", "--usd", "1e300") for verb in ("plan", "run")]
    assert [(done.code, done.error) for done in refusals] == [(2, refusals[0].error)] * 2
    assert "10^12 dollars" in refusals[0].error and not server.ledger.requests


def test_a_roles_own_limit_is_not_raised_by_a_higher_limit_of_the_run() -> None:
    outcome = Outcome(
        Status.PARTIAL,
        StopReason.BUDGET,
        note="No room.",
        run="r",
        dimension="calls",
        account="run/role:decision-maker",
    )
    way = way_on(outcome, Refusal(outcome.account, "calls", "2", "1"))
    told = f"{way.words} {way.command}" if way is not None else ""
    assert "[limits.decision-maker]" in told and "romanesco resume" not in told
