"""Amounts and limits: what a step may cost, and how much of it an account may carry.

All arithmetic is done on whole numbers. Money is kept in units of 10^-15 US dollars (``MONEY_STEP``), which
holds every published price per token exactly; an amount that is finer is rounded up, a limit that is finer is
rounded down, so that rounding never lets more through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation

from romanesco.errors import InputError
from romanesco.task import MONEY_MAX, Budget

DIMENSIONS = ("tokens", "tokens_in", "tokens_out", "usd", "calls", "nodes")
"""Dimensions of an account, in the order of every vector in this package. Wall time is the stopwatch's."""

USD = DIMENSIONS.index("usd")
MONEY_STEP = Decimal("1E-15")
_CONTEXT = Context(prec=100, traps=[InvalidOperation])
_ZERO = Decimal(0)

Vector = tuple[int, int, int, int, int, int]
"""One whole number a dimension, in the order of ``DIMENSIONS``."""

Figure = int | Decimal
"""A number as people read it: dollars as ``Decimal``, everything else as ``int``."""


def money(value: Decimal | int | str | float, *, name: str = "usd") -> Decimal:
    """An amount of US dollars, exact.

    A float is taken as the decimal that it prints as: configuration files have no other way to write 0.15.

    Args:
        value: Dollars.
        name: What the number is, for the message.

    Raises:
        InputError: Not a number, not finite, negative, or above 10^12 dollars.
    """
    advice = f"Give {name} as US dollars, for example 0.50."
    if isinstance(value, bool) or not isinstance(value, Decimal | int | str | float):
        raise InputError(f"{name} is not an amount of money", value=repr(value), advice=advice)
    try:
        result = value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise InputError(f"{name} is not an amount of money", value=repr(value), advice=advice) from None
    if not result.is_finite():
        raise InputError(f"{name} is not a finite number", value=value, advice=advice)
    if result < 0 or result > MONEY_MAX:
        raise InputError(f"{name} is out of range", value=value, limit="0 to 10^12 dollars", advice=advice)
    return result


def to_steps(dollars: Decimal, *, up: bool) -> int:
    """Dollars as a whole number of ``MONEY_STEP``, rounded up (amounts) or down (limits)."""
    if not dollars:
        return 0
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return int(dollars.quantize(MONEY_STEP, rounding, _CONTEXT).scaleb(15, _CONTEXT))


def to_dollars(steps: int) -> Decimal:
    """A whole number of ``MONEY_STEP`` as dollars, without trailing zeros."""
    if not steps:
        return _ZERO
    short = _CONTEXT.normalize(_CONTEXT.scaleb(Decimal(steps), Decimal(-15)))
    exponent = short.as_tuple().exponent
    # 1E+2 is written as 100: the text goes to people and to JSON.
    return short.quantize(Decimal(1), context=_CONTEXT) if isinstance(exponent, int) and exponent > 0 else short


def figure(index: int, number: int) -> Figure:
    """The number of a dimension as people read it."""
    return to_dollars(number) if index == USD else number


def whole(value: int, *, name: str) -> int:
    """A whole number that isn't negative.

    Raises:
        InputError: It is not one.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is not a whole number", value=repr(value), advice=f"Give {name} as 0, 1, 2, ...")
    if value < 0:
        raise InputError(f"{name} is negative", value=value, limit="0 or more", advice=f"Give {name} as 0, 1, 2, ...")
    return value


def index_of(dimension: str) -> int:
    """Position of a dimension in a vector.

    Raises:
        InputError: No such dimension.
    """
    try:
        return DIMENSIONS.index(dimension)
    except ValueError:
        advice = "Wall time is limited by the stopwatch." if dimension == "seconds" else "Use one of these names."
        raise InputError(
            "no such dimension of an account", value=dimension, limit=", ".join(DIMENSIONS), advice=advice
        ) from None


@dataclass(frozen=True, slots=True)
class Amount:
    """What a step may cost or did cost. Nothing in it is negative.

    Attributes:
        tokens_in: Tokens read.
        tokens_out: Tokens generated.
        calls: Requests to model servers.
        nodes: Nodes of the tree.
        usd: US dollars. Steps finer than 10^-15 dollars are rounded up.
        vector: The same as whole numbers, in the order of ``DIMENSIONS``.

    Raises:
        InputError: A number is negative or not a number.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    nodes: int = 0
    usd: Decimal = _ZERO
    vector: Vector = field(init=False, repr=False, compare=False, default=(0, 0, 0, 0, 0, 0))

    def __post_init__(self) -> None:
        read, written, calls, nodes = self.tokens_in, self.tokens_out, self.calls, self.nodes
        if not (type(read) is type(written) is type(calls) is type(nodes) is int) or (
            read < 0 or written < 0 or calls < 0 or nodes < 0
        ):
            for name in ("tokens_in", "tokens_out", "calls", "nodes"):
                whole(getattr(self, name), name=name)
        steps = 0
        if self.usd is not _ZERO and (type(self.usd) is not Decimal or self.usd != 0):
            steps = to_steps(money(self.usd), up=True)
            object.__setattr__(self, "usd", to_dollars(steps))
        object.__setattr__(self, "vector", (read + written, read, written, steps, calls, nodes))

    @property
    def tokens(self) -> int:
        """Tokens, read and generated."""
        return self.vector[0]

    def __add__(self, other: Amount) -> Amount:
        return _amount([a + b for a, b in zip(self.vector, other.vector, strict=True)])

    def __sub__(self, other: Amount) -> Amount:
        """The difference.

        Raises:
            InputError: It would be negative somewhere.
        """
        return _amount([a - b for a, b in zip(self.vector, other.vector, strict=True)])


def _amount(numbers: list[int]) -> Amount:
    _, read, written, steps, calls, nodes = numbers
    return Amount(read, written, calls, nodes, to_dollars(steps))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one account; None means that this dimension is not limited. Zero means zero.

    Attributes:
        tokens: Tokens read and generated together.
        tokens_in: Tokens read.
        tokens_out: Tokens generated.
        usd: US dollars.
        calls: Requests to model servers, retries included.
        nodes: Nodes of the tree.

    Raises:
        InputError: A limit is negative or not a number.
    """

    tokens: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: Decimal | None = None
    calls: int | None = None
    nodes: int | None = None

    def __post_init__(self) -> None:
        for name in DIMENSIONS:
            value = getattr(self, name)
            if value is None:
                continue
            if name == "usd":
                object.__setattr__(self, "usd", money(value, name="the limit of usd"))
            else:
                whole(value, name=f"the limit of {name}")

    @classmethod
    def of(cls, budget: Budget) -> Limits:
        """The limits of a budget. Its ``seconds`` are checked, and are the stopwatch's to watch.

        Raises:
            InputError: A limit is negative or not a number.
        """
        seconds_limit(budget)
        return cls(
            tokens=budget.tokens,
            tokens_in=budget.tokens_in,
            tokens_out=budget.tokens_out,
            usd=budget.usd,
            calls=budget.calls,
            nodes=budget.nodes,
        )

    @property
    def caps(self) -> tuple[int | None, ...]:
        """The limits as whole numbers, in the order of ``DIMENSIONS``."""
        return tuple(cap(i, getattr(self, name)) for i, name in enumerate(DIMENSIONS))


def limits_of(caps: Sequence[int | None]) -> Limits:
    """Limits from whole numbers, in the order of ``DIMENSIONS``."""
    shown = {
        name: None if n is None else figure(i, n) for i, (name, n) in enumerate(zip(DIMENSIONS, caps, strict=True))
    }
    return Limits(**shown)  # type: ignore[arg-type]  # only usd is Decimal, see figure()


def cap(index: int, value: Decimal | int | str | float | None) -> int | None:
    """One limit as a whole number, or None for no limit.

    Raises:
        InputError: The limit is negative or not a number.
    """
    if value is None:
        return None
    name = f"the limit of {DIMENSIONS[index]}"
    if index == USD:
        return to_steps(money(value, name=name), up=False)
    return whole(value, name=name)  # type: ignore[arg-type]  # whole() refuses anything else


def seconds_limit(budget: Budget) -> float | None:
    """The limit of wall time in seconds, or None.

    Raises:
        InputError: It is negative, infinite or not a number.
    """
    seconds = budget.seconds
    if seconds is None:
        return None
    bad = isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds)
    if bad or seconds < 0:
        raise InputError(
            "the limit of wall time is not a number of seconds",
            value=repr(seconds),
            limit="0 or more",
            advice="Give it as seconds in a Budget, or as --minutes.",
        )
    return float(seconds)
