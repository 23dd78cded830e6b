"""Drives runs for the command line: plan, start or resume, show what happens, print what came of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from romanesco._codec import to_json
from romanesco._prepare import open_parts
from romanesco._run import Run
from romanesco.errors import EXIT_CODES, StopReason
from romanesco.interfaces.cli._bill import other_limits, plan_data, plan_parts
from romanesco.interfaces.cli._ending import Refusal, cut_by, ending_parts
from romanesco.interfaces.cli._outcome import outcome_parts
from romanesco.interfaces.cli._painter import JsonLinesPainter, LinePainter, LivePainter, Painter, write_line
from romanesco.interfaces.cli._read import find_run, load_record
from romanesco.interfaces.cli._screen import Screen, plain
from romanesco.interfaces.cli._signals import Interrupts
from romanesco.interfaces.cli._view import View
from romanesco.runtime import RunEvent, plan_run, read_events, start
from romanesco.runtime import replay as open_replay
from romanesco.runtime import resume as open_resume
from romanesco.task import Outcome, Status

if TYPE_CHECKING:
    from romanesco.interfaces.cli._options import Limits, Request
    from romanesco.runtime import Session


@dataclass(frozen=True, slots=True)
class Show:
    """What is printed, and how."""

    json: bool = False
    events: bool = False
    quiet: bool = False

    def screen(self) -> Screen:
        """Where it is printed."""
        return Screen(json=self.json, quiet=self.quiet)


async def plan_goal(request: Request, *, json: bool) -> int:
    """Plan a goal and print the plan."""
    screen = Screen(json=json)
    config = request.config()
    spec = request.spec(config)
    async with open_parts(config) as parts:
        plan = await plan_run(spec, parts)
    screen.result(
        lambda: plan_data(plan, spec.budget, spec.models),
        lambda: plan_parts(plan, spec.budget, spec.models, other_limits(spec)),
    )
    return 0


async def run_goal(request: Request, show: Show) -> int:
    """Work on a goal and print the outcome."""
    screen = show.screen()
    config = request.config()
    spec = request.spec(config)
    async with open_parts(config) as parts:
        plan = await plan_run(spec, parts)
        for part in plan_parts(plan, spec.budget, spec.models, other_limits(spec)):
            screen.say(part)
        session = await start(spec, parts, plan)
        view = View(spec.run, plan, spec.budget)
        screen.say(plain(("\nrun ", "dim"), (spec.run, "bold"), (" starts", "dim")))
        return report(await follow(session, view, screen, show), view, screen, show)


async def resume_run(name: str, limits: Limits, show: Show, *, resend: bool) -> int:
    """Go on with a run and print the outcome."""
    from romanesco._config import load_config

    screen = show.screen()
    changes = tuple((key, value) for key, value in to_json(limits.budget()).items() if value is not None)
    async with open_parts(load_config()) as parts:
        run = await find_run(parts.store, name)
        session = await open_resume(run, parts, changes, resend=resend)
        view = View(run, session.plan, session.spec.budget)
        for seq, kind, node, key, data in await read_events(parts.store, run):
            view.take(RunEvent(kind, node, key, data, seq))
        view.session_over()
        if view.status == Status.COMPLETED:
            screen.say(f"The run {run} is completed; nothing is left to do.")
        else:
            spent = f"{view.calls:,} calls and {view.tokens:,} tokens so far"
            screen.say(plain(("run ", "dim"), (run, "bold"), f" goes on: {spent}"))
            if resend:
                screen.say(raise_text(session))
        return report(await follow(session, view, screen, show), view, screen, show)


def raise_text(session: Session) -> str:
    """What a resume added to the bill for calls in doubt, before its first token."""
    raised, bill = session.raised, session.plan.bill
    if raised is None:
        return "no call is in doubt that the bill does not carry: it stays as it is"
    more = f"{raised.calls} calls and {raised.tokens_in + raised.tokens_out:,} tokens more"
    return f"the bill carries the calls in doubt again, {more}: now {bill.calls} calls, {bill.tokens:,} tokens"


async def replay_run(name: str, *, json: bool, quiet: bool) -> int:
    """Run a run again from its journal, and say whether it comes out as it did."""
    from romanesco._config import load_config

    screen = Screen(json=json, quiet=quiet)
    async with open_parts(load_config(), read_only=True) as parts:
        run = await find_run(parts.store, name)
        record = await load_record(parts.store, run)
        outcome = await (await open_replay(run, parts)).drive()
    same = record.ended and _essence(outcome) == _essence(record.outcome)
    if json:
        screen.document({"same": same, "recorded": record.status, "outcome": to_json(outcome)})
    else:
        print_outcome(outcome, screen, record.refusal)
    if same:
        screen.say("The replay gives the recorded outcome; no call was made.")
        return 0
    screen.say(f"The replay gives another outcome than the recorded one ({record.status}); no call was made.")
    return EXIT_CODES[StopReason.DIVERGED]


def _essence(outcome: Outcome) -> object:
    """What a replay must give again: all but where it is kept and how long it took."""
    return (outcome.status, outcome.reason, outcome.answer, outcome.note, to_json(outcome.deliberation))


async def follow(session: Session, view: View, screen: Screen, show: Show) -> Outcome:
    """Drive a run to its end and show what happens on the way."""
    painter: Painter
    if show.events:
        painter = JsonLinesPainter(screen)
    elif screen.live:
        painter = LivePainter(screen, view, lambda: session.spend().seconds)
    else:
        painter = LinePainter(screen)
    going = Run(session)
    try:
        with Interrupts(going.id, going.stop, painter.note):
            await painter.start()
            async for event in going.events():
                painter.see(event, view)
                view.take(event)
            return await going.outcome()
    finally:
        await painter.finish()
        await going.close()


def report(outcome: Outcome, view: View, screen: Screen, show: Show) -> int:
    """Print an outcome; gives the exit status."""
    if show.events:
        write_line({"kind": "outcome", "data": to_json(outcome)})
    elif screen.json:
        screen.document(to_json(outcome))
    else:
        print_outcome(outcome, screen, cut_by(outcome, view.refusals))
    return EXIT_CODES[outcome.reason]


def print_outcome(outcome: Outcome, screen: Screen, refusal: Refusal | None) -> None:
    """Print an outcome for a reader: all of it, or the answer alone. What is cut short is always labelled."""
    if not screen.quiet:
        screen.say("")
        for part in outcome_parts(outcome, refusal):
            screen.show(part)
        return
    with contextlib.suppress(OSError):  # nobody reads it: the exit status still tells
        for part in ending_parts(outcome, refusal):
            screen.err.print(part, soft_wrap=True)
    if outcome.answer:
        screen.text(outcome.answer)
