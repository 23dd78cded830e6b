"""Checks of parameters that a user gives, and the error that says what is permitted."""

from __future__ import annotations

from romanesco.errors import InputError


def number(topology: str, name: str, value: object, span: tuple[float, float], *, whole: bool) -> float | int:
    """A number within a span, its ends included; a whole one as an ``int``.

    Args:
        topology: Whose parameter it is.
        name: The parameter's name.
        value: What was given.
        span: The least and the most.
        whole: Whether it must be a whole number; 3.0 is one.

    Raises:
        InputError: It is no such number.
    """
    low, high = span
    limit = f"{'a whole number' if whole else 'a number'} from {low:.15g} to {high:.15g}"
    # bool is an int to Python; k = true is a slip. What is no number at all (NaN) is not between the ends either.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(topology, name, value, limit)
    if whole and value != int(value):
        raise wrong(topology, name, value, limit)
    return int(value) if whole else float(value)


def wrong(topology: str, name: str, value: object, limit: str) -> InputError:
    """The error for a parameter that can't be used."""
    shown = repr(value)
    return InputError(
        f"parameter '{name}' of {topology} is out of range",
        value=shown if len(shown) <= 80 else shown[:60] + "...",
        limit=limit,
        advice="Correct it, or leave it out for the default.",
    )
