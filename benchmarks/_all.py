"""All benchmarks, in the order of the table."""

from __future__ import annotations

from benchmarks._engine import CHAIN, ENGINE
from benchmarks._http import FAN_OUT, HTTP
from benchmarks._memory import JOURNAL, RSS, TRACED
from benchmarks._probe import Benchmark
from benchmarks._startup import STARTUP
from benchmarks._step import STEP

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark for benchmark in (ENGINE, CHAIN, STEP, STARTUP, TRACED, RSS, JOURNAL, HTTP, FAN_OUT)
}
