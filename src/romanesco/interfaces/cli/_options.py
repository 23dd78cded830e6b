"""Options that several commands share, and how their values are read. Nothing heavy is imported here."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from romanesco.errors import InputError

if TYPE_CHECKING:
    from romanesco._config import Config
    from romanesco.runtime import RunSpec
    from romanesco.task import Budget

_ROLE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)=(.+)", re.DOTALL)
_ADVICE = "0 means that nothing may be spent; leave the option out for no limit."


def whole(option: str, advice: str = _ADVICE) -> Callable[[str], int]:
    """Reads a whole number, 0 or more."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = -1
        if number < 0:
            raise InputError(f"{option} is wrong", value=repr(text), limit="a whole number, 0 or more", advice=advice)
        return number

    return read


def dollars(text: str) -> Decimal:
    """Reads an amount of money, 0 or more."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number < 0:
        limit = "an amount in US dollars, 0 or more, such as 0.50"
        raise InputError("--usd is wrong", value=repr(text), limit=limit, advice=_ADVICE)
    return number


def minutes(text: str) -> float:
    """Reads a span of time in minutes, 0 or more; gives seconds."""
    try:
        number = float(text) * 60
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError("--minutes is wrong", value=repr(text), limit="a number, 0 or more", advice=_ADVICE)
    return number


def number(option: str) -> Callable[[str], int]:
    """Reads a whole number whose range the topology knows."""

    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise InputError(f"{option} is wrong", value=repr(text), limit="a whole number") from None

    return read


def limit_option(flag: str, what: str, read: Callable[[str], Any], metavar: str) -> Any:
    """An option for a limit."""
    return typer.Option(flag, parser=read, metavar=metavar, help=what, show_default=False)


Tokens = Annotated[int | None, limit_option("--tokens", "Tokens at most, in and out.", whole("--tokens"), "N")]
Usd = Annotated[Decimal | None, limit_option("--usd", "Dollars at most.", dollars, "AMOUNT")]
Minutes = Annotated[float | None, limit_option("--minutes", "Minutes at most.", minutes, "N")]
Calls = Annotated[int | None, limit_option("--calls", "Model calls at most.", whole("--calls"), "N")]

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer only.")]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the start of one, or 'last'.", show_default=False)
]

Goal = Annotated[
    str | None,
    typer.Argument(metavar="GOAL", help="What is wanted, in words; '-' reads it from stdin.", show_default=False),
]
GoalFile = Annotated[
    Path | None, typer.Option("--goal-file", metavar="FILE", help="Read the goal from a file.", show_default=False)
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="[ROLE=]MODEL",
        help="provider:model for all roles, or for one. Repeatable.",
        show_default=False,
    ),
]
Topology = Annotated[str | None, typer.Option(metavar="NAME", help="fractal (default) or single.", show_default=False)]
K = Annotated[
    int | None,
    typer.Option("--k", parser=number("--k"), metavar="N", help="Members that propose, 3 to 5.", show_default=False),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds", parser=number("--rounds"), metavar="N", help="Divergent rounds at most.", show_default=False
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="A parameter of the topology, as JSON or text. Repeatable.",
        show_default=False,
    ),
]
SourceFiles = Annotated[
    list[Path] | None,
    typer.Option("--source", "-s", metavar="FILE", help="A text to work from. Repeatable.", show_default=False),
]
Personas = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Personas of your own, as TOML.", show_default=False)
]
Project = Annotated[
    str | None, typer.Option(metavar="NAME", help="Charge the run to a project's account too.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits given on the command line; None was not given."""

    tokens: int | None = None
    usd: Decimal | None = None
    seconds: float | None = None
    calls: int | None = None

    def budget(self) -> Budget:
        """As a budget."""
        from romanesco.task import Budget

        return Budget(tokens=self.tokens, usd=self.usd, seconds=self.seconds, calls=self.calls)


@dataclass(frozen=True, slots=True)
class Request:
    """A run as asked for on the command line."""

    goal: str
    models: list[str] | None = None
    topology: str | None = None
    limits: Limits = field(default_factory=Limits)
    k: int | None = None
    rounds: int | None = None
    params: list[str] | None = None
    sources: list[Path] | None = None
    personas: Path | None = None
    project: str | None = None
    id: str | None = None

    def config(self) -> Config:
        """The configuration, with what the command line overrides."""
        from romanesco._config import load_config

        return load_config(overrides={"project.name": self.project})

    def spec(self, config: Config) -> RunSpec:
        """The run.

        Raises:
            InputError: A source, a model or a parameter can't be used.
        """
        from romanesco._prepare import make_spec, read_sources

        return make_spec(
            self.goal,
            config,
            models=read_models(self.models or []),
            topology=self.topology,
            budget=self.limits.budget(),
            sources=read_sources(self.sources or []),
            params=self._params(),
            run=self.id,
        )

    def _params(self) -> dict[str, Any]:
        given = {"k": self.k, "rounds": self.rounds, "personas": self.personas and str(self.personas)}
        params = {name: value for name, value in given.items() if value is not None}
        for name, value in read_params(self.params or []).items():
            if name in params:
                raise InputError(f"The parameter {name} is given twice", value=repr(value), advice="Give it once.")
            params[name] = value
        return params


def read_goal(goal: str | None, file: Path | None) -> str:
    """The goal from the argument, a file or stdin.

    Raises:
        InputError: There is none, there are two, or it is not text.
    """
    if goal not in (None, "-") and file is not None:
        raise InputError("The goal is given twice: as an argument and as a file", advice="Leave one out.")
    if file is not None:
        try:
            return _decoded(file.read_bytes(), str(file))
        except OSError as error:
            raise InputError(f"The goal can't be read: {error.strerror}", value=str(file)) from None
    if goal is None or goal == "-":
        if goal is None and (sys.stdin is None or sys.stdin.isatty()):
            example = 'romanesco run "Name three risks of moving our billing to usage-based prices"'
            raise InputError("No goal was given", advice=f"For example: {example}")
        return _decoded(sys.stdin.buffer.read(), "stdin")
    try:
        # Bytes of an argument that the locale could not decode come as lone surrogates.
        return goal.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise InputError("The goal is not UTF-8 text", advice="Give it in a file: --goal-file FILE.") from None


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("The goal is not UTF-8 text", value=where, advice="Convert it first.") from None


def read_models(given: list[str]) -> dict[str, str]:
    """Models by role from ``MODEL`` and ``ROLE=MODEL``; the role ``default`` serves all that have none.

    Raises:
        InputError: A role is given twice.
    """
    models: dict[str, str] = {}
    for text in given:
        match = _ROLE.fullmatch(text)
        role, name = (match[1], match[2]) if match else ("default", text)
        if role in models:
            what = "The default model" if role == "default" else f"The model of {role}"
            raise InputError(f"{what} is given twice", value=name, limit=f"one, {models[role]}")
        models[role] = name
    return models


def read_params(given: list[str]) -> dict[str, Any]:
    """Parameters from ``NAME=VALUE``: JSON where it is JSON, else text.

    Raises:
        InputError: One is not of this form, or is given twice.
    """
    params: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise InputError("--param is wrong", value=repr(text), limit="NAME=VALUE", advice="--param temperature=0.5")
        if name in params:
            raise InputError(f"The parameter {name} is given twice", value=repr(value), advice="Give it once.")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params
