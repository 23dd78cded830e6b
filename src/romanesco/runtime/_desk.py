"""What a topology may ask while it plans: windows, prices and token counts, and nothing that is generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from romanesco.budget import Price
from romanesco.models import ModelPool, ModelRequest, TokenCount
from romanesco.runtime._spec import RunSpec
from romanesco.task import Budget


@dataclass(frozen=True, slots=True)
class Desk:
    """The planning desk of one run. See ``romanesco.runtime.PlanningDesk``."""

    spec: RunSpec
    pool: ModelPool
    prices: dict[str, Price | None]
    budget: Budget
    accounts: Mapping[str, str] = field(default_factory=dict)
    """Shared accounts that set a limit of the budget, by dimension."""
    roles: set[str] = field(default_factory=set)
    """Roles that the topology asked for while it planned."""

    def account(self, dimension: str) -> str:
        """Name of the shared account that sets the budget's limit of a dimension; "" where it is the user's own."""
        return self.accounts.get(dimension, "")

    def model(self, role: str) -> str:
        """Name of the model for a role."""
        self.roles.add(role)
        return self.spec.model(role)

    def unknown_roles(self) -> list[str]:
        """Roles that are configured and that a topology which plans with roles does not have."""
        if not self.roles:
            return []
        return sorted({*self.spec.models, *self.spec.role_limits} - self.roles - {"default"})

    async def window(self, model: str) -> int | None:
        """The model's context window in tokens, or None if unknown."""
        return (await self.pool.get(model).capabilities()).window

    async def count(self, request: ModelRequest) -> TokenCount:
        """Input tokens of a request: exact, or an upper bound. Counted as it would be sent."""
        from romanesco.models import first_rung, prepare

        model = self.pool.get(request.model)
        if request.output is not None:
            request = prepare(request, first_rung(await model.capabilities()))
        return await model.count(request)

    async def exact(self, model: str) -> bool:
        """Whether the model's endpoint counts tokens exactly."""
        return (await self.pool.get(model).capabilities()).tokenizer

    def price(self, model: str) -> Price | None:
        """The model's price, or None if it is unknown."""
        return self.prices[model]
