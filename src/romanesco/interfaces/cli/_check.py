"""``verify`` and ``export``: what a journal proves, and the journal itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from romanesco.errors import InputError
from romanesco.interfaces.cli import _options as o
from romanesco.interfaces.cli._wait import wait_for

VIOLATED = 10
"""Exit status of ``verify`` when a property is violated."""

CertificateFile = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        metavar="FILE",
        help="What the journal was at its end; default: the one that the run wrote.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.", show_default=False)
]


def verify(run: o.RunName, certificate: CertificateFile = None, json: o.Json = False) -> int:
    """Check a run's journal with independent code.

    Its chain, its order, its totals, its bill, its certificate. Exit status 10 if something is wrong.
    """
    return wait_for(_verify(run, certificate, json))


async def _verify(name: str, file: Path | None, json: bool) -> int:
    from romanesco.interfaces.cli._read import find_run, open_store
    from romanesco.interfaces.cli._screen import Screen
    from romanesco.interfaces.cli._tables import verification, verification_data
    from romanesco.journal import read_certificate
    from romanesco.journal import verify as check

    screen = Screen(json=json)
    certificate = read_certificate(file) if file is not None else None
    async with open_store() as store:
        lost = certificate is not None and name == certificate.run  # a journal that lost the run is what it proves
        run = name if lost else await find_run(store, name)
        default = store.path.parent / "certificates" / f"{run}.json"
        if file is None and default.exists():
            certificate, file = read_certificate(default), default
        found = await check(store, run, certificate=certificate)
    screen.result(lambda: verification_data(found, file), lambda: verification(found, file))
    return 0 if found.ok else VIOLATED


def export(run: o.RunName, output: Output = None) -> int:
    """Write a run's journal as JSON lines (UTF-8)."""
    return wait_for(_export(run, output))


async def _export(name: str, output: Path | None) -> None:
    from romanesco.interfaces.cli._read import find_run, open_store
    from romanesco.interfaces.cli._text import safe_json
    from romanesco.journal import export as lines

    async with open_store() as store:
        run = await find_run(store, name)
        if output is None:
            shown = sys.stdout.isatty()  # a file gets the lines as they are, a terminal nothing that steers it
            async for line in lines(store, run):
                sys.stdout.buffer.write((safe_json(line) if shown else line).encode() + b"\n")
            sys.stdout.buffer.flush()
            return
        try:
            with output.open("wb") as file:
                async for line in lines(store, run):
                    file.write(line.encode() + b"\n")
        except OSError as error:
            raise InputError(f"The journal can't be written there: {error.strerror}", value=str(output)) from None
