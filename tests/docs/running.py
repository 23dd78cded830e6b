"""Runs the blocks of a page: Python in one namespace, commands in one folder with a home of its own."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from romanesco import load_config
from romanesco.personas import load_personas
from tests.docs.pages import Block
from tests.support import PATIENCE

PLACEHOLDERS = ("http://localhost:8000/v1#my-model", "openai:gpt-5-mini", "ollama:llama3.2")
"""Models of which the pages speak; a run takes the fake server's in their place."""

_MARK = "\x1f"


@dataclass(slots=True)
class PageRunner:
    """Runs the blocks of one page, in order.

    Attributes:
        folder: Where they run; a block that names a TOML file in its first line leaves it there.
        server: Base address of the fake server.
        environment: What commands get as their environment.
        namespace: What Python blocks share.
    """

    folder: Path
    server: str
    environment: dict[str, str]
    namespace: dict[str, Any] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Run one block.

        Raises:
            AssertionError: It does not do what the page says.
        """
        work: dict[str, Callable[[Block], None]] = {
            "python": self._python,
            "console": self._console,
            "toml": self._toml,
            "json": lambda one: json.loads(one.text),
        }
        if block.language in work:
            work[block.language](block)

    def put_in_place(self, text: str) -> str:
        """The text with the fake server's model in the place of those that the pages speak of."""
        for placeholder in PLACEHOLDERS:
            text = text.replace(placeholder, f"{self.server}#fake")
        return text

    def _python(self, block: Block) -> None:
        before = set(self.namespace)
        padding = "\n" * (block.line - 1)  # so that a traceback names the page's own line
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(padding + self.put_in_place(block.text), str(block.page), "exec", flags=flags, dont_inherit=True)
        outcome = eval(code, self.namespace)
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
        for name in [name for name in self.namespace if name.startswith("test_") and name not in before]:
            self._call_test(self.namespace[name])

    def _call_test(self, test: Callable[..., Any]) -> None:
        given = {"tmp_path": self.folder} if "tmp_path" in inspect.signature(test).parameters else {}
        outcome = test(**given)
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)

    def _toml(self, block: Block) -> None:
        data = tomllib.loads(block.text)
        if not block.file:
            return
        file = self.folder / block.file
        file.write_text(self.put_in_place(block.text), encoding="utf-8")
        if block.file == "romanesco.toml":
            assert load_config(file, env={}).tables.keys() <= data.keys(), block.place
        elif block.file == "personas.toml":
            assert load_personas(file).keys() >= data["personas"].keys(), block.place

    def _console(self, block: Block) -> None:
        commands = _commands(block)
        script = "status=0\n" + "".join(
            f"printf '{_MARK}'\n(exit $status)\n{self.put_in_place(one.text)}\nstatus=$?\nprintf '{_MARK}%s' $status\n"
            for one in commands
        )
        kept = self.folder.parent / "environment"  # what a block exports holds for the next one, as in a terminal
        done = subprocess.run(
            ["/bin/bash", "-c", f"{script}env -0 > '{kept}'\n"],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
        )
        self.environment = dict(pair.split("=", 1) for pair in kept.read_text("utf-8").split("\0") if pair)
        parts = done.stdout.split(_MARK)[1:]
        for number, command in enumerate(commands):
            output, status = parts[2 * number], parts[2 * number + 1]
            shown_next = number + 1 < len(commands) and commands[number + 1].text == "echo $?"
            assert status == "0" or shown_next, f"{block.place}: {command.text} gave {status}:\n{output}"
            _check_output(command, output, block)


@dataclass(slots=True)
class _Command:
    """A command of a console block, and the output that the page shows for it."""

    text: str
    output: list[str] = field(default_factory=list)


def _commands(block: Block) -> list[_Command]:
    commands: list[_Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(_Command(line[2:]))
        elif line.startswith("> "):
            commands[-1].text += "\n" + line[2:]
        else:
            assert commands, f"{block.place}: a console block begins with a command"
            commands[-1].output.append(line)
    return commands


def _check_output(command: _Command, output: str, block: Block) -> None:
    """Each line that is shown stands in the output, in order; numbers may differ, and ``...`` stands for any lines."""
    exact = command.text == "echo $?"
    found = [_shape(line, exact) for line in output.splitlines()]
    at = 0
    for line in command.output:
        if not line.strip() or line.strip() == "...":
            continue
        wanted = _shape(line, exact)
        assert wanted in found[at:], f"{block.place}: {command.text!r} does not print {line!r} but:\n{output}"
        at = found.index(wanted, at) + 1


def _shape(line: str, exact: bool) -> str:
    words = " ".join(line.split())
    return words if exact else re.sub(r"\d[\d,.]*", "0", words)


def clean_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make the process's environment, and a copy for commands, that of a machine where nothing is configured."""
    for name in list(os.environ):
        if name.endswith("_API_KEY") or (name.startswith("ROMANESCO_") and name != "ROMANESCO_MODELS"):
            monkeypatch.delenv(name)
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    shim = folder / "bin" / "romanesco"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m romanesco "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    source = Path(__file__).resolve().parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", f"{source}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return dict(os.environ)
