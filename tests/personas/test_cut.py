"""Where texts are cut."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.personas._cut import cut


def pieces(text: str, size: int) -> list[str]:
    """The text cut into excerpts of at most ``size``."""
    result = []
    place = 0
    while place < len(text):
        end = cut(text, place, size, size)
        result.append(text[place:end])
        place = end
    return result


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One two. Three four.\nFive six.\n\nSeven eight nine.", "One two. Three four.\nFive six.\n\n"),
        ("One two. Three four.\nFive six seven eight nine ten.", "One two. Three four.\n"),
        ("One two. Three four! Five six seven eight nine ten.", "One two. Three four! "),
        ('He said: "Surely no." She said yes and went on.', 'He said: "Surely no." '),
        ("one two three four five six seven eight nine ten", "one two three four five six seven "),
        (
            "第一句话说完了。第二句话也说完了。第三句话还在继续说下去说下去说下去说下去说下去。",
            "第一句话说完了。第二句话也说完了。",
        ),
    ],
)
def test_the_best_grade_of_boundary_is_taken(text: str, first: str) -> None:
    assert text[: cut(text, 0, 34 if text.isascii() else 20, 34)] == first


def test_the_indentation_of_the_next_paragraph_stays_with_it() -> None:
    assert pieces("def f():\n    one\n\n\n    two = three(four)\n", 24)[0] == "def f():\n    one\n\n\n"


def test_a_text_that_fits_is_not_cut() -> None:
    assert cut("One. Two.", 0, 9, 9) == 9
    assert cut("One. Two.", 5, 4, 100) == 9


def test_a_short_rest_is_taken_along_where_the_limit_allows() -> None:
    assert cut("One two three. Four.", 0, 15, 30) == 20
    assert cut("One two three. Four.", 0, 15, 15) == 15


def test_the_boundary_nearest_to_the_aim_is_taken() -> None:
    text = "aaaa. bbbb. cccc. dddd. eeee. ffff. gggg. hhhh. "
    assert cut(text, 0, 20, 30) == 18
    assert cut(text, 0, 22, 33) == 24


def test_a_long_word_is_cut_only_if_there_is_nothing_else() -> None:
    assert pieces("ab " + "x" * 20, 10) == ["ab ", "x" * 10, "x" * 10]


def test_white_space_alone_is_no_excerpt() -> None:
    assert pieces("   " + "x" * 12, 10) == ["   " + "x" * 7, "x" * 5]


def test_br_106_minified_json_is_cut_between_its_elements() -> None:
    text = json.dumps({f"key{i}": ["α" * 3, i, "é"] for i in range(30)}, separators=(",", ":"), ensure_ascii=False)
    assert " " not in text
    parts = pieces(text, 50)
    assert "".join(parts) == text
    assert {part[-1] for part in parts} <= set(",]}")
    assert max(len(part) for part in parts) <= 50


def test_br_106_a_character_is_never_parted_from_its_marks() -> None:
    text = "e\u0301" * 20  # e with acute accent as two code points
    assert all(not unicodedata.combining(part[0]) for part in pieces(text, 5))
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 4
    assert all(part[0] == "\U0001f469" and part[-1] == "\U0001f467" for part in pieces(family, 7))
    thumbs = "\U0001f44d\U0001f3fd" * 5
    assert all(part[0] == "\U0001f44d" for part in pieces(thumbs, 3))
    assert pieces("abcdefghi\r\nj", 10) == ["abcdefghi", "\r\nj"]


def test_a_character_with_more_marks_than_fit_is_cut_all_the_same() -> None:
    text = "e" + "\u0301" * 30
    assert "".join(pieces(text, 10)) == text


@given(
    st.text(alphabet=st.sampled_from("ab .!?\n\r\t,}\u3002\u0301\u200d\U0001f3fdé漢"), min_size=1),
    st.data(),
)
@settings(deadline=None)
def test_an_excerpt_is_never_empty_nor_longer_than_allowed(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    aim, limit = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    end = cut(text, start, aim, limit)
    assert start < end <= min(len(text), start + limit, start + aim + aim // 2)
    text[start:end].encode("utf-8")
