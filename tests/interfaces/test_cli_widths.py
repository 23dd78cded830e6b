"""Every command on screens of several widths: nothing is cut without a mark, and what is to be copied is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from romanesco.testing import FakeServerProcess
from tests.interfaces.commands import Commands
from tests.interfaces.terminal import Terminal

GOAL = "Should we move our billing from seats to usage-based prices before the end of the year, and for whom first?"
CAPPED = "261201-120000-abcdef"
WIDTHS = (60, 80, 100, 140)
SCREENS = (
    ("runs",),
    ("runs", "--interrupted"),
    ("show", CAPPED),
    ("show", CAPPED, "--section", "answer"),
    ("show", "wide"),
    ("verify", CAPPED),
    ("config",),
    ("models", "--no-probe"),
    ("--help",),
    ("run", "--help"),
)
PLAIN = ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "TERM": "dumb"})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A journal with a run that was capped and one with a goal of wide characters."""
    folder: Path = tmp_path_factory.mktemp("widths")
    commands = Commands(folder)
    rounds = ("--k", "4", "--rounds", "6", "--param", "tau_sat=0", "--param", "eps=0", "--calls", "16")
    with FakeServerProcess(folder) as server:
        model = ("-m", f"{server.url}#fake")
        assert commands("run", GOAL, *rounds, *model, "--id", CAPPED).code == 3
        assert commands("run", "我们应该改用按量计费吗" * 12, "--topology", "single", *model, "--id", "wide").code == 0
    return commands


def too_wide(lines: list[str], columns: int) -> list[str]:
    """Lines that are wider than the screen, but for words that are to be copied in one piece."""
    return [
        line
        for line in lines
        if cell_len(line) > columns and not re.fullmatch(r"(\S+ +| {2})?(romanesco [!-~ ]+|[!-~]{40,})", line)
    ]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_every_screen_fits(filled: Commands, words: tuple[str, ...], columns: int) -> None:
    terminal = Terminal(filled, *words, columns=columns)
    assert terminal.finish() == 0
    assert too_wide(terminal.lines, columns) == []
    assert "\u2026" not in terminal.text, "a cut is marked with three points, which every encoding has"


@pytest.mark.parametrize("env", PLAIN, ids=lambda env: " ".join(env))
@pytest.mark.parametrize("columns", [60, 140])
def test_without_colours_the_screen_is_the_same(filled: Commands, columns: int, env: dict[str, str]) -> None:
    for words in (("runs",), ("show", CAPPED), ("config",)):
        coloured, plain = (Terminal(filled, *words, columns=columns, env=one) for one in ({}, env))
        assert (coloured.finish(), plain.finish()) == (0, 0)
        assert plain.lines == coloured.lines
        assert "\x1b[3" not in plain.text
        assert "TERM" not in env or "\x1b" not in plain.text


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_list_keeps_ids_and_statuses_and_says_what_it_leaves_out(filled: Commands, columns: int) -> None:
    terminal = Terminal(filled, "runs", columns=columns)
    assert terminal.finish() == 0
    lines = terminal.lines
    (row,) = [line for line in lines if line.startswith(f"{CAPPED} ")]
    assert "partial (budget)" in row and row.rstrip().endswith("...")
    told = next((line for line in lines if line.startswith("Left out, ")), "")
    after = " ".join(lines[lines.index(told) :]) if told else ""
    for name in ("topology", "calls", "tokens", "usd"):
        assert (name in lines[0].split()) != (name in after), "a column is shown, or said to be left out"
    assert bool(told) == (columns < 100)


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_costs_keep_the_names_of_their_lines(filled: Commands, columns: int) -> None:
    terminal = Terminal(filled, "show", CAPPED, "--section", "costs", columns=columns)
    assert terminal.finish() == 0
    for name in ("proposal", "critique", "decision", "wrap-up", "repair", "retry", "total"):
        assert any(re.match(rf"{name}( |$)", line) for line in terminal.lines), name
    joined = " ".join(" ".join(terminal.lines).split())
    assert re.search(r"16 of 16 calls \(limit; bill \d+\)", joined)


@pytest.mark.parametrize("columns", WIDTHS)
def test_settings_are_told_by_their_whole_names(filled: Commands, columns: int) -> None:
    terminal = Terminal(filled, "config", columns=columns)
    assert terminal.finish() == 0
    words = " ".join(terminal.lines).split()
    assert "deadlines.between_tokens" in words and str(filled.home) in words


@pytest.mark.parametrize("columns", WIDTHS)
def test_commands_and_hashes_can_be_copied(filled: Commands, columns: int) -> None:
    head = filled("show", CAPPED, "--json").json["head"]
    terminal = Terminal(filled, "show", CAPPED, columns=columns)
    assert terminal.finish() == 0
    assert any(line.endswith(head) for line in terminal.lines)
    assert any(line.endswith(f"romanesco resume {CAPPED} --calls N") for line in terminal.lines)


def test_what_is_piped_is_not_wrapped(filled: Commands) -> None:
    shown = filled("show", CAPPED).out
    assert f"\ngoal   {GOAL}\n" in shown
    listed = filled("runs").out.splitlines()
    assert listed[0].split() == ["run", "status", "topology", "calls", "tokens", "usd", "goal"]
    (row,) = [line for line in listed if line.startswith(CAPPED)]
    assert row.rstrip().endswith("...") and " 16 " in row and "$0" in row
    assert max(map(cell_len, listed)) <= 120


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}], ids=["live", "dumb"])
def test_a_run_fits_the_screen_while_it_goes_on(
    romanesco: Commands, server: FakeServerProcess, columns: int, env: dict[str, str]
) -> None:
    words = ("--k", "3", "--rounds", "1", "--tokens", "900000", "-m", f"{server.url}#fake", "--id", "r")
    terminal = Terminal(romanesco, "run", GOAL, *words, env=env, columns=columns)
    assert terminal.finish() == 0
    assert too_wide(terminal.lines, columns) == []
    assert "romanesco show r" in terminal.text
