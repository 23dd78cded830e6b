"""The commands from end to end, in processes of their own, against the fake server."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
from pathlib import Path

import pytest

from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands
from tests.support import PATIENCE

GOAL = "Should we 改用 按量计费? قرار 🌱 שלום"
SMALL = ("--k", "3", "--rounds", "1")


def test_a_run_from_plan_to_export(romanesco: Commands, server: FakeServerProcess) -> None:
    model = f"{server.url}#fake"
    planned = romanesco("plan", GOAL, "--model", model, *SMALL, "--json")
    assert planned.code == 0, planned.err
    bill = planned.json["bill"]["total"]
    assert not server.ledger.requests

    ran = romanesco("run", GOAL, "--model", model, *SMALL, "--json", "--id", "first")
    assert ran.code == 0, ran.err
    outcome = ran.json
    assert outcome["status"] == "completed" and outcome["answer"]
    assert "total" in ran.err.split("run first starts")[0], "the bill is printed before the run starts"
    assert "\x1b" not in ran.err
    ledger = server.ledger
    assert outcome["spend"]["calls"] == len(ledger.requests) <= bill["calls"]
    assert outcome["spend"]["tokens_in"] + outcome["spend"]["tokens_out"] <= bill["tokens"]

    listed = romanesco("runs", "--json").json
    assert [(one["run"], one["status"], one["goal"]) for one in listed] == [("first", "completed", GOAL)]

    shown = romanesco("show", "fir", "--json").json
    assert shown["outcome"]["answer"] == outcome["answer"]
    assert sum(line["calls"] for line in shown["lines"]) == len(ledger.requests)
    assert len(shown["outcome"]["deliberation"]["critiques"]) == 18

    seen = romanesco("show", "last")
    for part in ("answer", "decision", "proposals", "critiques", "ledger", "diversity", "costs", "about"):
        assert f"\n{part}\n" in seen.out, part
    apart = romanesco("show", "last", "--section", "diversity").out.splitlines()
    declared, observed = shown["plan"]["params"]["distance"], outcome["deliberation"]["diversity"]
    assert apart[0] == f"declared distance {declared:.2f} between the nearest two, the least that is wanted is 0.4"
    assert len(observed) == outcome["deliberation"]["rounds"]
    for line, point in zip(apart[1:], observed, strict=False):
        assert f"observed distance {point['distance']:.2f}" in line
    assert outcome["answer"].split()[0] in romanesco("show", "last", "--section", "answer").out

    again = romanesco("replay", "first", "--json")
    assert (again.code, again.json["same"]) == (0, True)
    assert len(server.ledger.requests) == len(ledger.requests)

    done = romanesco("resume", "first", "--quiet")
    assert (done.code, done.out.strip()) == (0, outcome["answer"].strip())
    assert len(server.ledger.requests) == len(ledger.requests)

    proved = romanesco("verify", "first", "--certificate", outcome["certificate"], "--json")
    assert proved.code == 0 and proved.json["ok"]
    assert proved.json["head"] == outcome["head"]
    assert "All properties hold." in romanesco("verify", "first").out

    exported = romanesco("export", "first")
    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert lines[0]["format"] == "romanesco.journal"
    assert (lines[-1]["kind"], lines[-1]["hash"]) == ("run.ended", outcome["head"])
    file = romanesco.folder / "out.jsonl"
    assert romanesco("export", "first", "--output", file).code == 0
    assert file.read_text(encoding="utf-8") == exported.out


def test_a_changed_journal_is_a_violation(romanesco: Commands, server: FakeServerProcess) -> None:
    assert romanesco("run", "Hello", "--topology", "single", "-m", f"{server.url}#fake", "--id", "x").code == 0
    with sqlite3.connect(romanesco.home / "journal.db") as file:
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
            file.execute(f"DROP TRIGGER {name}")
        file.execute("UPDATE events SET body = replace(body, 'Hello', 'Hallo') WHERE seq = 1")
    file.close()
    found = romanesco("verify", "x")
    assert found.code == 10
    assert "violated" in found.out and "VIOLATED" in found.out
    assert romanesco("verify", "x", "--json").json["ok"] is False
    assert romanesco("runs", "--json").code == 0


def test_the_goal_from_stdin_from_a_file_and_sources(romanesco: Commands, server: FakeServerProcess) -> None:
    common = ("--topology", "single", "--model", f"{server.url}#fake", "--quiet")
    assert romanesco("run", "-", *common, stdin="goal by pipe").code == 0
    assert romanesco("run", *common, stdin="goal by pipe too").code == 0
    goal, source = romanesco.folder / "goal.txt", romanesco.folder / "notes.md"
    goal.write_text("goal by file", encoding="utf-8")
    source.write_text("The canary sings.", encoding="utf-8")
    assert romanesco("run", "--goal-file", goal, "--source", source, *common).code == 0
    prompts = [entry.prompt for entry in server.ledger.requests]
    assert ["goal by pipe" in prompts[0], "goal by pipe too" in prompts[1], "goal by file" in prompts[2]] == [True] * 3
    assert "The canary sings." in prompts[2]


def test_models_by_role_and_parameters_reach_the_plan(romanesco: Commands, server: FakeServerProcess) -> None:
    models = ("-m", f"{server.url}#fake", "-m", f"decision-maker={server.url}#judge")
    planned = romanesco("plan", "Hello", *models, *SMALL, "--param", "temperature=0.3", "--json").json
    assert planned["models"] == {"default": f"{server.url}#fake", "decision-maker": f"{server.url}#judge"}
    assert (planned["params"]["temperature"], planned["params"]["k"], planned["params"]["rounds"]) == (0.3, 3, 1)


def test_events_are_json_lines_and_the_outcome_is_last(romanesco: Commands, server: FakeServerProcess) -> None:
    ran = romanesco("run", GOAL, "--topology", "members", "-m", f"{server.url}#fake", "--events")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert lines[-1]["kind"] == "outcome" and lines[-1]["data"]["status"] == "completed"
    assert [line["kind"] for line in lines].count("call.finished") == 8
    assert "token" not in {line["kind"] for line in lines}


def test_br_032_a_cap_is_hard_and_the_exit_status_says_so(romanesco: Commands, server: FakeServerProcess) -> None:
    ran = romanesco("run", "Hi", "--topology", "members", "--calls", "5", "-m", f"{server.url}#fake", "--id", "cap")
    assert ran.code == 3
    assert len(server.ledger.requests) <= 5
    assert ran.out.startswith("PARTIAL (budget): ")
    assert "romanesco resume cap --calls N" in ran.out
    more = romanesco("resume", "cap", "--calls", "20", "--json")
    assert (more.code, more.json["status"]) == (0, "completed")
    assert len(server.ledger.requests) == 8


def test_quiet_prints_the_answer_alone_but_labels_what_is_cut(romanesco: Commands, server: FakeServerProcess) -> None:
    whole = romanesco("run", "Hi", "--topology", "single", "-m", f"{server.url}#fake", "--quiet")
    assert (whole.code, whole.err) == (0, "")
    assert len(whole.out.splitlines()) == 1
    cut = romanesco("run", "Hi", "--topology", "members", "--calls", "5", "-m", f"{server.url}#fake", "--quiet")
    assert cut.code == 3
    assert cut.err.startswith("PARTIAL (budget): ")
    assert len(cut.out.splitlines()) == 8


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_br_139_any_encoding_carries_any_goal(romanesco: Commands, server: FakeServerProcess, encoding: str) -> None:
    env = {"PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    common = ("-m", f"{server.url}#fake", "--id", "r")
    ran = romanesco("run", "-", *common, "--topology", "members", "--param", "members=2", stdin=GOAL, env=env)
    assert ran.code == 0, ran.err
    assert romanesco("show", "r", env=env).code == 0
    assert romanesco("show", "r", "--json", env=env).json["goal"] == GOAL
    assert romanesco("runs", env=env).code == 0


def test_a_broken_pipe_ends_quietly(romanesco: Commands, server: FakeServerProcess) -> None:
    assert romanesco("run", "Hi", "-m", f"{server.url}#fake", *SMALL, "--quiet", "--id", "r").code == 0
    for command in (("show", "r"), ("export", "r"), ("config",)):
        line = shlex.join(romanesco.line(*command)) + " | (exec <&-; sleep 1)"
        done = subprocess.run(
            ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"],
            env=romanesco.env,
            cwd=romanesco.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.stderr == ""
        assert done.stdout.strip() in ("141", "0")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_from_the_start_changes_nothing(
    romanesco: Commands, server: FakeServerProcess, closed: str
) -> None:
    line = shlex.join(romanesco.line("run", "Hi", "-m", f"{server.url}#fake", "--topology", "single", "--id", "r"))
    done = subprocess.run(
        ["bash", "-c", f"{line} {closed}"],
        env=romanesco.env,
        cwd=romanesco.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert ("romanesco show r" in done.stdout) == (">&-" not in closed.split())
    assert romanesco("verify", "r").code == 0


def test_a_progress_pipe_that_breaks_does_not_end_the_run(romanesco: Commands, server: FakeServerProcess) -> None:
    line = shlex.join(romanesco.line("run", "Hi", "-m", f"{server.url}#fake", *SMALL, "--id", "r"))
    subprocess.run(
        ["bash", "-c", f"{line} 2>&1 >answer.txt | head -1"],
        env=romanesco.env,
        cwd=romanesco.folder,
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert romanesco("show", "r", "--json").json["status"] == "completed"
    assert "romanesco show r" in (romanesco.folder / "answer.txt").read_text(encoding="utf-8")


def test_br_125_a_key_is_in_no_output(romanesco: Commands, server: FakeServerProcess, tmp_path: Path) -> None:
    canary = "sk-canary-7f3a9b21"
    settings = f'[models.mine]\nbase_url = "{server.url}"\nmodel = "fake"\nkey_env = "MY_KEY"\n'
    (romanesco.folder / "romanesco.toml").write_text(settings, encoding="utf-8")
    env = {"MY_KEY": canary, "OPENAI_API_KEY": canary}
    written = []
    for command in (
        ("run", "Hi", "--topology", "single", "-m", "custom:mine", "--events", "--id", "r"),
        ("run", "Hi", "--topology", "single", "-m", "custom:mine", "--debug", "--id", "r"),
        ("show", "r", "--json"),
        ("export", "r"),
        ("config", "--json"),
        ("models", "--no-probe", "--json"),
    ):
        done = romanesco(*command, env=env)
        written += [done.out, done.err]
    assert server.ledger.requests
    assert all(written[index] for index in (0, 4, 6, 8, 10))
    assert canary not in "".join(written)
    for file in romanesco.home.rglob("*"):
        assert not file.is_file() or canary.encode() not in file.read_bytes(), file


def test_a_key_in_the_file_is_refused_and_not_shown(romanesco: Commands) -> None:
    settings = '[models.mine]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\napi_key = "sk-canary"\n'
    (romanesco.folder / "romanesco.toml").write_text(settings, encoding="utf-8")
    done = romanesco("config")
    assert done.code == 2
    assert "api_key" in done.error and "sk-canary" not in done.err + done.out


def test_config_says_what_is_in_force_and_from_where(romanesco: Commands) -> None:
    file = romanesco.folder / "romanesco.toml"
    file.write_text('topology = "single"\n[budget]\ntokens = 500\n[roles]\njudge = "a:b"\n', encoding="utf-8")
    found = romanesco("config", "--json", env={"ROMANESCO_BUDGET_CALLS": "7"}).json
    settings = {name: (one["value"], one["source"]) for name, one in found["settings"].items()}
    assert settings["topology"] == ("single", str(file))
    assert settings["budget.tokens"] == (500, str(file))
    assert settings["budget.calls"] == (7, "environment: ROMANESCO_BUDGET_CALLS")
    assert settings["concurrency"] == (8, "default")
    assert found["tables"] == {"roles": {"judge": "a:b"}}
    shown = romanesco("config")
    assert "budget.tokens" in shown.out and "judge = a:b" in shown.out


def test_models_are_probed_and_say_what_to_set(romanesco: Commands, server: FakeServerProcess) -> None:
    settings = f'model = "custom:mine"\n[models.mine]\nbase_url = "{server.url}"\nmodel = "fake"\n'
    (romanesco.folder / "romanesco.toml").write_text(settings, encoding="utf-8")
    env = {"ROMANESCO_MODELS": str(romanesco.folder)}
    found = {one["provider"]: one for one in romanesco("models", "--json", env=env).json}
    mine = found["custom:mine"]
    assert mine["answers"] is True and mine["in_use"] == ["custom:mine"] and mine["models"] == ["fake"]
    assert mine["probes"][0]["text"] == "ok"
    assert (found["openai"]["ready"], found["openai"]["advice"]) == (False, "set OPENAI_API_KEY")
    assert len(server.ledger.requests) <= 4
    shown = romanesco("models", "--no-probe", env=env)
    assert "set OPENAI_API_KEY" in shown.out and "custom:mine" in shown.out


def test_what_a_project_has_left_shrinks_the_plan_or_refuses_it_before_its_bill(
    romanesco: Commands, server: FakeServerProcess
) -> None:
    file = romanesco.folder / "romanesco.toml"
    model = ("-m", f"{server.url}#fake")
    file.write_text('[project]\nname = "p2"\ncalls = 40\n', encoding="utf-8")
    planned = romanesco("plan", "x", *model, "--json")
    assert planned.code == 0 and planned.json["bill"]["total"]["calls"] <= 40
    assert "the account project:p2 has 40 calls left" in " ".join(planned.json["reasons"])
    file.write_text('[project]\nname = "p2"\ncalls = 2\n', encoding="utf-8")
    for command in ("plan", "run"):
        refused = romanesco(command, "x", *model)
        assert refused.code == 7 and "at most" not in refused.out
        assert "the account project:p2 has left is smaller" in refused.error and "got 2 calls" in refused.error
    assert romanesco("runs", "--json").json == []
