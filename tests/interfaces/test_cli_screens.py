"""Plans, outcomes, costs and verification as text."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any, get_args

import pytest
from rich.console import Console, RenderableType

from romanesco.errors import EXIT_CODES, StopReason
from romanesco.interfaces.cli._bill import cost_table, fits_text, plan_data, plan_parts
from romanesco.interfaces.cli._costs import line_costs
from romanesco.interfaces.cli._ending import Refusal, ending_parts, refusal_of
from romanesco.interfaces.cli._outcome import cost_text, outcome_parts
from romanesco.interfaces.cli._sections import SECTIONS
from romanesco.runtime import Attempted, Spent
from romanesco.task import Bill, BillLine, Budget, Deliberation, Dissent, Outcome, Plan, Spend, Status

BILL = Bill((BillLine("proposal", 3, 300, 90, Decimal("0.03")), BillLine("retry", 2, 200, 60, Decimal("0.02"))))
MODELS = {"default": "a:b", "decision-maker": "c:d"}


def text(parts: list[RenderableType] | RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for part in parts if isinstance(parts, list) else [parts]:
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_plan_shows_reasons_lines_total_and_fit() -> None:
    shown = text(plan_parts(Plan("fractal", BILL, {}, ("Because.",)), Budget(tokens=1000), MODELS))
    assert "fractal on a:b, decision-maker c:d" in shown
    assert "Because." in shown
    assert ["proposal", "3", "300", "90", "390", "$0.0300"] in [line.split() for line in shown.splitlines()]
    assert ["total", "5", "500", "150", "650", "$0.0500"] in [line.split() for line in shown.splitlines()]
    assert "The bill fits the limits: 1,000 tokens." in shown


def test_a_shown_bill_is_never_below_the_bill() -> None:
    lines = [BillLine("wrap-up", 1, 9, 9, Decimal("0.0011388")), BillLine("answer", 1, 9, 9, Decimal("0.0000123"))]
    lines += [BillLine("retry", 2, 9, 9, Decimal("1.0010001"))]
    bill = Bill(tuple(lines))
    rows = [line.split() for line in text(plan_parts(Plan("fractal", bill, {}), Budget(), MODELS)).splitlines()]
    shown = {row[0]: Decimal(row[-1][1:]) for row in rows if row and row[-1].startswith("$") and len(row) == 6}
    assert [str(shown[line.purpose]) for line in lines] == ["0.0012", "0.000013", "1.01"]
    assert all(shown[line.purpose] >= (line.usd or 0) for line in lines)
    assert shown["total"] >= sum(shown[line.purpose] for line in lines) and shown["total"] >= (bill.usd or 0)
    assert "$0 of $0.0012" in text(cost_table(line_costs(bill, [])))


def test_a_plan_says_what_it_costs_without_repairs_and_retries() -> None:
    shown = text(plan_parts(Plan("fractal", BILL, {}), Budget(), MODELS))
    assert "\nWithout repairs and retries: 3 calls, 390 tokens, $0.0300.\n" in shown
    plain_bill = Plan("mine", Bill((BillLine("answer", 1, 10, 5, None),)), {})
    assert "Without repairs" not in text(plan_parts(plain_bill, Budget(), MODELS))


def test_a_plan_that_does_not_fit_says_so() -> None:
    assert "does NOT fit the limits (9 tokens)" in fits_text(Plan("fractal", BILL, {}, fits=False), Budget(tokens=9))


def test_time_is_no_part_of_the_bill() -> None:
    plan = Plan("fractal", BILL, {})
    assert fits_text(plan, Budget(seconds=0)) == "Time at most: 0 s."
    assert (
        fits_text(plan, Budget(calls=9, seconds=90)) == "The bill fits the limits: 9 calls. Time at most: 1 min 30 s."
    )


def test_an_unknown_price_is_unknown_in_text_and_data() -> None:
    plan = Plan("fractal", Bill((BillLine("answer", 1, 10, 5, None),)), {})
    assert "unknown" in text(plan_parts(plan, Budget(), MODELS))
    assert plan_data(plan, Budget(), MODELS)["bill"]["total"]["usd"] is None


def attempt(line: str, call_line: str, spent: Spent) -> Attempted:
    return Attempted("/", "k", "scout", line, call_line, 1, spent, open=False)


def test_costs_are_told_by_line_against_the_bill() -> None:
    first = Spent(calls=1, tokens_in=90, tokens_out=20, usd=Decimal("0.01"))
    again = Spent(calls=1, tokens_in=80, tokens_out=10, usd=Decimal("0.02"), estimated=True)
    lines = line_costs(BILL, [attempt("proposal", "proposal", first), attempt("proposal", "retry", again)])
    shown = [" ".join(line.split()) for line in text(cost_table(lines)).splitlines()]
    assert "proposal 1 of 3 170 of 300 30 of 90 $0.0300 of $0.0300 estimated in part" in shown
    assert "retry 1 of 2 0 of 200 0 of 60 $0 of $0.0200" in shown
    assert "total 2 of 5 170 of 500 30 of 150 $0.0300 of $0.0500" in shown


def test_a_line_that_is_not_on_the_bill_is_told_too() -> None:
    lines = line_costs(Bill(()), [attempt("answer", "answer", Spent(calls=1, tokens_in=5, priced=False))])
    assert [(one.purpose, one.most, one.calls, one.usd) for one in lines] == [("answer", None, 1, None)]
    assert "unknown" in text(cost_table(lines))


def test_a_completed_outcome_has_no_label() -> None:
    assert ending_parts(Outcome(Status.COMPLETED, StopReason.COMPLETED, answer="Yes.")) == []


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason is not StopReason.COMPLETED])
def test_br_014_every_other_end_is_labelled_with_its_reason(reason: StopReason) -> None:
    shown = text(outcome_parts(Outcome(Status.PARTIAL, reason, answer="So far.", note="Cut at\nround 2.", run="r1")))
    assert shown.startswith(f"PARTIAL ({reason.value}): Cut at round 2.\n")
    assert "So far." in shown
    if reason not in (StopReason.INPUT, StopReason.REFUSED, StopReason.LENGTH):
        assert "romanesco resume r1" in shown or "romanesco show r1" in shown.splitlines()[1]


def test_reasons_have_exit_codes_of_their_own() -> None:
    assert set(EXIT_CODES) == set(StopReason)
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_an_answer_that_only_the_output_cap_cut_is_not_told_to_resume() -> None:
    outcome = Outcome(Status.PARTIAL, StopReason.LENGTH, answer="Half an ans", note="Cap.", run="r1")
    assert "resume" not in text(ending_parts(outcome))


def test_an_outcome_shows_dissent_cost_head_and_certificate() -> None:
    wait = "Wait a year.\nThen look."
    dissent = (Dissent("scout", "P1.1", wait), Dissent("maker", "P2.1", "x" * 400), Dissent("judge", "P1.1", wait))
    outcome = Outcome(
        Status.COMPLETED,
        StopReason.COMPLETED,
        answer="Go.",
        deliberation=Deliberation(dissent=dissent),
        run="r1",
        spend=Spend(2, 170, 30, None, 65.0, estimated=True, in_doubt=1),
        bill=BILL,
        head="ab" * 32,
        certificate="/x/r1.json",
    )
    shown = text(outcome_parts(outcome), width=400)
    assert shown.count("Wait a year") == 1
    assert "dissent  scout, judge for P1.1: Wait a year. Then look.\n" in shown
    assert "..." in shown.split("dissent  maker", 1)[1].splitlines()[0]
    assert "2 of 5 calls, 200 of 650 tokens, price unknown, 1 min 05 s, estimated in part, 1 call in doubt" in shown
    assert "ab" * 32 in shown and "/x/r1.json" in shown and "romanesco show r1" in shown


def test_sections_are_those_that_the_help_names() -> None:
    from romanesco.interfaces.cli._runs import Section

    help_text = get_args(Section)[1].help
    assert all(name in help_text for name in SECTIONS)


def refused(account: str, dimension: str = "calls", value: str = "6", limit: str = "5") -> Refusal:
    return Refusal(account, dimension, value, limit)


def cut(dimension: str = "calls", **changes: Any) -> Outcome:
    given: dict[str, Any] = {"note": "Cut.", "run": "r1", "dimension": dimension, "bill": BILL, **changes}
    return Outcome(Status.PARTIAL, StopReason.BUDGET, "So far.", **given)


@pytest.mark.parametrize(
    ("refusal", "dimension", "told", "command"),
    [
        (
            refused("run"),
            "calls",
            "5 calls; 6 would have been needed (account run: the",
            "romanesco resume r1 --calls N",
        ),
        (
            refused("run", "usd", "0.03", "0.02"),
            "usd",
            "$0.02; $0.03 would have been needed",
            "romanesco resume r1 --usd AMOUNT",
        ),
        (
            refused("run", "tokens_in", "60", "50"),
            "tokens_in",
            "50 tokens in; 60 would",
            'romanesco.resume("r1", budget=Budget(tokens_in=N))',
        ),
        (refused("run/line:retry"), "calls", "the bill's line retry", "Plan a larger run: romanesco plan GOAL"),
        (refused("run/role:judge"), "calls", "the role judge", "[limits.judge] of romanesco.toml counts from a run's"),
        (refused("run/node:/a"), "calls", "the node /a", "Start a new run with more: romanesco run GOAL"),
    ],
)
def test_a_limit_is_named_and_the_command_is_one_that_helps(
    refusal: Refusal, dimension: str, told: str, command: str
) -> None:
    shown = text(ending_parts(cut(dimension), refusal), width=300)
    assert told in shown.splitlines()[1] and command in shown
    if refusal.account != "run":
        assert "romanesco resume" not in shown, "a resume would end at the same limit"


def test_what_a_new_limit_must_be_above_is_told_with_what_is_enough() -> None:
    shown = text(ending_parts(cut(budget=Budget(calls=3)), refused("run", limit="3")))
    assert "Go on with a higher limit (above 3; 5 is the whole bill): romanesco resume r1 --calls N" in shown


def test_a_failure_of_a_model_is_no_refusal() -> None:
    assert refusal_of("step.failed", {"error": "server-fault"}) is None
    assert refusal_of("call.failed", {"error": "budget"}) is None


def test_what_was_spent_is_held_against_what_binds_and_the_bill_is_told_apart() -> None:
    spend = Spend(2, 170, 30, Decimal("0.01"), 65.0)
    told = cost_text(cut(spend=spend, budget=Budget(calls=3, tokens=9000, seconds=90)))
    assert told == "2 of 3 calls (limit; bill 5), 200 of 650 tokens, $0.0100 of $0.0500, 1 min 05 s of 1 min 30 s"
    assert cost_text(cut(spend=spend, bill=None, budget=Budget(tokens=900))).startswith(
        "2 calls, 200 of 900 tokens (limit), $0.0100"
    )
