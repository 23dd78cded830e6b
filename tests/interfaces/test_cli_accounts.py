"""``accounts``: what a project and a day have used, hold and have left."""

from __future__ import annotations

import re
from typing import Any

from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands, finish, until

LIMITS = '[project]\nname = "web"\ncalls = 100\ntokens = 50000\n[day]\nusd = 2.5\n'
SINGLE = ("--topology", "single", "--param", "answer_tokens=50")


def configure(romanesco: Commands, text: str) -> None:
    (romanesco.folder / "romanesco.toml").write_text(text, encoding="utf-8")


def rows(romanesco: Commands, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The accounts, by name without what follows the colon, and by dimension."""
    found = romanesco("accounts", *words, "--json").json["accounts"]
    for row in found:
        if row["limit"] is not None:
            assert float(row["left"]) == float(row["limit"]) - float(row["used"]) - float(row["held"]), row
    return {(row["account"].partition(":")[0], row["dimension"]): row for row in found}


def test_it_tells_what_is_used_held_and_left(romanesco: Commands, slow: FakeServerProcess) -> None:
    configure(romanesco, LIMITS)
    before = rows(romanesco)  # there is no journal yet
    assert before["project", "calls"] == {
        "account": "project:web", "dimension": "calls", "used": 0, "held": 0, "limit": 100, "left": 100,
    }  # fmt: skip
    words = (*SINGLE, "-m", f"{slow.url}#fake")
    done = romanesco("run", "Why?", *words, "--id", "done", "--json").json
    spent = {"calls": done["spend"]["calls"], "tokens": done["spend"]["tokens_in"] + done["spend"]["tokens_out"]}
    after = rows(romanesco)
    for name, number in spent.items():
        assert (after["project", name]["used"], after["project", name]["held"]) == (number, 0)
    # What else stands there of a day is left alone here: the day may change while this goes on.
    assert re.fullmatch(r"day:\d{4}-\d\d-\d\d", after["day", "usd"]["account"])
    assert (after["day", "usd"]["limit"], after["day", "usd"]["left"]) == ("2.5", "2.5")

    process = romanesco.start("run", "Think [slow]", *words, "--id", "slow")
    until(lambda: len(slow.ledger.requests) == 2, "its request")
    shown = romanesco("show", "slow", "--json").json
    bill = sum(line["calls"] for line in shown["plan"]["bill"]["lines"])
    going = rows(romanesco)["project", "calls"]
    assert bill > 1, "or nothing is left to hold"
    assert (going["used"], going["held"]) == (spent["calls"] + 1, bill - 1)  # the one that is out is used
    assert {"account": "project:web", "run": "slow", "alive": True} in romanesco("accounts", "--json").json["holders"]
    process.kill()
    finish(process)
    table = romanesco("accounts").out
    assert rows(romanesco)["project", "calls"] == going, "it holds what it held"
    assert "romanesco stop slow --abandon" in table
    (line,) = [line for line in table.splitlines() if line.startswith("project:web") and " calls " in line]
    assert line.split()[1:] == ["calls", str(going["used"]), str(going["held"]), "100", str(going["left"])]
    assert romanesco("stop", "slow", "--abandon").code == 0
    freed = rows(romanesco)["project", "calls"]
    assert (freed["used"], freed["held"]) == (spent["calls"] + 1, 0)
    assert romanesco("accounts", "--json").json["holders"] == []


def test_another_project_has_its_own_account(romanesco: Commands, server: FakeServerProcess) -> None:
    configure(romanesco, LIMITS)
    assert romanesco("run", "Why?", *SINGLE, "-m", f"{server.url}#fake", "--project", "other").code == 0
    assert rows(romanesco)["project", "calls"]["used"] == 0
    other = rows(romanesco, "--project", "other")["project", "calls"]
    assert (other["account"], other["used"], other["left"]) == ("project:other", 1, 99)


def test_without_shared_accounts_it_says_how_to_have_one(romanesco: Commands) -> None:
    said = romanesco("accounts")
    assert said.code == 0 and said.out == ""
    assert said.err == "Runs share no account. Set project.name, project.tokens, day.usd, ...: romanesco config\n"
    assert romanesco("accounts", "--json").json == {"accounts": [], "holders": []}
    assert romanesco("accounts", "--project", "web").err.startswith("Nothing is limited or used: project:web.")
