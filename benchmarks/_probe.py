"""What a benchmark is, and what one of its processes measures and checks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN = 120
"""Characters of a value in a message."""


class WrongResult(AssertionError):
    """A measured run gave a wrong result: a failure, not a data point."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a benchmark reports.

    Attributes:
        key: Name in the JSON.
        label: Name in the table.
        unit: Its unit.
        target: Held if the median is not above it; None for a number that is only reported.
    """

    key: str
    label: str
    unit: str
    target: float | None = None


@dataclass(slots=True)
class Probe:
    """One process's measurements.

    Attributes:
        folder: An empty folder of its own.
        smoke: Whether to take tiny sizes, only to see that everything works.
        samples: Values by metric.
        checks: How many results were compared with what they must be.
    """

    folder: Path
    smoke: bool = False
    samples: dict[str, list[float]] = field(default_factory=dict)
    checks: int = 0

    def size(self, real: int, tiny: int) -> int:
        """The size to take."""
        return tiny if self.smoke else real

    def add(self, key: str, *values: float) -> None:
        """Add samples of a metric."""
        self.samples.setdefault(key, []).extend(values)

    def expect(self, what: str, actual: object, wanted: object) -> None:
        """Check a result.

        Raises:
            WrongResult: It is not what it must be.
        """
        self.checks += 1
        if actual != wanted:
            raise WrongResult(f"{what}: got {_short(actual)}, expected {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark.

    Attributes:
        name: Name on the command line.
        about: What is measured and how, for the reader of the table.
        metrics: What it reports.
        measure: Measures in a fresh process, warm-ups included and not reported.
        repeats: Processes to measure in.
    """

    name: str
    about: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Probe], Coroutine[Any, Any, None]]
    repeats: int = 5
