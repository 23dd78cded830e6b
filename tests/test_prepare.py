"""From arguments and configuration to a run: who wins, and what is said about what can't be used."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, Config, ModelRequest, Plan, ScriptedModel, Source, Task, load_config
from romanesco._prepare import SOURCE_BYTES, make_spec, read_sources
from romanesco.errors import ConfigError, InputError
from romanesco.models import TokenCount
from romanesco.runtime import PlanningDesk
from romanesco.testing import FakeServer, Members, MemoryStore, NgramEmbedder
from romanesco.topologies.single import Single


def configured(folder: Path, text: str) -> Config:
    path = folder / "romanesco.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, env={}, overrides={"home": str(folder / "home")})


def test_a_default_model_of_the_caller_also_replaces_the_configured_roles(tmp_path: Path) -> None:
    config = configured(tmp_path, '[roles]\ndecision-maker = "openai:dear"\n')
    assert make_spec("g", config).models["decision-maker"] == "openai:dear"
    assert make_spec("g", config, models={"default": "scripted:test"}).models == {"default": "scripted:test"}
    assert make_spec("g", config, models={"x": "ollama:a"}).models["decision-maker"] == "openai:dear"


def test_a_model_of_a_role_must_be_a_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a text"):
        make_spec("g", configured(tmp_path, "[roles]\ndecision-maker = 3\n"))


async def test_the_price_that_stands_beside_an_endpoint_counts(tmp_path: Path) -> None:
    budget = Budget(usd=Decimal(5))
    async with FakeServer() as server:
        text = f'[models.mine]\nbase_url = "{server.url}"\nmodel = "m"\n'
        config = configured(tmp_path, f"{text}price_in = 1\nprice_out = 10\n")
        plan = await romanesco.plan("Sell", model="custom:mine", topology="single", budget=budget, config=config)
        assert plan.bill.usd is not None and plan.bill.usd > 0
        config = configured(tmp_path, text)
        with pytest.raises(ConfigError, match="price"):
            await romanesco.plan("Sell", model="custom:mine", topology="single", budget=budget, config=config)


def test_money_may_be_given_as_a_number() -> None:
    assert Budget(usd=0.1).usd == Decimal("0.1")  # type: ignore[arg-type]  # what users write


async def test_a_role_that_nobody_plays_is_named_in_the_plan(tmp_path: Path) -> None:
    config = configured(tmp_path, "")
    model = {"default": ScriptedModel("x"), "decison-maker": ScriptedModel("y", name="scripted:y")}
    plan = await romanesco.plan("Sell", model=model, topology="single", config=config)
    assert "NOT used: decison-maker" in plan.reasons[-1]
    assert "answerer" in plan.reasons[-1]


async def test_plan_takes_topologies_of_the_caller(tmp_path: Path) -> None:
    class Mine(Single):
        name = "mine"

        async def plan(self, task: Task, desk: PlanningDesk) -> Plan:
            return await super().plan(task, desk)

    config = configured(tmp_path, "")
    plan = await romanesco.plan("g", topology=Mine(), topologies=[Members()], model=ScriptedModel("x"), config=config)
    assert plan.bill.calls > 0


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", "-x"])
async def test_a_run_id_that_is_no_file_name_is_refused_with_any_store(tmp_path: Path, name: str) -> None:
    config = configured(tmp_path, "")
    with pytest.raises(InputError, match="id is not usable"):
        await romanesco.run(
            "g", model=ScriptedModel("x"), topology=Members(), store=MemoryStore(), config=config, run=name
        )
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bugdet": Budget(calls=1)}, "did you mean 'budget'"),
        ({"tokens": 5}, "unexpected option 'tokens'"),
    ],
)
async def test_an_option_that_does_not_exist_is_no_option(options: dict[str, Any], said: str) -> None:
    for call in (romanesco.run("g", **options), romanesco.plan("g", **options)):
        with pytest.raises(TypeError, match=said):
            await call
    with pytest.raises(TypeError, match="unexpected option"):
        await romanesco.resume("r", **options)
    with pytest.raises(TypeError, match="unexpected option"):
        await romanesco.replay("r", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": {"tokens": 5}}, "not a Budget"),
        ({"model": 42}, "neither a name nor an adapter"),
        ({"topology": Single}, "is a class"),
        ({"sources": "orders.txt"}, "must be a list"),
    ],
)
async def test_what_is_of_the_wrong_kind_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        await romanesco.run("g", **options)
    with pytest.raises(InputError, match="not a text"):
        await romanesco.run(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [{"tokens": "5"}, {"calls": -1}, {"tokens": True}, {"usd": "nan"}, {"usd": "abc"}])
def test_a_budget_is_made_of_numbers(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="budget"):
        Budget(**bad)


def test_a_variable_or_override_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"ROMANESCO_BUDGET_TOKEN.*Did you mean ROMANESCO_BUDGET_TOKENS"):
        load_config(Path("/dev/null"), env={"ROMANESCO_BUDGET_TOKEN": "5"})
    with pytest.raises(ConfigError, match=r"Did you mean budget\.minutes"):
        load_config(Path("/dev/null"), env={}, overrides={"budget.minute": 5})


def test_sources_of_one_name_are_named_by_their_paths(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.txt").write_text(f"from {folder}", encoding="utf-8")
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    (tmp_path / "large.txt").write_bytes(b"x" * (SOURCE_BYTES + 1))
    paths = [tmp_path / "a" / "s.txt", tmp_path / "b" / "s.txt"]
    assert [source.name for source in read_sources(paths)] == [str(path) for path in paths]
    assert [source.name for source in read_sources(paths[:1])] == ["s.txt"]
    for name, said in (("empty.txt", "is empty"), ("large.txt", "too large"), ("none.txt", "can't be read")):
        with pytest.raises(InputError, match=said):
            read_sources([tmp_path / name])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a file"):
        read_sources([tmp_path / "pipe"])


async def test_a_completed_run_is_not_changed_by_a_limit(tmp_path: Path) -> None:
    config = configured(tmp_path, "")
    model = ScriptedModel("fine")
    first = await romanesco.run("g", model=model, topology="single", config=config, run="r")
    again = await romanesco.resume("r", model=model, budget=Budget(tokens=1), config=config)
    assert (again.status, again.answer, again.head) == (first.status, first.answer, first.head)


async def test_a_limit_below_what_was_used_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    config = configured(tmp_path, "")
    options: dict[str, Any] = {"model": ScriptedModel(default="fine"), "config": config}
    cut = await romanesco.run("g", topology=Members(), budget=Budget(calls=5), run="r", **options)
    assert cut.dimension == "calls"
    with pytest.raises(InputError, match="below what the run has used"):
        await romanesco.resume("r", topologies=[Members()], budget=Budget(calls=3), **options)
    whole = await romanesco.resume("r", topologies=[Members()], budget=Budget(calls=8), **options)
    assert whole.status is romanesco.Status.COMPLETED


async def test_an_outcome_holds_what_each_line_of_the_bill_came_to(tmp_path: Path) -> None:
    config, budget = configured(tmp_path, ""), Budget(tokens=500_000)
    outcome = await romanesco.run(
        "Sell bread", model=ScriptedModel(auto=True), budget=budget, embedder=NgramEmbedder(), config=config
    )
    assert outcome.bill is not None
    assert [line.purpose for line in outcome.lines] == [line.purpose for line in outcome.bill.lines]
    for spent, most in zip(outcome.lines, outcome.bill.lines, strict=True):
        assert (spent.calls, spent.tokens_in, spent.tokens_out) <= (most.calls, most.tokens_in, most.tokens_out)
    assert sum(line.calls for line in outcome.lines) == outcome.spend.calls
    assert sum(line.tokens_in for line in outcome.lines) == outcome.spend.tokens_in
    assert sum(line.tokens_out for line in outcome.lines) == outcome.spend.tokens_out
    assert outcome.budget == budget
    assert any("declared distance" in reason for reason in outcome.reasons)


@pytest.mark.parametrize("topology", ["fractal", "single"])
async def test_of_a_huge_source_no_more_is_counted_than_could_be_read(topology: str, tmp_path: Path) -> None:
    class Counting(ScriptedModel):
        largest = 0

        async def count(self, request: ModelRequest) -> TokenCount:
            self.largest = max(self.largest, sum(len(message.content) for message in request.messages))
            return await super().count(request)

    model = Counting(auto=True, window=4096)
    text = "Two of five customers come for the smell of bread.\n\n" * 40_000
    options: dict[str, Any] = {"topology": topology, "config": configured(tmp_path, ""), "model": model}
    shown: list[int] = []
    for whole in (text[:80_000], text):  # the smaller one is counted as a whole
        model.largest = 0
        plan = await romanesco.plan("Sell", sources=[Source("a.txt", whole)], embedder=NgramEmbedder(), **options)
        shown.append(plan.params["source_chars" if topology == "single" else "payload_chars"])
    assert 4096 < model.largest < len(text) / 10
    assert shown == pytest.approx([shown[0]] * 2, rel=0.05)


async def test_the_keyword_of_the_command_line_is_no_id() -> None:
    store = MemoryStore()
    with pytest.raises(InputError, match="keyword of the command line"):
        await romanesco.run("Hi", model=ScriptedModel("Hello."), topology="single", store=store, run="last")
    assert await store.runs() == []


@pytest.mark.parametrize("params", [[1], "k=3", 5])
async def test_parameters_must_be_a_mapping(params: Any) -> None:
    with pytest.raises(InputError, match="The parameters are not a mapping"):
        await romanesco.run("Hi", model=ScriptedModel("Hello."), params=params, store=MemoryStore())


async def test_a_store_of_the_callers_leaves_no_certificate_unless_a_home_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user" / "data"))
    (tmp_path / "empty.toml").touch()
    for home, wanted in ((None, ""), (tmp_path / "home", str(tmp_path / "home" / "certificates" / "r.json"))):
        config = load_config(tmp_path / "empty.toml", env={}, overrides={"home": home and str(home)})
        outcome = await romanesco.run(
            "Hi", model=ScriptedModel("Hello."), topology="single", store=MemoryStore(), config=config, run="r"
        )
        assert outcome.certificate == wanted
        assert not (tmp_path / "user").exists()
    assert (tmp_path / "home" / "certificates" / "r.json").is_file()
