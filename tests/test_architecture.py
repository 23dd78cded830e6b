"""The house keeps its shape: arrows point one way, doors are few, importing it is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import romanesco

SOURCE = Path(__file__).parents[1] / "src" / "romanesco"
FILES = sorted(SOURCE.rglob("*.py"))

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "task", "_codec", "_assets", "_hosts", "_version"}),
    frozenset({"budget", "journal", "models", "embeddings"}),
    frozenset({"runtime"}),
    frozenset({"personas"}),
    frozenset({"topologies"}),
    frozenset({"_config", "_prepare", "_run", "_workspace", "_api", "testing", "romanesco"}),
    frozenset({"interfaces", "__main__"}),
)
"""Rooms from the bottom up. A room imports from its own layer and those below."""

UPWARD: frozenset[tuple[str, str]] = frozenset()
"""Imports against the arrows that are allowed: none."""


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def layer_of(room: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


def imports_of(path: Path) -> set[str]:
    """Modules of ours that a file imports when it runs; those for type checkers only are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "romanesco":
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == "romanesco")
    return found


def module_of(path: Path) -> str:
    parts = ("romanesco", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: module_of(path))
def test_arrows_point_one_way(path: Path) -> None:
    here = room_of(module_of(path))
    for module in imports_of(path):
        there = room_of(module)
        if (here, there) in UPWARD:
            continue
        assert layer_of(there) <= layer_of(here), f"{module_of(path)} imports {module}, which stands above it"


def test_topologies_never_import_each_other() -> None:
    for path in (SOURCE / "topologies").rglob("*.py"):
        mine = module_of(path).split(".")[2:3]
        for module in imports_of(path):
            parts = module.split(".")
            if parts[1] == "topologies" and len(parts) > 2 and not parts[2].startswith("_"):
                assert parts[2:3] == mine, f"{module_of(path)} imports {module}"


def test_nothing_of_verification_knows_the_code_that_ran() -> None:
    for name in ("_verify", "_audit", "_ends", "_figures", "_chain"):
        rooms = {room_of(module) for module in imports_of(SOURCE / "journal" / f"{name}.py")}
        assert rooms <= {"errors", "journal", "task", "_codec"}, (name, rooms)


def test_files_and_functions_stay_small() -> None:
    long = [str(path.name) for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 500]
    assert long == []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                documented = len(ast.get_docstring(node, clean=False) or "")
                lines = length - (ast.get_docstring(node, clean=False) or "").count("\n") - (1 if documented else 0)
                assert lines <= 60, f"{module_of(path)}.{node.name} has {lines} lines without its docstring"
            if isinstance(node, ast.ClassDef):
                methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)]
                assert len(methods) <= 25, f"{module_of(path)}.{node.name} has {len(methods)} methods"


def test_the_version_is_the_one_that_is_packaged() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert romanesco.__version__ == project["version"]


def test_the_public_names_are_few_sorted_and_there() -> None:
    assert list(romanesco.__all__) == sorted(romanesco.__all__)
    assert len(romanesco.__all__) <= 40
    for name in romanesco.__all__:
        assert getattr(romanesco, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        romanesco.nonsense  # noqa: B018


def test_br_140_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("aiohttp", "numpy", "pydantic", "rich", "typer", "genai_prices", "xllamacpp", "tokenizers", "asyncio")
    code = f"import sys, romanesco; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
