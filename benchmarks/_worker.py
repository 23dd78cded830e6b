"""``python -m benchmarks._worker NAME [--smoke]``: one measurement in this process, as JSON on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from benchmarks._all import BENCHMARKS
from benchmarks._machine import spin
from benchmarks._probe import Benchmark, Probe, WrongResult


def measure(benchmark: Benchmark, folder: Path, *, smoke: bool) -> Probe:
    """Measure once.

    Raises:
        WrongResult: A result is wrong, was not checked, or a metric has no sample.
    """
    probe = Probe(folder, smoke)
    asyncio.run(benchmark.measure(probe))
    if not probe.checks:
        raise WrongResult(f"{benchmark.name} checked no result")
    wanted = {metric.key for metric in benchmark.metrics}
    if set(probe.samples) != wanted:
        raise WrongResult(f"{benchmark.name} measured {sorted(probe.samples)}, expected {sorted(wanted)}")
    return probe


def main(arguments: list[str]) -> int:
    """Measure and print."""
    name, *options = arguments
    cpu, wall = spin()
    with tempfile.TemporaryDirectory(prefix="romanesco-bench-") as folder:
        probe = measure(BENCHMARKS[name], Path(folder), smoke="--smoke" in options)
    result = {"samples": probe.samples, "checks": probe.checks, "spin_ms": cpu * 1e3, "contention": wall / cpu}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
