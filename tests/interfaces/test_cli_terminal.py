"""On a terminal, and at the door: the live view, help, exit statuses, what is imported, the embedded model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from romanesco.errors import EXIT_CODES, StopReason
from romanesco.interfaces.cli._check import VIOLATED
from romanesco.interfaces.cli._main import BROKEN_PIPE
from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import ROOT, Commands, until
from tests.interfaces.terminal import Terminal

COMMANDS = (
    *("run", "plan", "runs", "show", "accounts", "resume", "stop", "answer"),
    *("budget", "replay", "verify", "export", "models", "config"),
)


def test_the_live_view_shows_bill_team_tokens_and_money(romanesco: Commands, tmp_path: Path) -> None:
    # The first proposal stands still for many pictures, so that one is drawn of it on a busy machine as well.
    pause = {"calls": [0], "fault": {"stall": 3.0, "stall_after": 3}}
    with FakeServerProcess(tmp_path, {"rules": [pause], "default": {"fault": {"interval": 0.02}}}) as server:
        words = ("--k", "3", "--rounds", "1", "-m", f"{server.url}#fake", "--id", "r")
        terminal = Terminal(romanesco, "run", "Why?", *words)
        assert terminal.finish() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text)
    assert plain.index("at most") < plain.index("run r starts") < plain.index("divergent, round 1 of at most 1")
    for state in ("frame-challenger", "thinking", "waiting", "convergent", "completed", "decision-maker"):
        assert state in plain, state
    assert re.search(r"thinking +proposal +\d+ tokens", plain)
    assert re.search(r"\d+ of \d+ calls +[\d,]+ of [\d,]+ tokens", plain)
    assert terminal.text.index("\x1b[?25l") < terminal.text.rindex("\x1b[?25h"), "the cursor comes back"
    assert "romanesco show r" in plain


STEERING = "x\x7f\u009b31m\u0085\u2028\u061c\u200f\u202eevil\u2066 e\u0301 \u05e9"


def test_no_json_steers_the_terminal(romanesco: Commands, tmp_path: Path) -> None:
    """What a person or a model wrote reaches a program as it is, and a terminal as escapes."""
    with FakeServerProcess(tmp_path, {"default": {"text": STEERING}}) as server:
        single = ("--topology", "single", "-m", f"{server.url}#fake", "--id", "r", "--json")
        runs = [romanesco("run", STEERING, *single)]
    runs += [romanesco(*words, "--json") for words in (("show", "r"), ("runs",), ("replay", "r"), ("resume", "r"))]
    runs.append(romanesco("config", "--json", env={"ROMANESCO_MODEL": STEERING}))
    for done in runs:
        assert done.code == 0, done.err
        assert done.json
        assert not set(done.out) & set(STEERING[1:3] + STEERING[6:11] + "\u2066"), done.out
        assert "\\u202eevil" in done.out and "\u05e9" in done.out, "the rest stays readable"
    assert runs[0].json["answer"] == STEERING


def test_an_export_is_whole_in_a_file_and_harmless_on_a_terminal(romanesco: Commands, tmp_path: Path) -> None:
    with FakeServerProcess(tmp_path, {"default": {"text": STEERING}}) as server:
        assert romanesco("run", "Why?", "--topology", "single", "-m", f"{server.url}#fake", "--id", "r").code == 0
    kept = romanesco("export", "r").out
    assert "\u202eevil" in kept
    terminal = Terminal(romanesco, "export", "r")
    assert terminal.finish() == 0
    assert "\u202e" not in terminal.text and "\u009b" not in terminal.text
    shown = terminal.text.replace("\r", "").splitlines()
    assert [json.loads(line) for line in shown] == [json.loads(line) for line in kept.split("\n") if line]


def test_ctrl_c_on_the_terminal_keeps_what_is_done(romanesco: Commands, slow: FakeServerProcess) -> None:
    words = ("--topology", "members", "-m", f"{slow.url}#fake", "--id", "r")
    terminal = Terminal(romanesco, "run", "Why? [slow]", *words)
    until(lambda: "thinking" in terminal.read(), "the tree")
    os.killpg(terminal.process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
    assert terminal.finish() == 5
    assert "Ctrl-C: stopping" in terminal.text and "(stopped)" in terminal.text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
def test_colours_are_left_out_where_they_are_not_wanted(
    romanesco: Commands, server: FakeServerProcess, env: dict[str, str]
) -> None:
    terminal = Terminal(romanesco, "run", "Why?", "--topology", "single", "-m", f"{server.url}#fake", env=env)
    assert terminal.finish() == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.text)
    if env.get("TERM") == "dumb":
        assert "\x1b" not in terminal.text


def test_without_a_goal_on_a_terminal_an_example_is_given(romanesco: Commands) -> None:
    terminal = Terminal(romanesco, "run")
    assert terminal.finish() == 2
    assert "No goal was given" in terminal.text and "For example" in terminal.text


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from romanesco.interfaces.cli import main

    monkeypatch.setenv("COLUMNS", "80")
    assert main([*filter(None, [command]), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: romanesco")
    if not command:
        assert all(f"\n  {name} " in shown for name in COMMANDS)
        assert "..." not in shown.split("Commands:")[1], "each command's line is whole"


def test_no_words_show_the_help(romanesco: Commands) -> None:
    done = romanesco()
    assert (done.code, done.err) == (0, "")
    assert done.out == romanesco("--help").out
    assert romanesco("--version").out.startswith("romanesco ")


def test_br_140_the_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from romanesco.interfaces.cli import main; main(['--help']); "
        "heavy = {'rich', 'aiohttp', 'numpy', 'pydantic', 'asyncio', 'sqlite3', 'genai_prices', 'jsonschema'}; "
        "sys.exit(str(sorted(heavy & set(sys.modules)) or 0))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert done.stderr.strip() == "0"


def test_the_page_of_exit_statuses_is_true() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (?:`([a-z]+)`)? *\|", page, flags=re.MULTILINE)
    told = {int(code): reason for code, reason in rows}
    expected = {code: reason.value for reason, code in EXIT_CODES.items()}
    assert told == {**expected, VIOLATED: "", BROKEN_PIPE: ""}


def test_the_embedded_model_deliberates(romanesco: Commands) -> None:
    short = [
        ("--param", f"{name}_tokens={cap}") for name, cap in (("proposal", 40), ("critique", 10), ("decision", 100))
    ]
    words = ("--k", "3", "--rounds", "1", "--json", "--id", "r", *(word for pair in short for word in pair))
    ran = romanesco("run", "Name a risk of usage-based prices", *words)
    outcome = ran.json
    # Whether a model of this size keeps to a form is chance. Where it does not, the answer is a part and says so.
    assert outcome["reason"] in ("completed", "budget", "model", "length"), ran.err
    assert ran.code == EXIT_CODES[StopReason(outcome["reason"])]
    assert outcome["status"] == ("completed" if ran.code == 0 else "partial") and outcome["answer"]
    assert outcome["spend"]["calls"] <= sum(line["calls"] for line in outcome["bill"]["lines"])
    assert outcome["spend"]["usd"] == "0"
    proved = romanesco("verify", "r")
    assert proved.code == 0, proved.out
    assert "held" in romanesco("verify", "r", "--certificate", outcome["certificate"]).out
