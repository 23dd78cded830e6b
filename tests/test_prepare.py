"""From arguments and configuration to a run: who wins, and what is said about what can't be used."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

import romanesco
from romanesco import Budget, Config, Plan, ScriptedModel, Task, load_config
from romanesco._prepare import make_spec
from romanesco.errors import ConfigError, InputError
from romanesco.runtime import PlanningDesk
from romanesco.testing import Members, MemoryStore
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
    text = """
        [models.mine]
        base_url = "http://127.0.0.1:9/v1"
        model = "m"
        window = 8192
        {prices}
    """
    budget = Budget(usd=Decimal(5))
    config = configured(tmp_path, text.format(prices="price_in = 1\nprice_out = 10"))
    plan = await romanesco.plan("Sell", model="custom:mine", topology="single", budget=budget, config=config)
    assert plan.bill.usd is not None and plan.bill.usd > 0
    with pytest.raises(ConfigError, match="price"):
        config = configured(tmp_path, text.format(prices=""))
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
