"""One attempt of a call: its slot, its two events, its one request, and its settlement.

Every attempt stands in the journal before its request is sent, and its result before anybody uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from romanesco.budget import Amount, Price, Reservation
from romanesco.errors import (
    BudgetExceeded,
    JournalError,
    JournalUnwritable,
    ModelError,
    RateLimited,
    RomanescoError,
)
from romanesco.models import CallContext, ChatModel, FinishReason, ModelReply, ModelRequest, Usage, current_call
from romanesco.runtime._codec import reply_data, request_data, timing_data, usage_data
from romanesco.runtime._context import RunContext
from romanesco.runtime._feed import RunEvent
from romanesco.runtime._overruns import call_overruns
from romanesco.runtime._retry import LONGEST_WAIT, asked_pause, costs_nothing

NO_USAGE = Usage(input=0, output=0)
ONE_CALL = Amount(calls=1)

MOST_TOKENS = 10**12
"""A report of more is nonsense: it counts as no report."""

BYTES_A_TOKEN = 8
"""Text that is longer than this many bytes for each token of the cap did not keep to the cap."""

INCREDIBLE = 32
"""Text that is longer than this many bytes for each token that a server reports was not so few tokens."""

LONGEST_TOKEN = 128
MOST_DOUBTED = 512
"""A prompt was not read in fewer tokens than one for so many bytes, up to so many tokens. The longest tokens of public
vocabularies, runs of one character, have that length; text has 3 to 10 bytes a token. A server may cut a prompt to its
window, which is larger than so many tokens. So an honest report is believed, also of the oddest prompt."""

KEPT = 32
"""Of a reply so many characters are kept for each token of its cap, and ..."""

KEPT_AT_LEAST = 4096
"""... so many in any case. A server that ignores the cap must not fill the journal, or stall all that reads it. The
client for servers stops reading there by itself; this holds for every other adapter."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """One logical call: who asks what, charged to which line.

    Attributes:
        node: Path of the node.
        key: The step's key.
        role: Who asks.
        line: Line of the bill.
        request: What to ask.
        fingerprint: Digest of what the topology asked.
        asked: Journal position at which the topology asked.
    """

    node: str
    key: str
    role: str
    line: str
    request: ModelRequest
    fingerprint: str
    asked: int


@dataclass(slots=True)
class Attempt:
    """One attempt while it is made.

    Attributes:
        number: 1, 2, 3, ... within the step, over all resumes.
        reserved: Its worst case.
        reservations: What holds it: one, or one for the tokens and one for the call. Empty once settled.
        price: The model's price.
        line: Line of the bill that its tokens are charged to.
        call_line: Line of the bill that its call is charged to.
        sent: Whether its request may have left.
        started: Whether it stands in the journal.
        queued: Seconds that it waited for a slot.
        reported: Whether the usage is the server's word where it is more than was reserved.
    """

    number: int
    reserved: Amount
    reservations: tuple[Reservation, ...]
    price: Price | None
    line: str
    call_line: str
    sent: bool = False
    started: bool = False
    queued: float = 0.0
    reported: bool = False

    def cost(self, usage: Usage) -> Decimal | None:
        """Money for a usage, or None where the price is unknown. What used nothing cost nothing."""
        if usage is NO_USAGE:
            return Decimal(0)
        return None if self.price is None else self.price.cost(usage)

    def worst(self) -> Usage:
        """The upper bound, for an attempt whose server did not say what it used."""
        return Usage(input=self.reserved.tokens_in, output=self.reserved.tokens_out, estimated=True)


async def attempt_once(run: RunContext, step: CallStep, model: ChatModel, attempt: Attempt) -> ModelReply:
    """One attempt: its slot, its two events, its request, its settlement."""
    limiter = run.limiters.of(model.endpoint, run.spec.concurrency)
    asked_at = run.clock()
    try:
        await limiter.acquire()
    except BaseException:
        settle(run, attempt, NO_USAGE, calls=0)
        raise
    attempt.queued = run.clock() - asked_at
    try:
        _check_budget(run, attempt)
    except BudgetExceeded:
        limiter.release()
        settle(run, attempt, NO_USAGE, calls=0)
        raise
    try:
        reply = await _send(run, step, model, attempt)
    except ModelError as error:
        if isinstance(error, RateLimited):
            asked = asked_pause(error)
            limiter.limited(asked if asked <= LONGEST_WAIT else 0.0)
        await _failed(run, step, attempt, error)
        raise
    except BaseException as error:
        # Cancelled, or stopped: what was sent may have been paid for, and the journal says so.
        _interrupted(run, step, attempt, error)
        raise
    finally:
        limiter.release()
    limiter.succeeded()
    return reply


def _check_budget(run: RunContext, attempt: Attempt) -> None:
    """Refuse to use what was reserved before a limit was lowered or an account was stopped.

    Raises:
        BudgetExceeded: That is so.
    """
    for held in attempt.reservations:
        fault = run.ledger.passed(held)
        if fault is not None:
            raise fault


async def _send(run: RunContext, step: CallStep, model: ChatModel, attempt: Attempt) -> ModelReply:
    started = run.journal.append(
        "call.started",
        node=step.node,
        key=step.key,
        data={
            "line": attempt.line,
            "call_line": attempt.call_line,
            "purpose": step.line,
            "role": step.role,
            "model": step.request.model,
            "attempt": attempt.number,
            "again": run.memo.interrupted(step.node, step.key),
            "asked": step.asked,
            "fingerprint": step.fingerprint,
            "request": request_data(step.request),
            "reserved": _amount_data(attempt),
            "elapsed": round(run.stopwatch.elapsed, 3),
        },
    )
    attempt.started = True
    await started
    del started  # it holds the whole prompt, and the reply may take minutes
    run.stops.check(step.node)  # nothing is awaited between these checks and the request
    _check_budget(run, attempt)
    attempt.sent = True
    reply = await _complete(run, step, model)
    usage = _believed(reply.usage, attempt, arrived=_arrived(reply), floor=_least_read(step.request))
    reply = _kept(reply, KEPT * step.request.max_output_tokens + KEPT_AT_LEAST)
    reply = replace(reply, usage=usage, timing=replace(reply.timing, queue=attempt.queued))
    finished = _record_reply(run, step, attempt, reply, usage)
    await _settle_on_record(run, step, attempt, usage, finished, calls=1)
    return reply


def _record_reply(run: RunContext, step: CallStep, attempt: Attempt, reply: ModelReply, usage: Usage) -> Awaitable[Any]:
    """Journal a reply.

    Raises:
        ModelError: The reply holds what JSON can't; that is the adapter's fault, and it has been paid for.
    """
    data = {**_end_data(run, attempt, usage), "reply": reply_data(reply), "timing": timing_data(reply.timing)}
    try:
        return run.journal.append("call.finished", node=step.node, key=step.key, data=data)
    except JournalUnwritable:
        raise
    except JournalError as error:
        fault = ModelError(f"A reply of {step.request.model} can't be kept: {error.what}")
        fault.usage = usage
        raise fault from error


async def _complete(run: RunContext, step: CallStep, model: ChatModel) -> ModelReply:
    """Ask the adapter; an error of its own that is none of ours becomes one."""
    token = current_call.set(CallContext(role=step.role, key=step.key, node=step.node))
    try:
        return await model.complete(step.request, on_token=_notice(run, step))
    except RomanescoError:
        raise
    except Exception as fault:
        # Its text is logged and not journaled: nobody knows what an adapter's own errors hold.
        logging.getLogger("romanesco").error("The adapter of %s failed", step.request.model, exc_info=fault)
        raise ModelError(
            f"The adapter of {step.request.model} failed with {type(fault).__name__}",
            advice="This is a fault of the adapter, not of your input; --debug shows where.",
        ) from fault
    finally:
        current_call.reset(token)


def _believed(usage: Usage | None, attempt: Attempt, *, arrived: int = 0, floor: int = 0) -> Usage:
    """What counts as used: what the server reported; where that can't be all, no less than the upper bound.

    It can't be all where nothing or far too little is reported for what was read, or nothing for what was generated
    beside text, or far less than the text that arrived. Such a server may also have ignored the cap: what arrived is
    then the bound, a token a byte.

    Args:
        usage: What was reported, if anything.
        attempt: What was reserved.
        arrived: Bytes of text that were generated.
        floor: Tokens that the prompt has at least.
    """
    if usage is None:
        usage = Usage(input=0, output=0)
    read, wrote = (count if 0 < count <= MOST_TOKENS else 0 for count in (usage.input, usage.output))
    doubtful = usage.estimated or max(usage.input, usage.output) > MOST_TOKENS
    worst = attempt.worst()
    attempt.reported = read > worst.input or wrote > worst.output
    whole = read > 0 and read + usage.cached >= floor  # some servers count what they read from a cache apart
    if whole and arrived <= wrote * INCREDIBLE and (wrote or not doubtful):
        return replace(usage, input=read, output=wrote, estimated=doubtful)
    bound = worst.output if arrived <= worst.output * BYTES_A_TOKEN else arrived
    return replace(usage, input=max(worst.input, read), output=max(bound, wrote), estimated=True)


def _least_read(request: ModelRequest) -> int:
    """Tokens that no server reads less than: of the last message, without blanks.

    Templates trim blanks and leave out old reasoning, and a server whose window is too small drops old messages.
    """
    words = "".join(request.messages[-1].content.split()) if request.messages else ""
    return min(len(words.encode("utf-8", "replace")) // LONGEST_TOKEN, MOST_DOUBTED)


def _arrived(reply: ModelReply) -> int:
    """Bytes of text that were generated; the adapter says how many where it did not keep all of them."""
    return max(reply.received, sum(len(text.encode("utf-8", "replace")) for text in _texts(reply)))


def _kept(reply: ModelReply, most: int) -> ModelReply:
    """A reply of which no part is longer than so many characters; one whose answer had to be cut says so."""
    calls = tuple(
        replace(call, arguments=call.arguments[:most]) if len(call.arguments) > most else call
        for call in reply.tool_calls
    )
    if len(reply.reasoning) > most:
        reply = replace(reply, reasoning=reply.reasoning[:most])  # the answer behind it may be whole
    if len(reply.text) <= most and calls == reply.tool_calls:
        return reply
    return replace(reply, text=reply.text[:most], tool_calls=calls, finish=FinishReason.LENGTH)


def _texts(reply: ModelReply) -> Iterator[str]:
    yield reply.text
    yield reply.reasoning
    for call in reply.tool_calls:
        yield call.arguments


async def _failed(run: RunContext, step: CallStep, attempt: Attempt, error: ModelError) -> None:
    if costs_nothing(error):
        usage = NO_USAGE
    else:
        usage = attempt.worst() if error.usage is None else _believed(error.usage, attempt)
    await _record_failure(run, step, attempt, error.code, str(error), usage, sent=error.sent)


def _interrupted(run: RunContext, step: CallStep, attempt: Attempt, error: BaseException) -> None:
    if not attempt.reservations:
        return  # settled: the reply had arrived
    usage = attempt.worst() if attempt.sent else NO_USAGE
    if attempt.started and not run.journal.broken:
        # In the journal's order before the stop's own event; awaiting it here could swallow the cancellation.
        _record_failure(run, step, attempt, "interrupted", type(error).__name__, usage, sent=attempt.sent)
    else:
        settle(run, attempt, usage, calls=1 if attempt.sent else 0)


def _record_failure(
    run: RunContext, step: CallStep, attempt: Attempt, code: str, message: str, usage: Usage, *, sent: bool
) -> Awaitable[Any]:
    written = run.journal.append(
        "call.failed",
        node=step.node,
        key=step.key,
        data={**_end_data(run, attempt, usage), "error": code, "message": message, "sent": sent},
    )
    return _settle_on_record(run, step, attempt, usage, written, calls=1 if sent else 0)


def _settle_on_record(
    run: RunContext, step: CallStep, attempt: Attempt, usage: Usage, written: Awaitable[Any], *, calls: int
) -> Awaitable[Any]:
    """Settle an attempt whose end is on its way into the journal, and put what was overrun behind it.

    Nothing is awaited here: whatever interrupts the wait for what this gives, the events are on their way and the money
    is counted.

    Returns:
        To await until the attempt's end is durable, and with it the overrun if there was one.
    """
    overran = settle(run, attempt, usage, calls=calls)
    if not overran:
        return written
    run.overruns.extend(call_overruns(step.node, step.key, overran))
    return run.journal.append("budget.overrun", node=step.node, key=step.key, data={"accounts": overran})


def settle(run: RunContext, attempt: Attempt, usage: Usage, *, calls: int) -> list[dict[str, Any]]:
    """Replace what was reserved by what was used; gives the accounts that the server overran."""
    cost = attempt.cost(usage)
    if calls or usage is not NO_USAGE:
        run.spent.add(usage_data(usage), None if cost is None else str(cost), calls=calls)
    actual = Amount(
        tokens_in=usage.input, tokens_out=usage.output, calls=calls, usd=Decimal(0) if cost is None else cost
    )
    parts = (actual,) if len(attempt.reservations) == 1 else (replace(actual, calls=0), Amount(calls=calls))
    reservations, attempt.reservations = attempt.reservations, ()
    overran: list[dict[str, Any]] = []
    for reservation, part in zip(reservations, parts, strict=True):
        overruns = run.ledger.settle(reservation, part, reported=attempt.reported)
        overran.extend({**asdict(overrun), "by": str(overrun.by)} for overrun in overruns)
    return overran


def _amount_data(attempt: Attempt) -> dict[str, Any]:
    amount = attempt.reserved
    usd = None if attempt.price is None else str(amount.usd)
    return {"tokens_in": amount.tokens_in, "tokens_out": amount.tokens_out, "usd": usd}


def _end_data(run: RunContext, attempt: Attempt, usage: Usage) -> dict[str, Any]:
    """What both ends of an attempt, the good and the bad, have on record."""
    cost = attempt.cost(usage)
    return {
        "line": attempt.line,
        "call_line": attempt.call_line,
        "attempt": attempt.number,
        "usage": usage_data(usage),
        "usd": None if cost is None else str(cost),
        "elapsed": round(run.stopwatch.elapsed, 3),
    }


def _notice(run: RunContext, step: CallStep) -> Callable[[str], None] | None:
    """A callback that shows arriving text to the watchers, or None when nobody watches."""
    if not run.feed.watched:
        return None

    def on_token(piece: str) -> None:
        run.feed.publish(RunEvent("token", step.node, step.key, {"role": step.role, "text": piece}))

    return on_token
