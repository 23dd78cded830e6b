"""The one choke point for model calls: reserve, attempt, and try again if that helps.

Every attempt reserves its worst case before it starts. One attempt is at most one request at a server.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal

from romanesco.budget import Amount, Price, require_price
from romanesco.errors import BudgetExceeded, ModelError, RequestRejected
from romanesco.models import ChatModel, ModelReply, ModelRequest, first_rung, prepare
from romanesco.runtime._accounts import RETRY, WRAP_UP
from romanesco.runtime._context import RunContext
from romanesco.runtime._resend import ADVICE as RESEND
from romanesco.runtime._retry import Again, costs_nothing, decide
from romanesco.runtime._sending import NO_USAGE, ONE_CALL, Attempt, CallStep, attempt_once, settle


async def call_model(run: RunContext, step: CallStep) -> ModelReply:
    """Make a call, with as many attempts as the policy and the budget permit.

    Raises:
        BudgetExceeded: An account can't carry the first attempt.
        ModelError: The last attempt's error.
    """
    model = run.pool.get(step.request.model)
    asked = step.request
    step, tokens_in = await _put(step, asked, model)
    paid = unpaid = 0
    number = run.memo.attempts(step.node, step.key) + 1
    attempt = await _reserve(run, step, number, tokens_in)
    while True:
        try:
            return await attempt_once(run, step, model, attempt)
        except ModelError as error:
            if costs_nothing(error):
                unpaid += 1
            else:
                paid += 1
            again = decide(error, paid=paid, unpaid=unpaid, policy=run.spec.retry, jitter=run.jitter.random())
            if again is None:
                raise
            number += 1
            if asked.output is not None:  # the endpoint may have refused a rung meanwhile, to this call or another
                step, tokens_in = await _put(step, asked, model)
            if isinstance(error, RequestRejected) and not error.sent and attempt.call_line == step.line:
                # Another call was refused on this rung, so this one was not sent: its line has its worst case still.
                next_attempt: Attempt | None = await _reserve_own(run, step, number, tokens_in)
            else:
                next_attempt = await _reserve_again(run, step, number, tokens_in, again)
            if next_attempt is None:
                raise  # the bill's retry line is used up: this failure stands
            attempt = next_attempt
        try:
            await asyncio.sleep(again.delay)
        except BaseException:
            settle(run, attempt, NO_USAGE, calls=0)
            raise


async def _put(step: CallStep, asked: ModelRequest, model: ChatModel) -> tuple[CallStep, int]:
    """The step with its request on the strongest rung that the endpoint has now, and the tokens that it reads."""
    request = asked if asked.output is None else prepare(asked, first_rung(await model.capabilities()))
    return replace(step, request=request), (await model.count(request)).tokens


def _worst_case(run: RunContext, step: CallStep, tokens_in: int, *, calls: int = 0) -> tuple[Amount, Price | None]:
    price = run.prices[step.request.model]
    require_price(step.request.model, price, run.spec.budget)
    tokens_out = step.request.max_output_tokens
    usd = Decimal(0) if price is None else price.worst(tokens_in, tokens_out)
    return Amount(tokens_in=tokens_in, tokens_out=tokens_out, calls=calls, usd=usd), price


async def _reserve(run: RunContext, step: CallStep, number: int, tokens_in: int) -> Attempt:
    """Reserve the worst case of a session's first attempt, on the line that the step is charged to.

    If an earlier session made attempts, they were charged to that line: then this one is a retry, so that the line
    still has what the steps after this one need.
    """
    if number > 1:
        retry = await _reserve_again(run, step, number, tokens_in, Again(0.0, paid=True))
        if retry is not None:
            return retry
    return await _reserve_own(run, step, number, tokens_in)


async def _reserve_own(run: RunContext, step: CallStep, number: int, tokens_in: int) -> Attempt:
    """Reserve the worst case of an attempt on the line that the step is charged to."""
    amount, price = _worst_case(run, step, tokens_in, calls=1)
    line = run.accounts.line(step.line)
    try:
        accounts = (*run.accounts.member(step.node, step.role), *line)
        held = await run.ledger.acquire(accounts, amount, wrap_up=step.line == WRAP_UP)
    except BudgetExceeded as error:
        if run.memo.interrupted(step.node, step.key) and error.account in {account.name for account in line}:
            error.advice = RESEND
        raise
    return Attempt(number, amount, (held,), price, step.line, step.line)


async def _reserve_again(run: RunContext, step: CallStep, number: int, tokens_in: int, again: Again) -> Attempt | None:
    """Reserve the worst case of a further attempt, or None where the bill has no room for it.

    Its call comes from the retry line, and its tokens too if the attempt before may have been paid for. A 429
    gave its tokens back, so they are still on the step's own line.
    """
    tokens, price = _worst_case(run, step, tokens_in)
    wrap_up = step.line == WRAP_UP
    member = run.accounts.member(step.node, step.role)
    retry = run.accounts.line(RETRY)
    tokens_line = RETRY if again.paid or wrap_up else step.line
    try:
        # The call first and without waiting: nobody who holds tokens ever waits, so nobody waits for ever.
        call = run.ledger.reserve((*member, *retry), ONE_CALL, wrap_up=wrap_up)
    except BudgetExceeded:
        return None
    try:
        accounts = (*member, *run.accounts.line(tokens_line))
        held = await run.ledger.acquire(accounts, tokens, wrap_up=wrap_up)
    except BudgetExceeded:
        run.ledger.release(call)
        return None
    except BaseException:
        run.ledger.release(call)
        raise
    return Attempt(number, tokens + ONE_CALL, (held, call), price, tokens_line, RETRY)
