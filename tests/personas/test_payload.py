"""Different payloads for the members: what they get, how it reads, and that the numbers are true."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco._codec import from_json, to_json
from romanesco.errors import InputError
from romanesco.personas import Clip, Excerpt, Payloads, render_payload, split
from romanesco.task import Source

FOUR = ["challenger", "finance", "operations", "speculator"]


def sentences(first: int, count: int) -> str:
    return " ".join(f"Sentence {i:02} says one thing." for i in range(first, first + count))


def paragraphs(count: int) -> str:
    return "\n\n".join(f"Paragraph {i}. {sentences(10 * i, 5)}" for i in range(count))


def texts(payloads: Payloads) -> dict[str, str]:
    return {member: render_payload(excerpts) for member, excerpts in payloads.by_member.items()}


def test_a_source_for_each_member_is_dealt_whole() -> None:
    sources = [
        Source(f"{name}.md", f"About {name}. {sentences(1, size)}")
        for name, size in (("market", 3), ("rivals", 9), ("churn", 5), ("failures", 7))
    ]
    payloads = split(sources, FOUR, budget_chars=600)
    assert texts(payloads) == {
        member: f"Source: {source.name}\n{source.text}" for member, source in zip(FOUR, sources, strict=True)
    }
    assert payloads.coverage == payloads.text_coverage == 1.0
    assert payloads.overlap == 0.0
    assert payloads.clipped == ()


def test_more_sources_than_members_stay_whole_and_go_where_most_room_is() -> None:
    sources = [Source("long", "x" * 200), *(Source(f"s{i}", "y" * 50) for i in range(5))]
    payloads = split(sources, ["a", "b", "c"], budget_chars=400)
    assert {m: [e.source for e in found] for m, found in payloads.by_member.items()} == {
        "a": ["long"],
        "b": ["s0", "s2", "s4"],
        "c": ["s1", "s3"],
    }
    assert payloads.text_coverage == 1.0


def test_one_source_is_split_at_paragraphs_and_each_later_part_comes_with_the_head() -> None:
    payloads = split([Source("report.md", paragraphs(4))], FOUR, budget_chars=700)
    body = [f"Paragraph {i}. {sentences(10 * i, 5)}" for i in range(4)]
    head = "Paragraph 0. Sentence 00 says one thing. Sentence 01 says one thing."
    assert texts(payloads) == {
        "challenger": f"Source: report.md\n{body[0]}\n[... 460 characters left out]",
        "finance": (
            f"Source: report.md\n{head}\n[... 85 characters left out]\n{body[1]}\n[... 306 characters left out]"
        ),
        "operations": (
            f"Source: report.md\n{head}\n[... 239 characters left out]\n{body[2]}\n[... 152 characters left out]"
        ),
        "speculator": f"Source: report.md\n{head}\n[... 393 characters left out]\n{body[3]}",
    }
    assert payloads.coverage == payloads.text_coverage == 1.0
    assert payloads.overlap == pytest.approx(len(head + " ") / len(paragraphs(4)))


def test_members_read_different_parts_of_one_source() -> None:
    found = texts(split([Source("report.md", paragraphs(12))], FOUR, budget_chars=700))
    for one, other in combinations(found.values(), 2):
        assert one != other


def test_heads_are_dropped_if_they_alone_keep_the_text_from_fitting() -> None:
    text = sentences(1, 40)
    tight = split([Source("a", text)], FOUR, budget_chars=370)
    assert tight.text_coverage == 1.0
    assert tight.overlap == 0.0
    assert tight.clipped == ()
    assert split([Source("a", text)], FOUR, budget_chars=500).overlap != 0.0


def test_what_reaches_nobody_is_said_by_source() -> None:
    payloads = split([Source("short", "Two words."), Source("long", sentences(1, 99))], FOUR, budget_chars=300)
    total = len(sentences(1, 99))
    assert [clip.source for clip in payloads.clipped] == ["long"]
    reached = {
        place
        for found in payloads.by_member.values()
        for excerpt in found
        if excerpt.source == "long"
        for place in range(excerpt.start, excerpt.end)
    }
    assert payloads.clipped == (Clip("long", total - len(reached), total),)
    assert payloads.coverage == 1.0


def test_a_long_source_does_not_crowd_out_the_others() -> None:
    sources = [Source(f"s{i}", sentences(1, 99)) for i in range(10)]
    payloads = split(sources, ["a", "b", "c"], budget_chars=1000)
    assert payloads.coverage == 1.0
    assert {e.source for found in payloads.by_member.values() for e in found if e.start == 0} == {
        f"s{i}" for i in range(10)
    }
    assert len(payloads.clipped) == 10


def test_no_source_gets_mere_scraps_because_it_comes_last() -> None:
    sources = [Source(f"s{i}", sentences(1, 34)) for i in range(4)]
    payloads = split(sources, ["a", "b", "c"], budget_chars=1100)
    reached = {clip.source: clip.total - clip.left_out for clip in payloads.clipped}
    assert payloads.coverage == 1.0
    assert min(reached.values()) >= 3 * 1100 / 4 / 2


def test_too_many_sources_for_the_room_lower_the_coverage() -> None:
    payloads = split([Source(f"s{i}", sentences(1, 9)) for i in range(30)], ["a", "b", "c"], budget_chars=400)
    assert payloads.coverage is not None
    assert 0 < payloads.coverage < 1
    unreached = [clip for clip in payloads.clipped if clip.left_out == clip.total]
    assert len(unreached) == round((1 - payloads.coverage) * 30)


def test_a_single_sentence_goes_to_everybody() -> None:
    payloads = split([Source("fact", "The deadline is Friday.")], FOUR, budget_chars=200)
    assert set(texts(payloads).values()) == {"Source: fact\nThe deadline is Friday."}
    assert payloads.overlap == 1.0


def test_two_short_sources_are_shared_in_turns() -> None:
    payloads = split([Source("a", "First fact."), Source("b", "Second fact.")], FOUR, budget_chars=200)
    assert [found[0].source for found in payloads.by_member.values()] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("budget", [0, 10, 30])
def test_a_budget_without_room_gives_empty_payloads_and_says_so(budget: int) -> None:
    text = sentences(1, 9)
    payloads = split([Source("a.md", text)], FOUR, budget_chars=budget)
    assert payloads.by_member == dict.fromkeys(FOUR, ())
    assert (payloads.coverage, payloads.text_coverage, payloads.overlap) == (0.0, 0.0, None)
    assert payloads.clipped == (Clip("a.md", len(text), len(text)),)


@pytest.mark.parametrize("sources", [[], [Source("empty", ""), Source("blank", " \n ")]])
def test_without_text_coverage_is_unknown_and_not_zero(sources: list[Source]) -> None:
    payloads = split(sources, FOUR, budget_chars=100)
    assert payloads == Payloads(dict.fromkeys(FOUR, ()), None, None, None, ())


def test_a_megabyte_on_one_line_is_split_all_the_same() -> None:
    payloads = split([Source("blob", "x" * 1_000_000)], FOUR, budget_chars=2_000)
    assert all(1_800 < len(text) <= 2_000 for text in texts(payloads).values())


@pytest.mark.parametrize(
    ("sources", "members", "budget", "message"),
    [
        ([], [], 10, "there is nobody to split the sources for; got 0 members; limit at least 1"),
        ([], ["a", "b", "a"], 10, "a member is named twice; got 'a'; limit different names. Give each member a"
         " name of its own."),
        ([Source("x", "1"), Source("x", "2")], ["a"], 10, "a source is named twice; got 'x'; limit different"
         " names. Give each source a name of its own."),
        ([], ["a"], -1, "the payload budget is negative; got -1; limit at least 0 characters. 0 gives no sources."),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(sources: list[Source], members: list[str], budget: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        split(sources, members, budget_chars=budget)
    assert str(caught.value) == message


def test_rendering_marks_every_gap_and_groups_by_source() -> None:
    excerpts = [
        Excerpt("a.md", 0, "Title\n\n", 100),
        Excerpt("a.md", 20, "  indented text \n", 100),
        Excerpt("b\nc.md", 1, "rest", 5),
    ]
    assert render_payload(excerpts) == (
        "Source: a.md\n"
        "Title\n"
        "[... 13 characters left out]\n"
        "  indented text\n"
        "[... 63 characters left out]\n"
        "\n"
        "Source: b c.md\n"
        "[... 1 character left out]\n"
        "rest"
    )


def test_nothing_renders_as_nothing() -> None:
    assert render_payload(()) == ""


def test_payloads_survive_json() -> None:
    payloads = split([Source("report.md", paragraphs(4))], FOUR, budget_chars=500)
    assert from_json(Payloads, json.loads(json.dumps(to_json(payloads)))) == payloads


words = st.text(alphabet="abcdef .\n,é漢\u0301", max_size=30)
source_texts = st.lists(st.lists(words, max_size=30).map("".join), max_size=6)


@given(source_texts, st.integers(1, 5), st.integers(0, 500))
@settings(max_examples=200, deadline=None)
def test_payloads_keep_the_budget_and_tell_the_truth(found: list[str], count: int, budget: int) -> None:
    sources = [Source(f"s{i}", text) for i, text in enumerate(found)]
    members = [f"m{i}" for i in range(count)]
    payloads = split(sources, members, budget_chars=budget)
    assert payloads == split(sources, members, budget_chars=budget)
    assert list(payloads.by_member) == members
    assert all(len(text) <= budget for text in texts(payloads).values())

    readers: dict[tuple[str, int], int] = {}
    by_name = {source.name: source.text for source in sources}
    for excerpts in payloads.by_member.values():
        assert [(e.source, e.start) for e in excerpts] == sorted((e.source, e.start) for e in excerpts)
        for excerpt in excerpts:
            assert excerpt.text  # an excerpt holds something,
            assert excerpt.text == by_name[excerpt.source][excerpt.start : excerpt.end]  # nothing invented,
            assert excerpt.total == len(by_name[excerpt.source])
            for place in range(excerpt.start, excerpt.end):
                readers[excerpt.source, place] = readers.get((excerpt.source, place), 0) + 1
        places = [(e.source, i) for e in excerpts for i in range(e.start, e.end)]
        assert len(places) == len(set(places))  # and nothing stands twice in one payload

    counted = {name: text for name, text in by_name.items() if text.strip()}
    whole = sum(map(len, counted.values()))
    shared = sum(number > 1 for number in readers.values())
    assert payloads.coverage == (len({name for name, _ in readers}) / len(counted) if counted else None)
    assert payloads.text_coverage == (len(readers) / whole if whole else None)
    assert payloads.overlap == (shared / len(readers) if readers else None)
    left = {name: len(text) - sum(key[0] == name for key in readers) for name, text in counted.items()}
    assert {clip.source: clip.left_out for clip in payloads.clipped} == {n: x for n, x in left.items() if x}


@given(source_texts, st.integers(1, 5))
@settings(deadline=None)
def test_with_room_enough_everything_reaches_somebody(found: list[str], count: int) -> None:
    sources = [Source(f"s{i}", text) for i, text in enumerate(found)]
    payloads = split(sources, [f"m{i}" for i in range(count)], budget_chars=10_000)
    assert payloads.coverage in (1.0, None)
    assert payloads.text_coverage in (1.0, None)
    assert payloads.clipped == ()


@given(st.integers(1, 5), st.integers(1, 40), st.integers(300, 1500))
@settings(deadline=None)
def test_every_member_gets_something_where_there_is_something(count: int, size: int, budget: int) -> None:
    payloads = split([Source("s", sentences(1, size))], [f"m{i}" for i in range(count)], budget_chars=budget)
    assert all(payloads.by_member.values())
