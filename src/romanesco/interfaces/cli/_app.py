"""The commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from romanesco._version import __version__
from romanesco.interfaces.cli import _check, _models, _run, _runs, _settings, _steer

EPILOG = """\
\b
romanesco run "Name three risks of moving our billing to usage-based prices"
romanesco run --goal-file goal.txt --source report.md --tokens 200000 --model openai:gpt-5-mini
romanesco show last

Exit status: 0 completed, 1 internal error, 2 wrong input, 3 budget, 4 deadline,
5 stopped, 6 model, 7 refused, 8 storage, 9 diverged, 10 verify found a violation,
11 answer cut at its cap, 130 interrupted, 141 nobody reads the output.

\b
RUN is a run's id, the start of one, or 'last'.
"""

app = typer.Typer(
    name="romanesco",
    help="Works on a goal with a team of language-model agents, inside a bill that is printed before the first token.",
    epilog=EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"romanesco {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _romanesco(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the trace of an error. May stand anywhere.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


for _command in (
    _run.run,
    _run.plan,
    _runs.runs,
    _runs.show,
    _runs.accounts,
    _run.resume,
    _steer.stop,
    _steer.answer,
    _steer.budget,
    _run.replay,
    _check.verify,
    _check.export,
    _models.models,
    _settings.config,
):
    app.command()(_command)
