"""Samples to a summary, a table and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._probe import Benchmark, Metric


def summary(metric: Metric, samples: Sequence[float], *, judged: bool) -> dict[str, Any]:
    """Median, spread and, if it is to be judged, what the target says of the median."""
    ordered = sorted(samples)
    median = statistics.median(ordered)
    return {
        "label": metric.label.strip(),
        "unit": metric.unit,
        "median": round(median, 4),
        "min": round(ordered[0], 4),
        "p95": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 4),
        "max": round(ordered[-1], 4),
        "n": len(ordered),
        "target": metric.target,
        "state": None if metric.target is None or not judged else "held" if median <= metric.target else "missed",
    }


def table(benchmarks: Sequence[Benchmark], numbers: Mapping[str, Mapping[str, Any]]) -> str:
    """The table as text: a line a metric."""
    head = ("", "median", "min to p95", "n", "target", "")
    rows = [head]
    for benchmark in benchmarks:
        for metric in benchmark.metrics:
            one = numbers[metric.key]
            rows.append((
                metric.label,
                f"{_shown(one['median'])} {metric.unit}",
                f"{_shown(one['min'])} to {_shown(one['p95'])}",
                str(one["n"]),
                "" if metric.target is None else f"<= {metric.target:g}",
                one["state"] or "",
            ))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _shown(number: float) -> str:
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"
