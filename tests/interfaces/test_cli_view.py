"""What is known of a run while it goes on, and how it is drawn and told."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from romanesco.interfaces.cli._lines import tell
from romanesco.interfaces.cli._tree import draw
from romanesco.interfaces.cli._view import View
from romanesco.runtime import RunEvent
from romanesco.task import Bill, BillLine, Budget, Plan

BILL = Bill((BillLine("proposal", 4, 400, 100, Decimal("0.02")), BillLine("critique", 6, 600, 60, Decimal("0.01"))))


def new_view(*, bill: Bill = BILL, budget: Budget | None = None) -> View:
    return View("r1", Plan("fractal", bill, {"rounds": 2}), budget or Budget())


def started(role: str, key: str, attempt: int = 1, node: str = "/") -> RunEvent:
    reserved = {"tokens_in": 100, "tokens_out": 25, "usd": "0.005"}
    data = {"role": role, "purpose": "proposal", "attempt": attempt, "reserved": reserved, "elapsed": 1.0}
    return RunEvent("call.started", node, key, data)


def finished(key: str, attempt: int = 1, node: str = "/", usd: str | None = "0.001") -> RunEvent:
    usage = {"input": 90, "output": 10, "estimated": False}
    return RunEvent("call.finished", node, key, {"attempt": attempt, "usage": usage, "usd": usd, "elapsed": 2.0})


def failed(key: str, *, sent: bool, error: str = "rate-limited", attempt: int = 1) -> RunEvent:
    usage = {"input": 0, "output": 0, "estimated": False}
    data = {"attempt": attempt, "usage": usage, "usd": "0", "sent": sent, "error": error, "message": "429\nslow down"}
    return RunEvent("call.failed", "/", key, data)


def token(role: str, key: str, text: str) -> RunEvent:
    return RunEvent("token", "/", key, {"role": role, "text": text})


def drawn(view: View, *, width: int = 100, height: int = 30, ascii_only: bool = False) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if ascii_only else "utf-8", errors="strict")
    console = Console(file=stream, width=width, color_system=None)
    console.print(draw(view, elapsed=3.0, width=width, height=height))
    stream.seek(0)
    return stream.read()


def test_a_member_waits_thinks_and_is_done() -> None:
    view = new_view()
    team: dict[str, Any] = {"proposers": ["scout"], "evaluators": ["judge"]}
    view.take(RunEvent("fractal.ensemble", "/", "record:ensemble", team))
    states = [view.member("/", "scout").state]
    view.take(started("scout", "generate/1/scout"))
    states.append(view.member("/", "scout").state)
    view.take(token("scout", "generate/1/scout", "The first"))
    view.take(finished("generate/1/scout"))
    states.append(view.member("/", "scout").state)
    assert states == ["waiting", "thinking", "done"]
    assert (view.mode, view.round, view.calls, view.tokens, view.usd) == ("divergent", 1, 1, 100, Decimal("0.001"))
    assert [role for _, role in view.members] == ["scout", "judge", "decision-maker"]


def test_texts_of_two_calls_of_one_member_are_not_mixed() -> None:
    view = new_view()
    for key in ("critique/P1.1/judge", "critique/P2.1/judge"):
        view.take(started("judge", key))
    for piece in ("alpha ", "beta "):
        view.take(token("judge", "critique/P1.1/judge", piece))
        view.take(token("judge", "critique/P2.1/judge", piece.upper()))
    assert view.member("/", "judge").tail == "ALPHA BETA "
    assert "x2" in drawn(view)
    view.take(finished("critique/P1.1/judge"))
    assert view.member("/", "judge").state == "thinking"


def test_a_request_that_was_not_sent_is_no_call() -> None:
    view = new_view()
    view.take(started("scout", "generate/1/scout"))
    view.take(failed("generate/1/scout", sent=False, error="connection-failed"))
    assert (view.calls, view.member("/", "scout").state) == (0, "failed")
    view.take(started("scout", "generate/1/scout", attempt=2))
    assert view.member("/", "scout").state == "thinking"


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    view = new_view()
    view.take(started("scout", "a"))
    view.take(finished("a", usd=None))
    assert view.usd is None
    assert "price unknown" in drawn(view)


def test_calls_that_a_dead_process_left_count_in_full() -> None:
    view = new_view()
    view.take(started("scout", "a"))
    view.take(RunEvent("run.resumed", "", "", {"from": 3}))
    assert (view.calls, view.tokens, view.usd) == (1, 125, Decimal("0.005"))
    assert view.member("/", "scout").state == "waiting"


def test_the_tighter_of_bill_and_limit_is_shown() -> None:
    view = new_view(budget=Budget(calls=3, tokens=5000))
    assert (view.most("calls"), view.most("tokens"), view.most("usd")) == (3, 1160, Decimal("0.03"))
    assert "0 of 3 calls (limit; bill 10)  0 of 1,160 tokens  $0 of $0.0300  3.0 s\n" in drawn(view)


def test_without_a_bill_only_the_users_limits_are_shown() -> None:
    view = new_view(bill=Bill(()), budget=Budget(tokens=9, seconds=60))
    assert "0 calls  0 of 9 tokens (limit)  $0  3.0 s of 1 min 00 s\n" in drawn(view)


def test_one_call_is_told_in_the_singular() -> None:
    view = new_view(bill=Bill(()))
    view.take(started("scout", "a"))
    assert str(tell(finished("a"), view)).endswith("(run: 1 call, 100 tokens)")
    view.take(finished("a"))
    assert "1 call  100 tokens" in drawn(view)


def test_what_is_below_the_tree_fits_a_narrow_screen() -> None:
    view = new_view()
    for number in range(40):
        view.take(started(f"member-{number}", f"round/1/{number}"))
    asked = {"id": "ab12", "question": "Which market is meant by this goal? " * 5, "choices": ["EU", "US"]}
    view.take(RunEvent("question.asked", "/", "ask/0", asked))
    lines = drawn(view, width=40, height=24).splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 40
    assert "3.0 s" in lines[-1] and any("TEXT" in line for line in lines)


def test_a_changed_limit_is_shown() -> None:
    view = new_view()
    view.take(RunEvent("budget.changed", "", "", {"dimension": "usd", "value": "0.01"}))
    assert view.most("usd") == Decimal("0.01")


def test_a_question_is_shown_until_it_is_answered() -> None:
    view = new_view()
    asked = {"id": "ab12", "question": "Which market?", "choices": ["EU", "US"]}
    view.take(RunEvent("question.asked", "/", "ask/0", asked))
    assert "question ab12: Which market? [EU / US]  answer it: romanesco answer r1 ab12 TEXT" in drawn(view, width=200)
    view.take(RunEvent("step.finished", "/", "ask/0", {"result": "EU"}))
    assert not view.questions


def test_a_thousand_members_fit_the_screen() -> None:
    view = new_view()
    for number in range(1000):
        view.take(started(f"member-{number}", f"round/1/{number}"))
    for number in range(300):
        view.take(finished(f"round/1/{number}"))
    lines = drawn(view, height=24).splitlines()
    assert len(lines) <= 24
    assert "thinking" in lines[1]
    assert any("more: " in line and "300 done" in line for line in lines)


def test_br_139_the_tree_can_be_drawn_in_ascii() -> None:
    view = new_view()
    view.take(started("scout", "generate/1/scout"))
    assert "+-- scout" in drawn(view, ascii_only=True) or "`-- scout" in drawn(view, ascii_only=True)


def test_a_models_text_can_not_steer_the_screen() -> None:
    view = new_view()
    view.take(started("scout", "generate/1/scout"))
    view.take(token("scout", "generate/1/scout", "ha\x1b[2J\x1b]0;title\x07 [bold]x[/bold]"))
    picture = drawn(view)
    assert "\x1b" not in picture and "\x07" not in picture
    assert "[2J" in picture.replace(" ", "") or "2J" in picture


def test_children_stand_below_their_node() -> None:
    view = new_view()
    view.take(started("member", "answer", node="/"))
    view.take(started("member", "answer", node="/child-0"))
    assert [line.strip("│├└─ ") for line in drawn(view).splitlines()[1:4]] == [
        "member  thinking  proposal",
        "/child-0",
        "member  thinking  proposal",
    ]


def test_a_thousand_nodes_fit_the_screen_and_the_busy_ones_are_shown() -> None:
    view = new_view()
    for number in range(1000):
        view.take(started("member", "answer", node=f"/child-{number}"))
        if number != 500:
            view.take(finished("answer", node=f"/child-{number}"))
    lines = drawn(view, height=24).splitlines()
    assert len(lines) <= 24
    assert any("/child-500" in line for line in lines)
    assert any("more nodes: " in line and "done" in line for line in lines)


def test_grandchildren_stand_below_their_parent() -> None:
    view = new_view()
    for node in ("/", "/b", "/b/c", "/a"):
        view.take(started("member", "answer", node=node))
    nodes = [line for line in drawn(view).splitlines() if "/" in line]
    assert [line.strip("│├└─ ") for line in nodes] == ["/a", "/b", "/b/c"]
    assert nodes[2].index("/b/c") > nodes[1].index("/b")


def test_lines_tell_what_is_noteworthy() -> None:
    view = new_view()
    first = started("scout", "generate/1/scout")
    assert tell(first, view) is None
    view.take(first)
    line = tell(failed("generate/1/scout", sent=True), view)
    assert line == "scout: proposal failed (rate-limited): 429 slow down"
    view.take(failed("generate/1/scout", sent=True))
    again = started("scout", "generate/1/scout", attempt=2)
    assert tell(again, view) == "scout: proposal again, attempt 2"
    view.take(again)
    assert tell(finished("generate/1/scout", attempt=2), view) == (
        "scout: proposal done, 90 tokens in, 10 out (run: 2 of 10 calls, 100 of 1,160 tokens)"
    )


def test_br_014_the_switch_says_why() -> None:
    said = tell(RunEvent("fractal.switched", "/", "record:switched", {"round": 2, "reason": "r_max"}), new_view())
    assert said == "switch to the convergent mode after round 2: the rounds are used up"


calls = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.booleans(), st.booleans()), max_size=20)


@given(calls)
def test_the_view_adds_up(made: list[tuple[int, int, bool, bool]]) -> None:
    view = new_view()
    for number, (tokens_in, tokens_out, fails, sent) in enumerate(made):
        view.take(started("scout", f"k{number}"))
        usage = {"input": tokens_in, "output": tokens_out, "estimated": False}
        data = {"attempt": 1, "usage": usage, "usd": "0.5", "sent": sent, "error": "x", "message": "y"}
        view.take(RunEvent("call.failed" if fails else "call.finished", "/", f"k{number}", data))
    assert view.calls == sum(sent for _, _, _, sent in made)
    assert view.tokens == sum(tokens_in + tokens_out for tokens_in, tokens_out, _, _ in made)
    assert view.usd == Decimal("0.5") * len(made)
    assert not view.calls_out
