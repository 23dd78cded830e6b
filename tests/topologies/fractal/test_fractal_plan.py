from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from romanesco.budget import Price
from romanesco.errors import ConfigError, InputError, PlanRefused
from romanesco.models import ModelRequest, TokenCount
from romanesco.personas import builtin_personas
from romanesco.task import Bill, Budget, Plan, Source, Status, Task
from romanesco.topologies._billing import Piece, excess, without_pools
from romanesco.topologies._text import byte_cap
from romanesco.topologies.fractal import Fractal
from romanesco.topologies.fractal._params import params_from_json, parse_params
from romanesco.topologies.fractal._plan import _Planner
from tests.topologies.node_fakes import Answer, FakeDesk, deliberate, talk

SMALL = FakeDesk(size_of_window=2048, exactly=True, bytes_per_token=4)
PRICE = Price(input=Decimal("0.000001"), output=Decimal("0.000002"), cached=Decimal(0))


async def plan(desk: FakeDesk | None = None, goal: str = "Sell the tool", sources: Any = (), **params: Any) -> Plan:
    return await Fractal().plan(Task(goal, tuple(sources), params), desk or FakeDesk())


def lines(bill: Bill) -> dict[str, int]:
    return {line.purpose: line.calls for line in bill.lines}


async def test_the_lines_of_the_bill() -> None:
    made = await plan()
    assert lines(made.bill) == {
        "proposal": 12,
        "critique": 8,
        "decision": 1,
        "wrap-up": 1,
        "repair": 5,  # a quarter of 18 structured calls
        "retry": 22,  # requests; tokens for a quarter of 22 calls and 5 repairs
    }
    assert (made.topology, made.fits, made.bill.usd) == ("fractal", True, None)
    assert lines((await plan(k=3, rounds=1)).bill)["repair"] == 2


async def test_a_pool_is_priced_as_its_dearest_call() -> None:
    bill = (await plan(FakeDesk(priced=PRICE))).bill
    by = {line.purpose: line for line in bill.lines}
    dearest = by["repair"].tokens_in // 5
    assert by["retry"].tokens_in == 7 * dearest
    assert dearest > max(line.tokens_in / line.calls for name, line in by.items() if name not in ("repair", "retry"))
    assert bill.usd == sum(line.usd or 0 for line in bill.lines)
    assert by["decision"].usd == PRICE.worst(by["decision"].tokens_in, by["decision"].tokens_out)


async def test_at_k_5_every_prompt_fits_2048_tokens_with_a_usual_goal() -> None:
    made = await plan(SMALL, goal="word " * 110, k=5)  # 138 tokens
    params = params_from_json(made.params)
    assert (params.style, params.k) == ("compact", 5)
    assert (params.proposal_tokens, params.critique_tokens) == (90, 25)
    draft = await _Planner(Task("word " * 110), SMALL, parse_params({"k": 5})).draft(5)
    assert all(call.needs <= 2048 for call in draft.calls.each)


@pytest.mark.parametrize(
    ("window", "caps"), [(4096, (90, 25, 220)), (16_384, (300, 60, 800)), (128_000, (500, 100, 1200))]
)
async def test_caps_and_style_follow_the_window(window: int, caps: tuple[int, int, int]) -> None:
    params = params_from_json((await plan(FakeDesk(size_of_window=window, exactly=True, bytes_per_token=4))).params)
    assert (params.proposal_tokens, params.critique_tokens, params.decision_tokens) == caps
    assert params.style == ("compact" if window == 4096 else "full")


async def test_what_the_user_sets_is_kept() -> None:
    params = params_from_json((await plan(style="compact", proposal_tokens=200, k=5, rounds=2)).params)
    assert (params.style, params.proposal_tokens, params.critique_tokens, params.k, params.rounds) == (
        "compact",
        200,
        25,
        5,
        2,
    )


async def test_an_unknown_window_is_said() -> None:
    made = await plan(FakeDesk(size_of_window=None))
    assert any("window of fake:model is unknown; planned for 8,192" in reason for reason in made.reasons)


async def test_the_smallest_window_counts() -> None:
    class Desk(FakeDesk):
        async def window(self, model: str) -> int | None:
            return 2048 if model == "fake:small" else 128_000

    desk = Desk(exactly=True, bytes_per_token=4, models={"friction-engine": "fake:small"})
    assert params_from_json((await plan(desk)).params).style == "compact"


async def test_a_huge_goal_is_refused_after_one_count() -> None:
    class Desk(FakeDesk):
        counts = 0

        async def count(self, request: ModelRequest) -> TokenCount:
            self.counts += 1
            return await super().count(request)

    desk = Desk(size_of_window=2048)
    with pytest.raises(PlanRefused, match="The goal alone is larger than the window") as caught:
        await plan(desk, goal="x" * 1_000_000)
    assert desk.counts == 1 and "--source" in caught.value.advice


async def test_br_103_a_goal_that_is_too_long_is_refused_with_how_much() -> None:
    with pytest.raises(PlanRefused, match="larger than the window of fake:model") as caught:
        await plan(SMALL, goal="word " * 1400)
    assert "shorten the goal by so many" in str(caught.value) and "Even k = 3" in str(caught.value)
    assert "2,048 tokens" in str(caught.value)


async def test_a_k_that_does_not_fit_is_refused_with_the_one_that_would() -> None:
    goal = "word " * 240
    with pytest.raises(PlanRefused, match="k = 4 would fit"):
        await plan(SMALL, goal=goal, k=5)
    assert params_from_json((await plan(SMALL, goal="word " * 500)).params).k == 3
    shrunk = await plan(SMALL, goal="word " * 500)
    assert any(reason.startswith("k lowered from 4 to 3: the largest prompt") for reason in shrunk.reasons)


async def test_rounds_are_lowered_first_and_then_k() -> None:
    full = (await plan()).bill
    fewer = await plan(FakeDesk(budget=Budget(tokens=full.tokens - 1)))
    assert (fewer.params["k"], fewer.params["rounds"]) == (4, 2)
    assert any(reason.startswith("rounds lowered from 3 to 2: the worst case would be") for reason in fewer.reasons)
    assert f"the budget is {full.tokens - 1:,} tokens" in fewer.reasons[-1]
    at_one = (await plan(rounds=1)).bill
    fewest = await plan(FakeDesk(budget=Budget(calls=at_one.calls - 1)))
    assert (fewest.params["k"], fewest.params["rounds"], fewest.fits) == (3, 1, True)
    assert "rounds lowered from 3 to 1 and k lowered from 4 to 3" in fewest.reasons[-1]


async def test_what_the_user_set_is_not_lowered_but_labelled() -> None:
    cheapest = (await plan(k=3, rounds=1)).bill
    made = await plan(FakeDesk(budget=Budget(calls=cheapest.calls)), k=5)
    assert (made.params["k"], made.params["rounds"], made.fits) == (5, 1, False)
    assert "labelled partial answer" in made.reasons[-1]


async def test_a_plan_that_does_not_fit_says_what_was_lowered_all_the_same() -> None:
    cheapest = without_pools((await plan(k=3, rounds=1)).bill)
    made = await plan(FakeDesk(budget=Budget(tokens=cheapest.tokens)))
    assert (made.params["k"], made.params["rounds"], made.fits) == (3, 1, False)
    assert made.reasons[-2].startswith("rounds lowered from 3 to 1 and k lowered from 4 to 3: the worst case would be")
    assert "labelled partial answer" in made.reasons[-1]


async def test_a_limit_of_a_shared_account_is_told_by_the_accounts_name() -> None:
    calls = (await plan()).bill.calls - 1
    desk = FakeDesk(budget=Budget(calls=calls), accounts={"calls": "project:web"})
    assert f"the account project:web has {calls} calls left" in (await plan(desk)).reasons[-1]
    with pytest.raises(PlanRefused, match="the account project:web has left is smaller than the cheapest plan's bill"):
        await plan(FakeDesk(budget=Budget(calls=1), accounts={"calls": "project:web"}))


async def test_a_budget_below_the_cheapest_plan_is_refused_with_its_bill() -> None:
    cheapest = without_pools((await plan(k=3, rounds=1)).bill)
    assert not (await plan(FakeDesk(budget=Budget(tokens=cheapest.tokens)))).fits
    with pytest.raises(PlanRefused, match="smaller than the cheapest plan's bill") as caught:
        await plan(FakeDesk(budget=Budget(tokens=cheapest.tokens - 1)))
    assert f"{cheapest.tokens:,} tokens" in str(caught.value)
    assert "topology 'single' would fit" in str(caught.value)


@pytest.mark.parametrize("zero", ["tokens", "tokens_in", "tokens_out", "calls", "nodes"])
async def test_zero_means_zero(zero: str) -> None:
    limits: dict[str, Any] = {zero: 0}
    with pytest.raises(PlanRefused) as caught:
        await plan(FakeDesk(budget=Budget(**limits)))
    assert "single" not in caught.value.advice


async def test_money_needs_a_price() -> None:
    with pytest.raises(ConfigError, match="price is unknown"):
        await plan(FakeDesk(budget=Budget(usd=Decimal(1))))
    with pytest.raises(PlanRefused, match=r"\(usd\)"):
        await plan(FakeDesk(budget=Budget(usd=Decimal("0.0001")), priced=PRICE))
    assert (await plan(FakeDesk(budget=Budget(usd=Decimal(10)), priced=PRICE))).fits


def test_excess_names_each_dimension() -> None:
    assert excess(Bill(()), Budget(calls=0)) == []


async def test_the_team() -> None:
    params = params_from_json((await plan(k=3)).params)
    assert [one.id for one in params.team] == ["frame-challenger", "integrative-synthesizer", "radical-speculator"]
    assert [one.id for one in params.judges] == ["structural-purist", "friction-engine"]
    wanted = params_from_json((await plan(members=others()[:2])).params)
    assert {"frame-challenger", others()[0], others()[1]} < {one.id for one in wanted.team}


def others() -> list[str]:
    named = {"radical-speculator", "integrative-synthesizer", "frame-challenger"}
    return [one.id for one in builtin_personas().values() if one.role == "generator" and one.id not in named]


async def test_required_personas_keep_k_from_shrinking_too_far() -> None:
    three = others()[:3]
    with pytest.raises(PlanRefused, match="cheapest"):
        await plan(FakeDesk(budget=Budget(calls=1)), members=three)
    with pytest.raises(InputError, match="more proposers are required"):
        await plan(k=3, members=three)


async def test_an_ensemble_that_is_not_admissible_is_said_or_refused() -> None:
    made = await plan(delta=1.9)
    assert any("NOT admissible" in reason for reason in made.reasons)
    with pytest.raises(PlanRefused, match="no ensemble is diverse enough"):
        await plan(delta=1.9, on_inadmissible="stop")


async def test_a_persona_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[personas.lawyer]\nname = "Lawyer"\nbrief = "Think of liability."\nbias = { risk_appetite = -0.9 }\n'
        'model = "openai:gpt-5"\n',
        encoding="utf-8",
    )
    made = await plan(personas=str(file), members=["lawyer"])
    lawyer = next(one for one in params_from_json(made.params).team if one.id == "lawyer")
    assert lawyer.brief == "Think of liability."
    assert any("lawyer prefers openai:gpt-5 and gets fake:model" in reason for reason in made.reasons)


async def test_sources_get_the_room_that_is_left() -> None:
    book = Source("book.txt", "A sentence about the market. " * 2000)
    made = await plan(SMALL, sources=[book])
    assert any(reason.startswith("Sources: ") and "left out in part: book.txt" in reason for reason in made.reasons)
    assert 0 < made.params["payload_chars"] < 2048 * 4
    _, scope = await deliberate(desk=SMALL, sources=(book,))
    for key, request in scope.asked.items():
        count = await SMALL.count(request)
        assert count.tokens + request.max_output_tokens <= 2048, key
    whole = await plan(sources=[Source("note.txt", "Short. " * 20)])
    assert any("100% of the text reaches somebody" in reason for reason in whole.reasons)


async def test_later_rounds_show_a_proposer_its_own_sources_as_far_as_the_window_permits() -> None:
    book = Source("book.txt", "A sentence about the market. " * 2000)
    small, scope = await deliberate(desk=SMALL, sources=(book,), tau_sat=0, k=3)
    told = [one for one in scope.plan.reasons if one.startswith("Later rounds show each proposer its own part")]
    assert len(told) == 1 and "the window has no room for more" in told[0] and small.status is Status.COMPLETED
    again = scope.plan.params["again_chars"]
    assert 80 <= again < scope.plan.params["payload_chars"]
    for key, request in scope.asked.items():
        notes = re.search(r'Notes:\n"""\n(.*?)\n"""', request.messages[1].content, re.DOTALL)
        if key.startswith("integrate/"):
            mine = scope.asked[f"generate/1/{key.split('/')[2]}"].messages[1].content
            assert notes and len(notes[1]) <= again and notes[1].endswith(" characters left out]")
            assert notes[1].rpartition("\n")[0] in mine
            assert (await SMALL.count(request)).tokens + request.max_output_tokens <= 2048
        assert bool(notes) is key.startswith(("generate/", "integrate/")), key  # nobody else sees a source

    whole = await plan(sources=[Source("note.txt", "Short. " * 20)])
    assert whole.params["again_chars"] == 140 + len("Source: note.txt\n") - 1
    assert not any(one.startswith("Later rounds") for one in whole.reasons)


async def test_sources_are_left_out_of_later_rounds_where_there_is_no_room_or_as_asked() -> None:
    note = Source("note.txt", "A sentence about the market. " * 9)

    class Desk(FakeDesk):  # one proposer's window is full in Integration; the others' are large
        async def window(self, model: str) -> int | None:
            return 2048 if model == "fake:small" else 128_000

    desk = Desk(exactly=True, bytes_per_token=4, models={"radical-speculator": "fake:small"})
    full = await plan(desk, sources=[note], proposal_tokens=265)
    assert "Later rounds are without the sources: the window has no room for them." in full.reasons
    assert (full.params["again_chars"], full.params["payload_chars"] > 0) == (0, True)
    asked = await plan(sources=[note], reread=False)
    assert "Later rounds are without the sources, as asked (reread)." in asked.reasons
    assert asked.bill.tokens_in < (await plan(sources=[note])).bill.tokens_in
    with pytest.raises(InputError, match="true or false"):
        await plan(reread="no")


async def test_no_room_for_sources_is_refused() -> None:
    with pytest.raises(PlanRefused, match="no room for the sources"):
        await plan(SMALL, goal="word " * 1500, sources=[Source("a.txt", "text " * 99)], k=3)


texts = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(texts, st.integers(1, 400), st.integers(3, 5), st.sampled_from([2048, 200_000]), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_no_run_exceeds_its_bill(text: str, times: int, k: int, window: int, propose: bool) -> None:
    """Whatever members write, each line holds; the scope checks every call against it."""
    long = (text * times)[:20_000]

    def script(key: str, request: ModelRequest) -> Answer:
        answer = talk(key, request)
        if isinstance(answer, str):
            return long if long.strip() else "x"
        if not isinstance(answer, dict):
            return answer
        keep = ("backs", "chosen", "stance", "absorbed_from")
        value = {name: old if name in keep or not isinstance(old, str) else long + "x" for name, old in answer.items()}
        return {**value, "critiques": [long + "x"] * 3} if "critiques" in value else value

    desk = FakeDesk(size_of_window=window if window > 2048 else 30_000)
    style = "compact" if window == 2048 else "full"
    await deliberate(script=script, desk=desk, k=k, style=style, evaluators_propose=propose, goal=long[:200] + "g")


def test_an_inserted_text_is_bounded_in_bytes_and_in_tokens() -> None:
    text = Piece(byte_cap(90), 100, "fake:model")  # 90 tokens are shown, 10 more may be generated
    assert text.most("fake:model", exact=True) == 110 + 4
    assert text.most("fake:model", exact=False) == byte_cap(90) == 540
    assert text.most("fake:other", exact=True) == 540  # another tokenizer may need a token a byte
    assert Piece(540, 1090, "fake:model").most("fake:model", exact=True) == 540  # reasoning is not in the text
    assert Piece(540).most("fake:model", exact=True) == 540
    assert (text.room("fake:model"), text.room("fake:other")) == (114, 155)


async def test_a_plan_is_data_both_ways() -> None:
    made = await plan()
    params = params_from_json(made.params)
    assert replace(params, rounds=params.rounds).to_json() == made.params
