"""Asking the one agent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from romanesco.errors import BudgetExceeded, ModelError, Refused, StopReason
from romanesco.models._types import FinishReason, ModelReply
from romanesco.task import Outcome, Status, Task
from romanesco.topologies.single._params import ROLE, params_from_json
from romanesco.topologies.single._plan import ANSWER, NAME
from romanesco.topologies.single._request import build_request, show_sources

if TYPE_CHECKING:
    from romanesco.runtime import Scope


async def answer(task: Task, scope: Scope) -> Outcome:
    """One call; its failure or refusal is the outcome."""
    params = params_from_json(scope.plan.params)
    sources = show_sources(task.sources, params.source_chars)
    request = build_request(scope.model(ROLE), task.goal, sources, params)
    try:
        if request.output is None:
            reply = await scope.call(request, key=ANSWER, role=ROLE, purpose=ANSWER)
            text, cut = reply.text.strip(), reply.finish is FinishReason.LENGTH
        else:
            found = await scope.call_structured(request, key=ANSWER, role=ROLE, purpose=ANSWER)
            reply, cut = found.reply, found.truncated
            text = json.dumps(found.value, ensure_ascii=False)
    except (BudgetExceeded, ModelError, Refused) as error:
        failed = _outcome(scope, Status.FAILED, error.reason, note=str(error))
        if isinstance(error, BudgetExceeded):
            failed = replace(failed, dimension=error.dimension, account=error.account)
        return failed
    if not text:
        return _outcome(scope, Status.FAILED, StopReason.MODEL, note="The model's answer was empty.", reply=reply)
    text = str((await scope.hook("after_synthesis", {"answer": text}))["answer"])
    if cut:
        cap = params.answer_tokens
        note = f"The answer was cut at the output cap of {cap:,} tokens; raise it with answer_tokens."
        return _outcome(scope, Status.PARTIAL, StopReason.LENGTH, text, note, reply)
    return _outcome(scope, Status.COMPLETED, StopReason.COMPLETED, text, reply=reply)


def _outcome(
    scope: Scope,
    status: Status,
    reason: StopReason,
    text: str = "",
    note: str = "",
    reply: ModelReply | None = None,
) -> Outcome:
    models = {ROLE: reply.model or scope.model(ROLE)} if reply else {}
    return Outcome(
        status=status,
        reason=reason,
        answer=text,
        note=note,
        topology=NAME,
        bill=scope.plan.bill,
        models=models,
    )
