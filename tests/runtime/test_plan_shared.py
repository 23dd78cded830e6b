"""Plans inside what accounts that runs share have left."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Budget, Plan, PlanRefused, ScriptedModel, Status
from romanesco.errors import BudgetExceeded
from romanesco.testing import MemoryStore, NgramEmbedder
from tests.support import config_in

WEB = "project:web"


def options(folder: Path, store: MemoryStore, **settings: Any) -> dict[str, Any]:
    config = config_in(folder, **{"project.name": "web", **settings})
    return {"model": ScriptedModel(auto=True), "store": store, "embedder": NgramEmbedder(), "config": config}


def told(plan: Plan) -> str:
    return " ".join(plan.reasons)


async def test_a_plan_shrinks_to_what_a_project_has_left_and_the_run_starts(tmp_path: Path) -> None:
    store = MemoryStore()
    await store.charge(WEB, "other", {"calls": "20"}, {})
    shared = options(tmp_path, store, **{"project.calls": 60})
    plan = await romanesco.plan("x", **shared)
    assert plan.fits and plan.bill.calls <= 40
    assert "rounds lowered from 3 to 2" in told(plan) and f"the account {WEB} has 40 calls left" in told(plan)
    assert await store.charged(WEB) == {"calls": "20"}  # a plan holds nothing
    outcome = await romanesco.run("x", **shared)
    assert outcome.status is Status.COMPLETED and outcome.spend.calls <= 40


async def test_the_smallest_of_all_limits_binds(tmp_path: Path) -> None:
    limits = {"project.calls": 45, "day.calls": 40}
    plan = await romanesco.plan("x", **options(tmp_path, MemoryStore(), **limits))
    assert "the account day:" in told(plan) and "40 calls left" in told(plan) and WEB not in told(plan)
    plan = await romanesco.plan("x", budget=Budget(calls=39), **options(tmp_path, MemoryStore(), **limits))
    assert "the budget is 39 calls" in told(plan) and "account" not in told(plan)
    money = await romanesco.plan("x", **options(tmp_path, MemoryStore(), **{"project.usd": Decimal("0.5")}))
    assert money.fits  # scripted models are free


@pytest.mark.parametrize("topology", ["fractal", "single"])
async def test_a_plan_that_no_account_can_carry_is_refused_by_the_accounts_name(topology: str, tmp_path: Path) -> None:
    store = MemoryStore()
    await store.charge(WEB, "other", {"calls": "30"}, {})
    shared = options(tmp_path, store, **{"project.calls": 30})
    with pytest.raises(PlanRefused, match=f"{WEB} has left is smaller.*got 0 calls"):
        await romanesco.plan("x", topology=topology, **shared)


async def test_a_plan_whose_repairs_an_account_can_not_carry_is_refused_before_its_bill(tmp_path: Path) -> None:
    own = {"params": {"k": 3, "rounds": 1}, **options(tmp_path, MemoryStore(), **{"project.calls": 12})}
    with pytest.raises(BudgetExceeded, match=f"{WEB} can't carry.*limit 12"):
        await romanesco.plan("x", **own)
    plan = await romanesco.plan("x", budget=Budget(calls=12), **own)  # it can carry a run that ends there by itself
    assert not plan.fits
