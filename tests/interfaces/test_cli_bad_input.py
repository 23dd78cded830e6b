"""Bad input: one line that says what, value, limit and what to do; a status of its own; nothing spent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from romanesco.interfaces.cli import main
from romanesco.journal._schema import open_writer
from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands, Done
from tests.support import PATIENCE


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    """The command line in this process: the same code without the start of an interpreter."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ROMANESCO_HOME", str(tmp_path / "home"))
    return Inside(capfd)


class Inside:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str | Path) -> Done:
        code = main(list(map(str, words)))
        out, err = self._capture.readouterr()
        return Done(code, out, err)


def empty_journal(home: Path) -> None:
    home.mkdir()
    open_writer(home / "journal.db", synchronous="NORMAL", patience=PATIENCE).close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", ""), 2, "The goal is empty"),
        (("run", "  \n "), 2, "The goal is empty"),
        (("run", "a\x00b"), 2, "The goal is not text"),
        (("run", "Hi", "--goal-file", "x"), 2, "The goal is given twice"),
        (("run", "--goal-file", "missing.txt"), 2, "The goal can't be read"),
        (("run", "Hi", "--source", "missing.txt"), 2, "The source can't be read"),
        (("run", "Hi", "-m", "nonsense"), 2, "names no provider"),
        (("run", "Hi", "-m", "nobody:model"), 2, "No provider is called 'nobody'"),
        (("run", "Hi", "-m", "openai:gpt-5-mini"), 6, "Set the environment variable OPENAI_API_KEY"),
        (("run", "Hi", "-m", "http://127.0.0.1:1/v1#m"), 6, "Start the server or correct the base URL"),
        (("run", "Hi", "--topology", "nonsense"), 2, "No topology of that name; got nonsense; limit"),
        (("run", "Hi", "--k", "2"), 2, "got 2; limit a whole number from 3 to 5"),
        (("run", "Hi", "--k", "6"), 2, "got 6; limit a whole number from 3 to 5"),
        (("run", "Hi", "--rounds", "0"), 2, "got 0; limit a whole number from 1"),
        (("run", "Hi", "--param", f"k=1{'0' * 400}"), 2, "limit a whole number from 3 to 5"),
        (("run", "Hi", "--param", "quorum=0"), 2, "limit a number above 0, up to 1"),
        (("run", "Hi", "--param", "seed=-1"), 2, "limit a whole number from 0 to 2147483647"),
        (("run", "Hi", "--param", "tau_sat=NaN"), 2, "limit a number from 0 to 10"),
        (("run", "Hi", "--k", "three"), 2, "--k is wrong; got 'three'"),
        (("run", "Hi", "--tokens", "-1"), 2, "--tokens is wrong; got '-1'; limit a whole number, 0 or more"),
        (("run", "Hi", "--usd", "-0.5"), 2, "--usd is wrong; got '-0.5'"),
        (("run", "Hi", "--usd", "NaN"), 2, "--usd is wrong; got 'NaN'"),
        (("run", "Hi", "--minutes", "inf"), 2, "--minutes is wrong; got 'inf'"),
        (("run", "Hi", "--calls", "1e3"), 2, "--calls is wrong; got '1e3'"),
        (("run", "Hi", "--param", "x"), 2, "limit NAME=VALUE"),
        (("run", "Hi", "--param", "colour=red"), 2, "no such parameter; got 'colour'"),
        (("run", "Hi", "--param", "k=3", "--k", "4"), 2, "The parameter k is given twice"),
        (("run", "Hi", "--nonsense"), 2, "No such option: --nonsense"),
        (("nonsense",), 2, "No such command 'nonsense'"),
        (("show",), 2, "Missing argument 'RUN'"),
        (("show", "nonsense"), 2, "No such run; got nonsense"),
        (("show", "last"), 2, "No such run; got last"),
        (("show", "last", "--section", "nonsense"), 2, "limit answer, decision"),
        (("resume", "nonsense"), 2, "No such run"),
        (("stop", "nonsense/child"), 2, "No such run"),
        (("answer", "nonsense", "yes"), 2, "No such run"),
        (("answer", "nonsense", "a", "b", "c"), 2, "Quote it"),
        (("budget", "nonsense"), 2, "No limit is given"),
        (("budget", "nonsense", "--tokens", "x"), 2, "--tokens is wrong; got 'x'"),
        (("replay", "nonsense"), 2, "No such run"),
        (("verify", "nonsense"), 2, "No such run"),
        (("verify", "x", "--certificate", "missing.json"), 2, "The certificate can't be read"),
        (("export", "nonsense"), 2, "No such run"),
        (("runs", "--limit", "-1"), 2, "--limit is wrong; got '-1'; limit a whole number, 0 or more. 0 shows all."),
        (("run", "Hi", "--id", "last"), 2, "A run can't have that id; got 'last'"),
    ],
    ids=lambda value: " ".join(value)[:40].replace("\x00", "0") if isinstance(value, tuple) else "",
)
def test_wrong_words(inside: Inside, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    empty_journal(tmp_path / "home")
    done = inside(*words)
    assert (done.code, done.out) == (code, "")
    assert said in done.error


def test_a_binary_source_is_refused(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(range(256)) * 9)
    assert inside("run", "Hi", "--source", "data.bin").error.startswith("The source is not a text file; got data.bin")
    assert inside("run", "--goal-file", "data.bin").error.startswith("The goal is not UTF-8 text; got data.bin")


def test_a_budget_below_the_cheapest_plan_is_refused(inside: Inside, server: FakeServerProcess) -> None:
    for limit in (("--tokens", "0"), ("--tokens", "100"), ("--calls", "0")):
        done = inside("run", "Hi", "-m", f"{server.url}#fake", *limit)
        assert done.code == 7
        assert "smaller than the cheapest plan's bill" in done.error
    assert not server.ledger.requests


def test_money_cannot_be_limited_where_the_price_is_unknown(inside: Inside, server: FakeServerProcess) -> None:
    done = inside("run", "Hi", "-m", "http://192.0.2.1:9/v1#fake", "--usd", "0.5")
    assert done.code == 2
    assert "price" in done.error and "--tokens" in done.error


def test_zero_minutes_are_no_time(inside: Inside, server: FakeServerProcess) -> None:
    done = inside("run", "Hi", "-m", f"{server.url}#fake", "--minutes", "0", "--id", "r")
    assert done.code == 7
    assert "has no time" in done.error and "--minutes" in done.error
    assert not server.ledger.requests


def test_a_goal_of_a_megabyte_is_refused_with_what_would_fit(inside: Inside, server: FakeServerProcess) -> None:
    Path("goal.txt").write_text("why " * 250_000, encoding="utf-8")
    done = inside("run", "--goal-file", "goal.txt", "-m", f"{server.url}#fake")
    assert done.code == 7
    assert "shorten the goal" in done.error.lower()
    assert not server.ledger.requests


def test_an_id_is_taken_once(inside: Inside, server: FakeServerProcess) -> None:
    words = ("run", "Hi", "--topology", "single", "-m", f"{server.url}#fake", "--id", "taken")
    assert inside(*words).code == 0
    done = inside(*words)
    assert done.code != 0 and "taken" in done.error
    assert len(server.ledger.requests) == 1


def test_an_abbreviation_that_fits_two_runs_names_them(inside: Inside, server: FakeServerProcess) -> None:
    for name in ("twin-a", "twin-b"):
        inside("run", "Hi", "--topology", "single", "-m", f"{server.url}#fake", "--id", name)
    done = inside("show", "twin")
    assert done.code == 2
    assert "2 runs start with twin; limit twin-b, twin-a" in done.error


def test_a_folder_that_cannot_be_written(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("ROMANESCO_HOME", str(tmp_path / "file" / "home"))
    for words in (("runs",), ("run", "Hi", "--topology", "single")):
        done = inside(*words)
        assert done.code == 8
        assert str(tmp_path / "file") in done.error


def test_a_file_that_is_no_journal(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "journal.db").write_bytes(b"this is not a database at all, not even nearly" * 50)
    for words in (("runs",), ("show", "last"), ("verify", "x"), ("run", "Hi", "--topology", "single")):
        done = inside(*words)
        assert done.code == 8
        assert "journal" in done.error


def test_a_wrong_setting_names_its_source(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANESCO_CONCURRENCY", "many")
    done = inside("run", "Hi")
    assert done.code == 2
    assert "concurrency" in done.error and "ROMANESCO_CONCURRENCY" in done.error
    monkeypatch.delenv("ROMANESCO_CONCURRENCY")
    (tmp_path / "romanesco.toml").write_text("colour = 1\n", encoding="utf-8")
    assert "got colour" in inside("runs").error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[limits.friction-engine]\ntokens = "abc"', "limits.friction-engine.tokens is wrong"),
        ('[limits.friction-engine]\nusd = "much"', "limits.friction-engine.usd is wrong"),
        ('[prices]\n"ollama:m" = 3', 'prices."ollama:m" is not a table; got 3; limit input, output'),
    ],
)
def test_a_wrong_table_is_the_users_to_correct(inside: Inside, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "romanesco.toml").write_text(f"{text}\n", encoding="utf-8")
    done = inside("run", "Hi", "--topology", "single", "--model", "ollama:m")
    assert done.code == 2
    assert said in done.error and "fault of Romanesco" not in done.error


def test_without_a_goal_and_with_a_terminal_an_example_is_given(romanesco: Commands) -> None:
    done = romanesco("run", stdin="")
    assert done.code == 2
    assert "The goal is empty" in done.error


def test_debug_shows_the_trace_and_the_line(inside: Inside) -> None:
    for words in (("show", "nonsense", "--debug"), ("--debug", "show", "nonsense")):
        done = inside(*words)
        assert done.code == 2
        assert "Traceback" in done.err
        assert done.err.rstrip().splitlines()[-1].startswith("error: There is no journal")


def test_an_unexpected_fault_is_one_line(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr("romanesco._config.load_config", broken)
    done = inside("config")
    assert done.code == 1
    assert done.error.startswith("unexpected ZeroDivisionError: by nothing.") and "--debug" in done.error


@pytest.mark.parametrize("place", ["_options.read_goal", "_drive.plan_goal"])
def test_ctrl_c_before_the_run_has_started(inside: Inside, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"romanesco.interfaces.cli.{place}", pressed)
    done = inside("plan", "Hi")
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err


def test_caps_that_fill_the_window_are_named_and_not_the_goal(inside: Inside, server: FakeServerProcess) -> None:
    done = inside("plan", "hi", "--param", "proposal_tokens=100000", "-m", f"{server.url}#fake")
    assert done.code == 7
    assert "lower proposal_tokens" in done.error
    assert "shorten the goal" not in done.error.lower()


def test_the_models_folder_must_be_there(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANESCO_MODELS", str(tmp_path / "nope"))
    done = inside("run", "Hi", "--topology", "single")
    assert done.code == 2
    assert done.error.startswith(f"ROMANESCO_MODELS names no folder; got {tmp_path / 'nope'}")


@pytest.mark.parametrize(
    "words", [("show", "last"), ("replay", "last"), ("verify", "x"), ("export", "x"), ("stop", "x")], ids=" ".join
)
def test_what_only_looks_makes_no_journal(inside: Inside, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = inside(*words)
    assert done.code == 2
    assert done.error.startswith(f"There is no journal; got {tmp_path / 'home' / 'journal.db'}")
    assert not (tmp_path / "home").exists()


def test_the_list_of_runs_says_that_there_is_no_journal(inside: Inside, tmp_path: Path) -> None:
    done = inside("runs")
    assert (done.code, done.out) == (0, "")
    assert f"There is no journal at {tmp_path / 'home' / 'journal.db'}." in done.err
    assert inside("runs", "--json").json == []
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("debug", [False, True])
def test_a_topologys_fault_is_traced_only_on_demand(debug: bool, romanesco: Commands) -> None:
    done = romanesco("run", "hi", "--topology", "failing", *(["--debug"] if debug else []))
    assert done.code == 1 and "ZeroDivisionError" in done.out
    assert ("Traceback" in done.err) is debug
