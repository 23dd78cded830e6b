"""A run that was killed so often that its bill's retries are used up goes on when a person lets it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands, finish, until

RETRIES = 4
"""Further attempts that the bill of one call carries."""


def retries(shown: dict[str, Any]) -> int:
    """Calls of the bill's line of retries."""
    (line,) = [line for line in shown["plan"]["bill"]["lines"] if line["purpose"] == "retry"]
    return int(line["calls"])


STUCK = {"rules": [{"calls": list(range(1 + RETRIES)), "reply": "auto", "fault": {"latency": 600.0}}]}


def kill_at(request: int, romanesco: Commands, server: FakeServerProcess, *words: str) -> None:
    """Start a command and kill it when its request has reached the server."""
    process = romanesco.start(*words)
    until(lambda: len(server.ledger.requests) == request or process.poll() is not None, "a request")
    assert process.poll() is None, finish(process)
    process.send_signal(signal.SIGKILL)
    finish(process)


def test_a_run_that_was_killed_too_often_goes_on_with_resend(romanesco: Commands, tmp_path: Path) -> None:
    with FakeServerProcess(tmp_path, STUCK) as server:
        begin = ("run", "Say hello", "--model", f"{server.url}#fake", "--topology", "single", "--id", "r")
        kill_at(1, romanesco, server, *begin)
        billed = romanesco("show", "r", "--json").json
        for request in range(2, RETRIES + 2):
            kill_at(request, romanesco, server, "resume", "r")

        ended = romanesco("resume", "r")
        assert ended.code == 3
        assert "romanesco resume r --resend" in ended.out
        assert "--tokens" not in ended.out, "a higher limit does not help, so it must not be advised"
        assert len(server.ledger.requests) == 1 + RETRIES, "nothing was sent beyond the bill"
        assert "VIOLATED" not in romanesco("verify", "r").out.upper()

        more = romanesco("resume", "r", "--resend")
        assert more.code == 0
        assert f"{1 + RETRIES} calls and" in more.err, "what it adds is said before the first token"
        assert len(server.ledger.requests) == 2 + RETRIES
        verified = romanesco("verify", "r")
        assert verified.code == 0, verified.out
        shown = romanesco("show", "r", "--json").json
    assert retries(shown) == retries(billed) + 1 + RETRIES, "the bill on every screen is the one in force"
    assert shown["spend"]["calls"] == 2 + RETRIES


def test_resend_without_doubt_changes_nothing(romanesco: Commands, server: FakeServerProcess) -> None:
    begin = ("run", "Say it in steps", "--model", f"{server.url}#fake", "--topology", "chain", "--id", "r")
    assert romanesco(*begin, "--calls", "1").code == 3
    assert "no call is in doubt" in romanesco("resume", "r", "--resend").err
    assert "bill.raised" not in romanesco("export", "r").out
