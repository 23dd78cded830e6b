"""``run``, ``plan``, ``resume`` and ``replay``."""

from __future__ import annotations

from typing import Annotated

import typer

from romanesco.interfaces.cli import _options as o
from romanesco.interfaces.cli._wait import wait_for

Events = Annotated[bool, typer.Option("--events", help="Print what happens as JSON lines, the outcome last.")]
Resend = Annotated[
    bool,
    typer.Option("--resend", help="Let the bill carry calls that were in flight at a kill once more."),
]
NewId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="An id for the run; default: made up.", show_default=False)
]


def run(
    goal: o.Goal = None,
    goal_file: o.GoalFile = None,
    model: o.Model = None,
    topology: o.Topology = None,
    tokens: o.Tokens = None,
    usd: o.Usd = None,
    minutes: o.Minutes = None,
    calls: o.Calls = None,
    k: o.K = None,
    rounds: o.Rounds = None,
    param: o.Param = None,
    source: o.SourceFiles = None,
    personas: o.Personas = None,
    project: o.Project = None,
    id: NewId = None,
    json: o.Json = False,
    events: Events = False,
    quiet: o.Quiet = False,
) -> int:
    """Work on a goal.

    The bill is printed before the run starts, what happens while it happens, the answer at the end. Ctrl-C once ends
    the run in good order, twice at once.
    """
    from romanesco.interfaces.cli._drive import Show, run_goal

    limits = o.Limits(tokens, usd, minutes, calls)
    request = o.Request(
        o.read_goal(goal, goal_file), model, topology, limits, k, rounds, param, source, personas, project, id
    )
    return wait_for(run_goal(request, Show(json=json, events=events, quiet=quiet)))


def plan(
    goal: o.Goal = None,
    goal_file: o.GoalFile = None,
    model: o.Model = None,
    topology: o.Topology = None,
    tokens: o.Tokens = None,
    usd: o.Usd = None,
    minutes: o.Minutes = None,
    calls: o.Calls = None,
    k: o.K = None,
    rounds: o.Rounds = None,
    param: o.Param = None,
    source: o.SourceFiles = None,
    personas: o.Personas = None,
    project: o.Project = None,
    json: o.Json = False,
) -> int:
    """Show what a run would do and cost at worst; spends nothing."""
    from romanesco.interfaces.cli._drive import plan_goal

    limits = o.Limits(tokens, usd, minutes, calls)
    request = o.Request(
        o.read_goal(goal, goal_file), model, topology, limits, k, rounds, param, source, personas, project
    )
    return wait_for(plan_goal(request, json=json))


def resume(
    run: o.RunName,
    tokens: o.Tokens = None,
    usd: o.Usd = None,
    minutes: o.Minutes = None,
    calls: o.Calls = None,
    resend: Resend = False,
    json: o.Json = False,
    events: Events = False,
    quiet: o.Quiet = False,
) -> int:
    """Go on with a run where it stopped.

    Finished calls are not made again. Limits given here take the place of the run's.
    """
    from romanesco.interfaces.cli._drive import Show, resume_run

    limits = o.Limits(tokens, usd, minutes, calls)
    return wait_for(resume_run(run, limits, Show(json=json, events=events, quiet=quiet), resend=resend))


def replay(run: o.RunName, json: o.Json = False, quiet: o.Quiet = False) -> int:
    """Run a run again from its journal, without any call.

    Nothing is written. Exit status 9 if it does not come out as it did.
    """
    from romanesco.interfaces.cli._drive import replay_run

    return wait_for(replay_run(run, json=json, quiet=quiet))
