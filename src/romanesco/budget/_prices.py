"""What a token costs, per model: as configured, as published, or free; unknown is None and never zero.

Where prices come from, first match wins:

1. The configuration, for ``provider:model`` or ``provider:*``, in US dollars per million tokens.
2. ``embedded:*``, ``scripted:*`` and ``replay:*`` are free: they run in this process.
3. ``ollama:*``, ``llamacpp:*``, ``vllm:*``, ``lmstudio:*`` and addresses on this machine
   (``http://localhost:8000/v1#m``) count as free, because they are servers of one's own; ``Price.source`` says so.
   Who rents such a server sets its price in the configuration.
4. The table in the package ``genai-prices``. A provider that it doesn't know is unknown, even if it has a
   model of that name from somebody else.

A published price that changes with the hour of the day counts with its highest rate. Tokens that a server may
write to its cache unasked count at the rate for writing. So ``cost`` is never below what is charged for the
tokens that the server reports. Discounts and surcharges that must be asked for (batch, priority, search) are
not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from romanesco._hosts import on_this_machine
from romanesco.budget._amount import money, to_dollars, to_steps
from romanesco.errors import ConfigError, InputError
from romanesco.task import Bill, Budget

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

    from romanesco.models._types import Usage

IN_PROCESS = frozenset({"embedded", "scripted", "replay"})
OWN_SERVERS = frozenset({"ollama", "llamacpp", "vllm", "lmstudio"})
# Their caches are written only on request, and this program doesn't ask.
_CACHE_ON_REQUEST = frozenset({"anthropic", "aws", "google"})
_FIELDS = ("input", "output", "cached", "request")
_MILLION = 1_000_000
_ZERO = Decimal(0)

Quote = Decimal | int | str | float
"""A price as configured: US dollars per million tokens (``request``: per request)."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates of a call that reads more than ``above`` tokens; they hold for all of its tokens.

    Attributes:
        above: Tokens read.
        input: US dollars per token read.
        output: US dollars per token generated.
        cached: US dollars per token read from the server's cache.
    """

    above: int
    input: Decimal
    output: Decimal
    cached: Decimal


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs. Rates finer than 10^-15 dollars are rounded up.

    Attributes:
        input: US dollars per token read.
        output: US dollars per token generated, reasoning included.
        cached: US dollars per token read from the server's cache.
        request: US dollars per request.
        tiers: Other rates for calls that read more, smallest threshold first.
        source: Where it comes from, in words for the printed plan.
    """

    input: Decimal
    output: Decimal
    cached: Decimal
    request: Decimal = _ZERO
    tiers: tuple[Tier, ...] = ()
    source: str = ""

    def cost(self, usage: Usage) -> Decimal:
        """US dollars of one call. Cached tokens beyond those read are not believed."""
        rate: Price | Tier = self
        for tier in self.tiers:
            if usage.input > tier.above:
                rate = tier
        cached = min(usage.cached, usage.input)
        steps = (
            _steps(rate.input) * (usage.input - cached)
            + _steps(rate.cached) * cached
            + _steps(rate.output) * usage.output
            + _steps(self.request)
        )
        return to_dollars(steps)

    def worst(self, tokens_in: int, tokens_out: int, *, calls: int = 1) -> Decimal:
        """US dollars at most of calls that read and generate so much together.

        The highest rates of every tier that a call of this size could reach are taken, and no discount for
        cached tokens.

        Args:
            tokens_in: Tokens read at most, over all the calls.
            tokens_out: Tokens generated at most, over all the calls.
            calls: Requests.
        """
        if not self.tiers:
            each_in = max(_steps(self.input), _steps(self.cached))
            return to_dollars(each_in * tokens_in + _steps(self.output) * tokens_out + _steps(self.request) * calls)
        within = [Tier(0, self.input, self.output, self.cached)]
        within += [tier for tier in self.tiers if tokens_in > tier.above]
        read = max(max(tier.input, tier.cached) for tier in within)
        written = max(tier.output for tier in within)
        return to_dollars(_steps(read) * tokens_in + _steps(written) * tokens_out + _steps(self.request) * calls)


def price_of(
    model: str, overrides: Mapping[str, Mapping[str, Quote]] | None = None, *, at: datetime | None = None
) -> Price | None:
    """The price of a model, or None if it is unknown.

    Args:
        model: ``provider:model``.
        overrides: From the configuration: by ``provider:model`` or ``provider:*``, the US dollars per million
            tokens as ``input``, ``output`` and, if they differ, ``cached``; and per request as ``request``.
        at: When the calls are made; default now. Published prices change on dates.

    Raises:
        ConfigError: A configured price is incomplete or not a number.
    """
    provider, _, name = model.partition(":")
    for key in (model, f"{provider}:*"):
        if overrides and key in overrides:
            return _configured(key, overrides[key])
    if provider in IN_PROCESS:
        return Price(_ZERO, _ZERO, _ZERO, source="free: runs in this process")
    if on_this_machine(model):
        return Price(_ZERO, _ZERO, _ZERO, source="counted as free: a server on this machine")
    if provider in OWN_SERVERS:
        return Price(_ZERO, _ZERO, _ZERO, source=f"counted as free: a server of your own ({provider})")
    return _published(provider, name, at or datetime.now(UTC))


def require_price(model: str, price: Price | None, budget: Budget) -> None:
    """Refuse a budget of money for a model whose price is unknown.

    Raises:
        ConfigError: It is.
    """
    if price is None and budget.usd is not None:
        raise ConfigError(
            f"the price of {model} is unknown, so a budget of money can't be kept",
            value=f"{budget.usd} usd",
            advice=f'Set prices."{model}" in romanesco.toml (input and output, dollars per million tokens), '
            "or limit tokens with --tokens instead of money.",
        )


def require_prices(prices: Mapping[str, Price | None], bill: Bill, budget: Budget) -> None:
    """Refuse a limit of money where what a run spends may be unknown.

    A bill whose money is known is for models whose prices are. Another model, of a role that the topology does not
    have, is not asked; if it is after all, the call is refused.

    Raises:
        ConfigError: The price of a model is unknown.
    """
    if bill.lines and bill.usd is not None:
        return
    for name, price in prices.items():
        require_price(name, price, budget)


@lru_cache(maxsize=1024)
def _steps(rate: Decimal) -> int:
    return to_steps(rate, up=True)


def _each(dollars: Decimal, count: int = _MILLION) -> Decimal:
    """What one costs if so many cost so much, rounded up."""
    return to_dollars(-(-_steps(dollars) // count))


def _configured(key: str, quote: Mapping[str, Quote]) -> Price:
    known = ", ".join(_FIELDS)
    if not isinstance(quote, Mapping):
        raise ConfigError(
            f'prices."{key}" is not a table',
            value=repr(quote)[:80],
            limit=known,
            advice="Give input and output in US dollars per million tokens; 0 means free.",
        )
    for name in quote:
        if name not in _FIELDS:
            raise ConfigError(f'prices."{key}" has an unknown entry', value=name, limit=known, advice="Remove it.")
    missing = [name for name in ("input", "output") if name not in quote]
    if missing:
        raise ConfigError(
            f'prices."{key}" is incomplete',
            value=f"no {' and no '.join(missing)}",
            advice="Give input and output in US dollars per million tokens; 0 means free.",
        )
    try:
        rates = {name: money(quote[name], name=f'prices."{key}".{name}') for name in quote}
    except InputError as error:
        raise ConfigError(error.what, value=error.value, limit=error.limit, advice=error.advice) from None
    read = _each(rates["input"])
    return Price(
        input=read,
        output=_each(rates["output"]),
        cached=_each(rates["cached"]) if "cached" in rates else read,
        request=_each(rates.get("request", _ZERO), 1),
        source="romanesco.toml",
    )


def _published(provider: str, name: str, at: datetime) -> Price | None:
    from genai_prices.data_snapshot import (
        get_snapshot,
    )  # 0.3 s at import: only when a price is really looked up

    if not name:
        return None
    try:
        found, info = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    candidates = [_flat(price, asks=found.id in _CACHE_ON_REQUEST) for price in _in_force(info, at)]
    prices = [price for price in candidates if price is not None]
    if not prices or len(prices) < len(candidates):
        return None
    return prices[0] if len(prices) == 1 else _highest(prices)


def _in_force(info: ModelInfo, at: datetime) -> list[ModelPrice]:
    """Every published price that may apply within a day of ``at``, whatever the hour."""
    from genai_prices.types import ModelPrice, StartDateConstraint

    if isinstance(info.prices, ModelPrice):
        return [info.prices]
    reachable = []
    for entry in reversed(info.prices):
        start = entry.constraint
        if isinstance(start, StartDateConstraint) and not start.active(at + timedelta(days=1)):
            continue
        reachable.append(entry.prices)
        if start is None or (isinstance(start, StartDateConstraint) and start.active(at)):
            return reachable
    return [*reachable, info.prices[0].prices]  # the table's rule where no condition holds


def _flat(published: ModelPrice, *, asks: bool) -> Price | None:
    """One published price in our form, or None if it leaves out what a chat costs."""
    from genai_prices.types import TieredPrices

    names = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "output_reasoning_mtok")
    table = {key: getattr(published, key) for key in (*names, "requests_kcount")}
    unbounded = published.output_citation_mtok is not None  # such tokens are not in the reported usage
    if table["input_mtok"] is None or table["output_mtok"] is None or unbounded:
        return None
    starts = sorted({t.start for value in table.values() if isinstance(value, TieredPrices) for t in value.tiers})

    def rate(key: str, tokens: int) -> Decimal | None:
        value = table[key]
        if isinstance(value, TieredPrices):
            reached = [tier.price for tier in value.tiers if tier.start <= tokens]
            return reached[-1] if reached else value.base
        result: Decimal | None = value
        return result

    def tier(above: int) -> Tier:
        plain = rate("input_mtok", above) or _ZERO
        written = None if asks else rate("cache_write_mtok", above)
        reasoning = rate("output_reasoning_mtok", above)
        cached = rate("cache_read_mtok", above)
        return Tier(
            above=above,
            input=_each(max(plain, written or _ZERO)),
            output=_each(max(rate("output_mtok", above) or _ZERO, reasoning or _ZERO)),
            cached=_each(plain if cached is None else cached),
        )

    base = tier(-1)
    return Price(
        input=base.input,
        output=base.output,
        cached=base.cached,
        request=_each(rate("requests_kcount", -1) or _ZERO, 1000),
        tiers=tuple(tier(start) for start in starts),
        source="published (genai-prices)",
    )


def _highest(prices: list[Price]) -> Price:
    """A price that is at least each of these, for calls of any size."""
    starts = sorted({tier.above for price in prices for tier in price.tiers})

    def at(price: Price, tokens: int) -> Tier:
        reached = [tier for tier in price.tiers if tier.above <= tokens]
        return reached[-1] if reached else Tier(-1, price.input, price.output, price.cached)

    def top(above: int) -> Tier:
        rates = [at(price, above) for price in prices]
        return Tier(
            above,
            input=max(rate.input for rate in rates),
            output=max(rate.output for rate in rates),
            cached=max(rate.cached for rate in rates),
        )

    base = top(-1)
    return Price(
        input=base.input,
        output=base.output,
        cached=base.cached,
        request=max(price.request for price in prices),
        tiers=tuple(top(start) for start in starts),
        source=prices[0].source,
    )
