"""Prices: where they come from, what they come to, and what is done without one."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage as PublishedUsage
from genai_prices import calc_price
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    StartDateConstraint,
    TimeOfDateConstraint,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from romanesco.budget import Price, Tier, price_of, require_price
from romanesco.budget._prices import _flat, _highest, _in_force
from romanesco.errors import ConfigError
from romanesco.models._types import Usage
from romanesco.task import Budget

AT = datetime(2026, 1, 15, 12, tzinfo=UTC)
MILLION = 1_000_000


@pytest.mark.parametrize(
    "model",
    [
        *("embedded:smollm2", "scripted:any", "replay:x", "ollama:llama3", "vllm:a:b", "lmstudio:x", "llamacpp:x"),
        *(f"http://{host}:8000/v1#m" for host in ("localhost", "my.localhost", "127.0.0.1", "127.0.0.2", "[::1]")),
    ],
)
def test_models_on_ones_own_machine_are_free_and_say_so(model: str) -> None:
    price = price_of(model)
    assert price is not None and "free" in price.source
    assert price.worst(MILLION, MILLION) == 0
    assert price.cost(Usage(MILLION, MILLION)) == 0


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "127.0.0.1.example", "[::2]", "[::1", ""])
def test_a_server_elsewhere_is_not_free(host: str) -> None:
    assert price_of(f"http://{host}:8000/v1#m") is None


def test_the_configuration_comes_first() -> None:
    prices: dict[str, Any] = {
        "embedded:smollm2": {"input": "0.5", "output": 2, "request": 0.001},
        "ollama:*": {"input": 0.15, "output": Decimal("0.6"), "cached": 0},
    }
    one = price_of("embedded:smollm2", prices)
    assert one == Price(
        Decimal("0.0000005"), Decimal("0.000002"), Decimal("0.0000005"), Decimal("0.001"), source="romanesco.toml"
    )
    assert one.worst(1000, 100, calls=3) == Decimal("0.0005") + Decimal("0.0002") + Decimal("0.003")
    other = price_of("ollama:llama3", prices)
    assert other is not None
    assert other.cost(Usage(1000, 10, cached=400)) == Decimal("0.00009") + Decimal("0.000006")
    free = price_of("openai:gpt-4o", {"openai:gpt-4o": {"input": 0, "output": 0}})
    assert free is not None and free.worst(MILLION, MILLION) == 0


@pytest.mark.parametrize(
    ("quote", "match"),
    [
        ({"input": 1}, "incomplete; got no output"),
        ({}, "incomplete; got no input and no output"),
        ({"input": -1, "output": 1}, 'prices."x:y".input is out of range'),
        ({"input": "cheap", "output": 1}, "not an amount of money"),
        ({"input": float("nan"), "output": 1}, "not a finite number"),
        ({"input": 1, "output": 1, "ouput": 1}, "unknown entry; got ouput; limit input, output, cached, request"),
    ],
)
def test_a_wrong_configured_price_is_refused(quote: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        price_of("x:y", {"x:y": quote})


@pytest.mark.parametrize(
    "model",
    [
        "openai:no-such-model-anywhere",
        "myserver:gpt-4o",
        "openai:",
        "gpt-4o",
        "",
        "perplexity:sonar-deep-research",
        "openai:text-embedding-3-small",
    ],
)
def test_what_is_not_known_is_unknown_and_not_free(model: str) -> None:
    assert price_of(model, at=AT) is None


def test_a_money_budget_needs_a_price() -> None:
    with pytest.raises(ConfigError, match=r'Set prices."x:y" in romanesco.toml .* --tokens') as caught:
        require_price("x:y", None, Budget(usd=Decimal("0.5")))
    assert caught.value.value == "0.5 usd"
    with pytest.raises(ConfigError):
        require_price("x:y", None, Budget(usd=Decimal(0)))
    require_price("x:y", None, Budget(tokens=5))
    require_price("embedded:smollm2", price_of("embedded:smollm2"), Budget(usd=Decimal("0.5")))


def test_a_tier_holds_for_all_tokens_of_a_call_that_passes_it() -> None:
    price = Price(
        Decimal("0.000001"),
        Decimal("0.00001"),
        Decimal("0.0000001"),
        tiers=(Tier(1000, Decimal("0.000002"), Decimal("0.000015"), Decimal("0.000003")),),
    )
    assert price.cost(Usage(1000, 10)) == Decimal("0.0011")
    assert price.cost(Usage(1001, 10, cached=1)) == Decimal("0.002153")
    assert price.cost(Usage(10, 0, cached=9999)) == Decimal("0.000001")
    assert price.worst(1000, 10) == Decimal("0.0011")
    assert price.worst(1001, 10) == Decimal("0.003153"), "cached tokens cost more here, so they are the worst case"


def test_a_rate_finer_than_the_step_is_rounded_up() -> None:
    price = price_of("x:y", {"x:y": {"input": "0.041666666666666664", "output": 1}})
    assert price is not None
    assert price.input == Decimal("0.000000041666667")
    assert price.worst(3, 0) == Decimal("0.000000125000001")


PUBLISHED = [
    ("openai", "gpt-4o-mini"),
    ("openai", "gpt-4o"),
    ("anthropic", "claude-sonnet-4-5"),
    ("google", "gemini-2.5-pro"),
    ("groq", "llama-3.3-70b-versatile"),
    ("mistral", "mistral-large-latest"),
    ("deepseek", "deepseek-chat"),
    ("perplexity", "sonar"),
]


@pytest.mark.parametrize(("provider", "model"), PUBLISHED)
@given(read=st.integers(0, 400_000), written=st.integers(0, 100_000), share=st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_a_published_price_is_never_below_the_publishers_own_sum(
    provider: str, model: str, read: int, written: int, share: int
) -> None:
    price = price_of(f"{provider}:{model}", at=AT)
    assert price is not None
    cached = read * share // 100
    theirs = calc_price(
        PublishedUsage(input_tokens=read, output_tokens=written, cache_read_tokens=cached),
        model,
        provider_id=provider,
        genai_request_timestamp=AT,
    ).total_price
    ours = price.cost(Usage(read, written, cached=cached))
    assert ours >= theirs or theirs - ours < Decimal("1E-15")
    if provider not in ("deepseek", "perplexity"):  # they change by the hour, or bill for more than tokens
        assert ours == theirs
    assert price.worst(read, written) >= ours


@given(
    calls=st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 5000)), min_size=1, max_size=5),
)
@settings(max_examples=50, deadline=None)
def test_the_worst_case_of_a_line_covers_its_calls_one_by_one(calls: list[tuple[int, int]]) -> None:
    price = price_of("google:gemini-2.5-pro", at=AT)
    assert price is not None
    line = price.worst(sum(read for read, _ in calls), sum(written for _, written in calls), calls=len(calls))
    assert line >= sum(price.worst(read, written) for read, written in calls)
    assert line >= sum(price.cost(Usage(read, written, cached=read // 2)) for read, written in calls)


def test_a_published_price_has_its_tiers_and_its_source() -> None:
    price = price_of("google:gemini-2.5-pro", at=AT)
    assert price is not None
    assert price.source == "published (genai-prices)"
    assert [tier.above for tier in price.tiers] == [200_000]
    assert price.tiers[0].input > price.input


def plain(dollars: int) -> ModelPrice:
    return ModelPrice(input_mtok=Decimal(dollars), output_mtok=Decimal(dollars))


def dated(dollars: int, start: date) -> ConditionalPrice:
    return ConditionalPrice(StartDateConstraint(start), prices=plain(dollars))


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (date(2025, 12, 1), [1]),
        (date(2026, 1, 9), [2, 1]),  # the next one starts within a day: a run may cross midnight
        (date(2026, 1, 10), [2]),
        (date(2026, 6, 1), [3]),
    ],
)
def test_published_prices_are_taken_by_date(day: date, expected: list[int]) -> None:
    info = ModelInfo(
        "m",
        ClauseEquals("m"),
        prices=[ConditionalPrice(prices=plain(1)), dated(2, date(2026, 1, 10)), dated(3, date(2026, 6, 1))],
    )
    found = _in_force(info, datetime(day.year, day.month, day.day, 12, tzinfo=UTC))
    assert [price.input_mtok for price in found] == expected


def test_where_no_published_condition_holds_the_first_price_does() -> None:
    info = ModelInfo("m", ClauseEquals("m"), prices=[dated(7, date(2030, 1, 1)), dated(9, date(2031, 1, 1))])
    assert [price.input_mtok for price in _in_force(info, AT)] == [7]


def test_a_price_that_changes_by_the_hour_counts_with_its_highest_rate() -> None:
    night = ConditionalPrice(TimeOfDateConstraint(time(0), time(8)), prices=plain(1))
    info = ModelInfo("m", ClauseEquals("m"), prices=[ConditionalPrice(prices=plain(5)), night])
    assert {price.input_mtok for price in _in_force(info, AT)} == {1, 5}
    chat = price_of("deepseek:deepseek-chat", at=AT)
    assert chat is not None
    for hour in (3, 20):
        when = datetime(2026, 1, 15, hour, tzinfo=UTC)
        usage = PublishedUsage(input_tokens=1000, output_tokens=1000)
        theirs = calc_price(usage, "deepseek-chat", provider_id="deepseek", genai_request_timestamp=when)
        assert chat.cost(Usage(1000, 1000)) >= theirs.total_price


def test_the_highest_of_several_prices_is_at_least_each_of_them() -> None:
    def price(read: int, tier: int, above: int) -> Price:
        return Price(Decimal(read), Decimal(1), Decimal(0), tiers=(Tier(above, Decimal(tier), Decimal(2), Decimal(1)),))

    one, other = price(1, 10, 100), price(3, 5, 50)
    both = _highest([one, other])
    assert [(tier.above, tier.input) for tier in both.tiers] == [(50, Decimal(5)), (100, Decimal(10))]
    for read in (0, 50, 51, 100, 101, 1000):
        assert both.cost(Usage(read, 7)) >= max(one.cost(Usage(read, 7)), other.cost(Usage(read, 7)))


def test_caches_that_servers_write_unasked_count() -> None:
    published = ModelPrice(
        input_mtok=Decimal(4), output_mtok=Decimal(8), cache_read_mtok=Decimal(1), cache_write_mtok=Decimal(5)
    )
    fills_by_itself, on_request = _flat(published, asks=False), _flat(published, asks=True)
    assert fills_by_itself is not None and on_request is not None
    assert fills_by_itself.cost(Usage(1000, 0)) == Decimal("0.005")
    assert on_request.cost(Usage(1000, 0)) == Decimal("0.004")
    assert on_request.cost(Usage(1000, 0, cached=1000)) == Decimal("0.001")


def test_reasoning_that_costs_more_sets_the_rate_of_output() -> None:
    published = ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(2), output_reasoning_mtok=Decimal(3))
    price = _flat(published, asks=False)
    assert price is not None
    assert price.cost(Usage(0, 1000, reasoning=10)) == Decimal("0.003")
