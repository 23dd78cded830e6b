"""Worst cases: from the requests that a topology will make to the lines of its bill.

A request is built from the real prompt templates with a filler of one character for each text that is not known yet.
Counting it gives the fixed part; each unknown text adds its own bound. So no tokenizer is needed, and the sum holds
for whatever is generated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from romanesco.errors import ConfigError
from romanesco.models import ModelRequest, TokenCount, reask_overhead
from romanesco.task import Bill, BillLine, Budget, Source

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk

FILLER = "x"
"""Stands for a text that is not known yet."""
BYTES_PER_TOKEN = 6
"""A text that is inserted into another prompt is clipped to this many UTF-8 bytes for each token of its cap. English
has about 4.5 bytes a token."""
RETOKENISED = 11, 10
"""A generated text may have 11/10 of its tokens when the same model reads it again in another prompt, ..."""
RETOKENISED_EXTRA = 4
"""... plus this many tokens for its two seams."""
PIECE_WINDOW_BYTES = 3.5
"""A window is taken to hold this many bytes of a member's text a token: English has about 4.5. Texts of many tokens and
few bytes can overflow it, which costs the call; a bill never relies on it."""
WINDOW_BYTES = 2
"""Where an endpoint does not count tokens, a window is taken to hold this many bytes of text a token: English has 4.5,
Chinese 3, so it is on the safe side. A bill never relies on it; there one byte is one token."""
CHARS_PER_TOKEN = 32
"""No text that is worth reading has more characters a token than this: English has 4.5, an indented table maybe 10."""
REPAIR_SHARE, REPAIR_MIN = 4, 2
"""Repair pool: one re-ask for every so many structured calls, at least so many."""
RETRY_SHARE, RETRY_MIN = 4, 4
"""Retry pool: tokens for one re-sent attempt for every so many calls, at least so many. Requests it has one for every
call, because an attempt that was refused with 429 costs a request and no tokens."""
REPAIR, RETRY = "repair", "retry"


@dataclass(frozen=True, slots=True)
class CallBound:
    """The worst case of one call, without repairs and retries.

    Attributes:
        purpose: Line of the bill.
        model: Name of the model.
        tokens_in: Tokens read at most.
        tokens_out: Tokens generated at most.
        usd: Money at most, or None if the price is unknown.
        structured: Whether the reply has a schema.
        needs: Room in the model's window, prompt and reply.
        reask_in: Tokens read at most by a re-ask: the request, what was wrong, and a piece of the reply.
        reask_usd: Money at most for a re-ask of it, or None if the price is unknown.
    """

    purpose: str
    model: str
    tokens_in: int
    tokens_out: int
    usd: Decimal | None
    structured: bool
    needs: int
    reask_in: int
    reask_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that is not written yet and will stand in a prompt.

    Attributes:
        size: UTF-8 bytes at most: what it is clipped to.
        tokens: Tokens that its writer may generate in the call that it comes from, reasoning and slack included; None
            for a text that is put together from many calls.
        writer: Name of the model that writes it, or "" if there is not one.
    """

    size: int
    tokens: int | None = None
    writer: str = ""

    def most(self, reader: str, *, exact: bool) -> int:
        """Tokens at most that a model reads, whatever is written: one token a byte where nothing better is certain.

        Args:
            reader: Name of the model that reads it. Another model has another tokenizer.
            exact: Whether the reader's endpoint counts tokens exactly.
        """
        return min(self.size, self.again()) if exact and self.writer == reader else self.size

    def room(self, reader: str) -> int:
        """Tokens that it is taken to fill of the reader's window: an estimate for texts of 3.5 bytes a token."""
        by_size = math.ceil(self.size / PIECE_WINDOW_BYTES)
        return min(by_size, self.again()) if self.writer == reader else by_size

    def again(self) -> int:
        """Tokens at most when the model that wrote it reads it again, cut or not."""
        if self.tokens is None:
            return self.size
        times, of = RETOKENISED
        return -(-self.tokens * times // of) + RETOKENISED_EXTRA


def room(request: ModelRequest, count: TokenCount) -> int:
    """Room that a request needs in its model's window, the reply included."""
    prompt = count.tokens if count.exact else math.ceil(count.tokens / WINDOW_BYTES)
    return prompt + request.max_output_tokens


def readable(sources: Iterable[Source], window: int) -> int:
    """Characters of sources that may fit into a window: where the search for what does fit begins.

    Counting is for what can be shown. A source of many megabytes beside a small window would else be counted as a
    whole, only to be told that nearly all of it is too much.

    Args:
        sources: The sources, their names and markers allowed for.
        window: The model's window in tokens.
    """
    whole = sum(len(source.text) + 200 for source in sources)
    return min(whole, window * CHARS_PER_TOKEN)


async def bound(desk: PlanningDesk, request: ModelRequest, pieces: Sequence[Piece], *, purpose: str) -> CallBound:
    """The worst case of a request.

    Args:
        desk: Counts and knows prices.
        request: The request, with ``FILLER`` for each text that is not known yet.
        pieces: These texts.
        purpose: Line of the bill.
    """
    count = await desk.count(request)
    tokens_in = count.tokens + sum(piece.most(request.model, exact=count.exact) for piece in pieces)
    reask_in = tokens_in + reask_overhead(request)  # bytes: at least as many as tokens
    return CallBound(
        purpose=purpose,
        model=request.model,
        tokens_in=tokens_in,
        tokens_out=request.max_output_tokens,
        usd=_usd(desk, request.model, tokens_in, request.max_output_tokens),
        structured=request.output is not None,
        needs=room(request, count) + sum(piece.room(request.model) for piece in pieces),
        reask_in=reask_in,
        reask_usd=_usd(desk, request.model, reask_in, request.max_output_tokens),
    )


def make_bill(calls: Sequence[CallBound]) -> Bill:
    """A bill for calls that are each made at most once: their own lines, then the pools for repairs and retries.

    Plain calls draw on the repair pool too, since an empty reply is asked for again. Each call of a pool is priced as
    the dearest there is, dimension by dimension.
    """
    purposes = list(dict.fromkeys(call.purpose for call in calls))
    lines = [_line(purpose, [call for call in calls if call.purpose == purpose]) for purpose in purposes]
    # A re-ask reads the prompt again: it is never cheaper than the call itself, and may itself be re-sent.
    structured = sum(call.structured for call in calls)
    repairs = max(REPAIR_MIN, math.ceil(structured / REPAIR_SHARE))
    retries = max(RETRY_MIN, math.ceil((len(calls) + repairs) / RETRY_SHARE))
    tokens_in, tokens_out = max(call.reask_in for call in calls), max(call.tokens_out for call in calls)
    usd = _dearest(call.reask_usd for call in calls)
    for purpose, paid, requests in ((REPAIR, repairs, repairs), (RETRY, retries, max(retries, len(calls)))):
        cost = None if usd is None else usd * paid
        lines.append(BillLine(purpose, requests, tokens_in * paid, tokens_out * paid, cost))
    return Bill(tuple(lines))


def without_pools(bill: Bill) -> Bill:
    """The bill of a run in which nothing goes wrong: its own calls, without the pools for repairs and retries.

    A budget that carries this much is enough to begin with; one that carries less is refused.
    """
    return replace(bill, lines=tuple(line for line in bill.lines if line.purpose not in (REPAIR, RETRY)))


def excess(bill: Bill, budget: Budget) -> list[tuple[str, object, object]]:
    """In which dimensions a bill is larger than a budget: (dimension, the bill's value, the limit).

    Raises:
        ConfigError: There is a money limit and a price is unknown.
    """
    if budget.usd is not None and bill.usd is None:
        raise ConfigError(
            "A money limit needs a price and the model's price is unknown",
            value=f"{budget.usd} USD",
            advice="Set the price of the model in romanesco.toml, or limit tokens instead of money.",
        )
    pairs: list[tuple[str, int | Decimal | None, int | Decimal | None]] = [
        ("tokens", bill.tokens, budget.tokens),
        ("tokens_in", bill.tokens_in, budget.tokens_in),
        ("tokens_out", bill.tokens_out, budget.tokens_out),
        ("usd", bill.usd, budget.usd),
        ("calls", bill.calls, budget.calls),
        ("nodes", bill.nodes, budget.nodes),
    ]
    return [
        (name, value, limit)
        for name, value, limit in pairs
        if limit is not None and value is not None and value > limit
    ]


def shown(dimension: str, value: object) -> str:
    """A figure with its unit, for messages."""
    unit = {"usd": "USD", "calls": "calls", "nodes": "nodes"}.get(dimension, "tokens")
    side = {"tokens_in": " read", "tokens_out": " generated"}.get(dimension, "")
    number = f"{value:,}" if isinstance(value, int) else f"{value}"
    return f"{number} {unit}{side}"


def told_limit(desk: PlanningDesk, dimension: str, limit: object) -> str:
    """A limit of the desk's budget and whose it is, for messages."""
    account = desk.account(dimension)
    told = shown(dimension, limit)
    return f"the account {account} has {told} left" if account else f"the budget is {told}"


def _line(purpose: str, calls: Sequence[CallBound]) -> BillLine:
    usd = Decimal(0)
    known = True
    for call in calls:
        known = known and call.usd is not None
        usd += call.usd or 0
    return BillLine(
        purpose,
        len(calls),
        sum(call.tokens_in for call in calls),
        sum(call.tokens_out for call in calls),
        usd if known else None,
    )


def _dearest(values: Iterable[Decimal | None]) -> Decimal | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if len(known) == len(found) else None


def _usd(desk: PlanningDesk, model: str, tokens_in: int, tokens_out: int) -> Decimal | None:
    price = desk.price(model)
    return None if price is None else price.worst(tokens_in, tokens_out)
