"""What the documentation states in links and tables is what there is."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

import romanesco
from romanesco import ScriptedModel, Status
from romanesco._config import SETTINGS
from romanesco.errors import ModelError, StopReason
from romanesco.models import PROVIDERS, by_role
from romanesco.models._parse import FailureKind
from romanesco.personas import AXES, builtin_personas
from romanesco.runtime import HookPoint
from romanesco.testing import MemoryStore, NgramEmbedder
from romanesco.topologies.fractal import _params as fractal
from romanesco.topologies.single import _params as single
from tests.docs.pages import ROOT, anchors, links, own_pages, pages, prose, table
from tests.support import config_in, events_of

DOCS = ROOT / "docs"
_EVENT = re.compile(r"(run|accounts|call|step|node|budget|bill|question|command|hook|fractal)\.[a-z_]+")


@pytest.mark.parametrize("page", own_pages(), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_the_contents_list_every_page() -> None:
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    assert listed >= set(DOCS.glob("*.md")) - {DOCS / "index.md"}


def test_every_promise_of_the_readme_names_a_test_that_exists() -> None:
    promises = table(ROOT / "README.md", "promise")
    assert len(promises) >= 12
    for promise, (_, test) in promises.items():
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{promise}: {test}"


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {name: cells[1:] for name, cells in table(DOCS / "configuration.md", "setting").items()}
    assert listed == {one.name: [_shown(one.default), one.about] for one in SETTINGS}


def test_every_table_of_the_file_is_named() -> None:
    from romanesco._config import TABLES

    for name in TABLES:
        assert f"[{name}" in prose(DOCS / "configuration.md"), name


def test_every_parameter_of_fractal_is_listed_with_its_default() -> None:
    _check_parameters(DOCS / "fractal.md", fractal.Params(), set(fractal.PLANNED))


def test_every_parameter_of_single_is_listed_with_its_default() -> None:
    _check_parameters(DOCS / "single.md", single.Params(), {"source_chars"})


def _check_parameters(page: Path, defaults: object, planned: set[str]) -> None:
    listed = {name: cells[1] for name, cells in table(page, "parameter").items()}
    found = {item.name: getattr(defaults, item.name) for item in fields(defaults)}  # type: ignore[arg-type]
    assert listed.keys() == found.keys() - planned
    for name, shown in listed.items():
        default = found[name]
        by_plan = default is None or (default in (0, "") and name != "reasoning_tokens")
        if by_plan and default is not False:
            assert shown == "none" or re.match("by the |a quarter of the ", shown), name
        else:
            assert shown == _shown(default), name


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_public_name_is_on_some_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in own_pages())
    missing = [name for name in romanesco.__all__ if not re.search(rf"\b{re.escape(name)}\b", text)]
    assert not missing


def test_every_public_test_tool_is_on_the_page_of_testing() -> None:
    text = (DOCS / "testing.md").read_text(encoding="utf-8")
    assert not [name for name in romanesco.testing.__all__ if f"`{name}`" not in text]


def test_every_provider_is_listed_with_its_key() -> None:
    listed = table(DOCS / "models.md", "string")
    for provider in PROVIDERS.values():
        row = listed[f"{provider.name}:MODEL"]
        assert row[2] == (" or ".join(provider.key_env) or "none"), provider.name
        assert not provider.local or row[1] == provider.base_url, provider.name


def test_the_other_tables_are_complete() -> None:
    assert table(DOCS / "structured-output.md", "failure").keys() == {kind.value for kind in FailureKind}
    assert table(DOCS / "personas.md", "axis").keys() == set(AXES)
    assert table(DOCS / "library.md", "status").keys() == {status.value for status in Status}
    assert table(DOCS / "runtime.md", "HookPoint").keys() == {point.name for point in HookPoint}


def test_every_shipped_persona_is_named() -> None:
    text = prose(DOCS / "personas.md")
    assert not [persona for persona in builtin_personas() if f"`{persona}`" not in text]


def test_every_stop_reason_is_on_the_page_of_exit_codes() -> None:
    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    assert not [reason for reason in StopReason if reason.value not in text]


def test_every_kind_of_event_that_the_code_writes_is_listed() -> None:
    listed = set(table(DOCS / "journal.md", "kind"))
    written: set[str] = set()
    for file in (ROOT / "src" / "romanesco" / "runtime").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _EVENT.fullmatch(node.value):
                written.add(node.value)
    unlisted = written - listed
    assert not unlisted
    assert {kind for kind in listed if not kind.startswith("fractal.")} - {"offer"} == written


async def test_the_events_of_runs_are_listed_with_their_data(tmp_path: Path) -> None:
    listed = {kind: re.findall(r"[a-z_]+", cells[2]) for kind, cells in table(DOCS / "journal.md", "kind").items()}
    config = config_in(tmp_path)
    model = ScriptedModel([by_role("operations-lead", ModelError("down"))], auto=True)
    outcome = await romanesco.run("Name three risks", model=model, config=config, embedder=NgramEmbedder())
    seen: set[str] = set()
    for _, kind, _, _, data in await events_of(config, outcome.run):
        seen.add(kind)
        assert kind in listed
        missing = [name for name in data if name not in listed[kind]]
        assert not missing, f"{kind}: {missing}"
    assert {kind for kind in listed if kind.startswith("fractal.")} <= seen
    assert {"call.failed", "step.failed", "step.finished", "offer", "run.ended"} <= seen


async def test_fractal_bills_what_its_page_says() -> None:
    for k, rounds in ((3, 1), (4, 3), (5, 2)):
        plan = await romanesco.plan(
            "Name three risks",
            model=ScriptedModel(auto=True),
            params={"k": k, "rounds": rounds},
            store=MemoryStore(),
            embedder=NgramEmbedder(),
        )
        calls = {line.purpose: line.calls for line in plan.bill.lines}
        assert calls["proposal"] == k + k * (rounds - 1)
        assert calls["critique"] == 2 * k
        assert calls["decision"] == calls["wrap-up"] == 1


def test_the_cost_table_of_fractal_is_what_its_formulas_give() -> None:
    turn = proposal = synthesis = 500
    critique = response = 300
    rounds, evaluators, each = 3, 2, 3
    rows = table(DOCS / "fractal.md", "k")
    assert rows.keys() == {"3", "4", "5"}
    for cells in rows.values():
        k, *shown = (int(cell.replace(",", "")) for cell in cells)
        paper = rounds * k * proposal + evaluators * each * critique + synthesis
        corrected = rounds * k * proposal + evaluators * each * k * critique + synthesis
        debate = k * rounds * turn + k * (k - 1) // 2 * rounds * response
        assert shown == [paper, corrected, debate]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_page_names_a_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.])/(?:root|tmp|home|work|usr)/\S*", text)
