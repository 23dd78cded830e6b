"""Foreign text and numbers on the screen."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.interfaces.cli._text import clean, count, money, one_line, safe_json, seconds


@given(st.text())
def test_no_foreign_text_can_steer_a_terminal(text: str) -> None:
    shown = clean(text)
    assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    shown.encode("utf-8")


def test_an_escape_sequence_loses_its_escape() -> None:
    assert clean("before\x1b[2Jafter\r\nnext\rline") == "before\ufffd[2Jafter\nnext\nline"


def test_br_139_right_to_left_text_stays_and_overrides_go() -> None:
    assert clean("שלום \u202eabc\u202c 你好 🌱") == "שלום abc 你好 🌱"


def test_marks_of_direction_go_too() -> None:
    assert clean("a\u061cb\u200ec\u200fd") == "abcd"


STEERING = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\u061c\u200e\u200f"}
STEERING |= {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


@given(st.text(st.one_of(st.characters(), st.sampled_from(sorted(STEERING)))))
def test_json_is_escaped_where_it_could_steer_a_terminal_and_stays_the_same_value(text: str) -> None:
    written = safe_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert not STEERING & set(written)
    assert len(written) == len(json.dumps([text], ensure_ascii=False)) + 5 * len([
        c for c in text if c in STEERING and c >= "\x7f"
    ]), "what can't steer a terminal is written as it is"


@given(st.text(), st.integers(4, 50))
def test_one_line_is_one_line_and_not_longer(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "price unknown"),
        (Decimal(0), "$0"),
        (Decimal("0.5"), "$0.5000"),
        (Decimal("0.00000321"), "$0.0000032"),
        (Decimal("1234.5"), "$1,234.50"),
        (Decimal("-0.25"), "-$0.2500"),
    ],
)
def test_money_is_never_rounded_to_zero_and_unknown_is_not_zero(usd: Decimal | None, shown: str) -> None:
    assert money(usd) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 s"), (0.0123, "12 ms"), (2.44, "2.4 s"), (41.9, "41 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_time_is_told_in_its_own_unit(value: float, shown: str) -> None:
    assert seconds(value) == shown


def test_counts_have_their_plural() -> None:
    assert (count(1, "call"), count(1200, "call"), count(0, "property", "properties")) == (
        "1 call",
        "1,200 calls",
        "0 properties",
    )
