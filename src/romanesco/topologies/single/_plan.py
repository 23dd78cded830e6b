"""Planning one call: the window, the sources that fit beside the goal, and the bill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from romanesco.errors import PlanRefused
from romanesco.personas import split
from romanesco.task import Plan, Task
from romanesco.topologies._billing import bound, excess, make_bill, readable, room, shown, without_pools
from romanesco.topologies.single import _params as p
from romanesco.topologies.single._request import build_request, show_sources

if TYPE_CHECKING:
    from romanesco.runtime import PlanningDesk

NAME = "single"
ANSWER = "answer"
"""The bill's line."""
_SHORTEST = 80


async def make_plan(task: Task, desk: PlanningDesk) -> Plan:
    """Plan the call.

    Raises:
        InputError: A parameter is wrong.
        PlanRefused: The goal does not fit the window, or the budget can't carry the call.
        ConfigError: A money limit with an unknown price.
    """
    params = p.parse_params(task.params)
    model = desk.model(p.ROLE)
    known = await desk.window(model)
    window = p.UNKNOWN_WINDOW if known is None else known
    cap = params.answer_tokens or max(1, min(p.ANSWER_MAX, window // p.ANSWER_SHARE))
    params = replace(params, answer_tokens=cap)
    chars = await _source_chars(task, desk, model, window, params)
    params = replace(params, source_chars=chars)
    request = build_request(model, task.goal, show_sources(task.sources, chars), params)
    bill = make_bill([await bound(desk, request, (), purpose=ANSWER)])
    over = excess(without_pools(bill), desk.budget)
    if over:
        dimension, value, limit = over[0]
        account = desk.account(dimension)
        whose = f"What the account {account} has left" if account else "The budget"
        raise PlanRefused(
            f"{whose} is smaller than the bill of one call ({dimension})",
            value=shown(dimension, limit),
            limit=f"at least {shown(dimension, value)}",
            advice="Raise the limit, or lower answer_tokens.",
        )
    fits = not excess(bill, desk.budget)
    reasons = [f"One call to {model}, answer of at most {cap:,} tokens."]
    if not fits:
        reasons.append("The budget carries the call, but not every repair and retry of the bill.")
    if known is None:
        reasons.append(f"The window of {model} is unknown; planned for {window:,} tokens.")
    if chars:
        covered = split(task.sources, [p.ROLE], budget_chars=chars).text_coverage or 0.0
        reasons.append(f"Sources: {covered:.0%} of the text is shown.")
    return Plan(NAME, bill, params.to_json(), tuple(reasons), fits=fits)


async def _source_chars(task: Task, desk: PlanningDesk, model: str, window: int, params: p.Params) -> int:
    """Characters of the sources that fit beside the goal and the answer."""
    bare = build_request(model, task.goal, "", params)
    fixed = room(bare, await desk.count(bare))
    over = fixed - window
    if over > 0:
        raise PlanRefused(
            f"Goal and answer are larger than the window of {model}",
            value=f"{fixed:,} tokens at most",
            limit=f"{window:,} tokens",
            advice=f"Shorten the goal by about {over:,} tokens, lower answer_tokens, or use a larger window.",
        )
    if not any(source.text.strip() for source in task.sources):
        return 0
    chars = readable(task.sources, window)
    while chars >= _SHORTEST:
        text = show_sources(task.sources, chars)
        request = build_request(model, task.goal, text, params)
        needs = room(request, await desk.count(request))
        if needs <= window:
            return chars
        share = (window - fixed) / max(1, needs - fixed)
        chars = int(min(chars - 1, len(text) * share * 0.97))
    raise PlanRefused(
        "The window leaves no room for the sources beside goal and answer",
        value=f"{fixed:,} tokens without them",
        limit=f"{window:,} tokens",
        advice="Lower answer_tokens, shorten the goal, or leave the sources out.",
    )
