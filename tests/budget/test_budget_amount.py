"""Amounts, limits and money."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import pytest

from romanesco.budget import Amount, Limits, money, seconds_limit
from romanesco.errors import InputError
from romanesco.task import Budget


def test_amounts_add_and_subtract_exactly() -> None:
    one = Amount(10, 5, 1, usd=Decimal("0.1"))
    other = Amount(3, 2, 1, 0, Decimal("0.2"))
    assert one + other == Amount(13, 7, 2, 0, Decimal("0.3"))
    assert (one + other) - other == one
    assert (one + other).tokens == 20


def test_a_difference_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match="tokens_in is negative; got -1"):
        Amount(1) - Amount(2)


@pytest.mark.parametrize("field", ["tokens_in", "tokens_out", "calls", "nodes"])
@pytest.mark.parametrize("bad", [-1, 1.5, "1", True, None])
def test_an_amount_is_made_of_whole_numbers_from_zero(field: str, bad: Any) -> None:
    with pytest.raises(InputError, match=field):
        Amount(**{field: bad})


class Counted(int):
    """A whole number of another type, as numeric packages have them."""


def test_other_types_of_whole_numbers_are_taken() -> None:
    assert Amount(Counted(3)).tokens == 3


@pytest.mark.parametrize(
    ("given", "exact"),
    [("0.15", "0.15"), (0.15, "0.15"), (2, "2"), (Decimal("1E-7"), "0.0000001"), (0, "0"), ("100", "100")],
)
def test_money_is_the_decimal_that_was_written(given: Any, exact: str) -> None:
    assert money(given) == Decimal(exact)
    assert f"{Amount(usd=given).usd:f}" == exact


@pytest.mark.parametrize(
    "bad", ["nan", "inf", "-inf", "sNaN", float("nan"), float("inf"), "-1", -0.5, "1E+13", True, "x", None, []]
)
def test_what_is_no_amount_of_money_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="usd"):
        money(bad)


def test_rounding_never_lets_more_through() -> None:
    fine = Decimal("0.0000000000000000001")
    assert Amount(usd=fine).usd == Decimal("1E-15")
    assert Amount(usd=Decimal("1.00000000000000000000000000000000000000000000001")).usd == Decimal("1.000000000000001")
    assert Limits(usd=fine).caps[3] == 0


def test_money_does_not_depend_on_the_callers_decimal_context() -> None:
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_DOWN)):
        total = Amount(usd=Decimal("123.456789")) + Amount(usd=Decimal("0.000000001"))
        assert str(total.usd) == "123.456789001"


def test_limits_are_a_budget_without_its_seconds() -> None:
    budget = Budget(tokens=9, tokens_in=8, tokens_out=7, usd=Decimal("0.5"), seconds=60, calls=6, nodes=5)
    assert Limits.of(budget) == Limits(tokens=9, tokens_in=8, tokens_out=7, usd=Decimal("0.5"), calls=6, nodes=5)
    assert Limits.of(Budget()).caps == (None,) * 6


@pytest.mark.parametrize("field", ["tokens", "tokens_in", "tokens_out", "usd", "calls", "nodes", "seconds"])
def test_a_negative_limit_is_refused_by_name(field: str) -> None:
    with pytest.raises(InputError, match="money" if field == "usd" else f"budget's {field}"):
        Limits.of(Budget(**{field: -1}))  # type: ignore[arg-type]  # usd as an int, as users write it


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "60", True])
def test_seconds_are_a_finite_number(bad: Any) -> None:
    with pytest.raises(InputError, match="budget's seconds"):
        Budget(seconds=bad)


def test_seconds_may_be_zero_or_absent() -> None:
    assert seconds_limit(Budget(seconds=0)) == 0.0
    assert seconds_limit(Budget()) is None


@pytest.mark.parametrize(
    "wrong",
    [{"usd": "1e300"}, {"usd": 10**13}, {"usd": -1}, {"usd": "NaN"}, {"seconds": 10**400}, {"seconds": float("inf")},
     {"seconds": -1}, {"calls": -1}, {"calls": 1.5}, {"tokens": True}],
    ids=str,
)  # fmt: skip
def test_a_budget_takes_nothing_that_its_accounts_refuse(wrong: dict[str, Any]) -> None:
    """Else a plan would be made with a limit that the run can't be started with."""
    with pytest.raises(InputError):
        Budget(**wrong)


@pytest.mark.parametrize("most", [{"usd": 10**12}, {"usd": 0}, {"seconds": 1e300}, {"calls": 10**30}], ids=str)
def test_the_accounts_take_what_a_budget_takes(most: dict[str, Any]) -> None:
    assert Limits.of(Budget(**most))
