"""What a fresh process pays before it does anything."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

from benchmarks._probe import Benchmark, Metric, Probe

USE = "import romanesco; romanesco.run; romanesco.ScriptedModel; romanesco.Budget"
WANTED = {
    "bare": ("-c", "pass"),
    "import": ("-c", "import romanesco; print(romanesco.__version__)"),
    "api": ("-c", f"{USE}; print(romanesco.__version__)"),
    "help": ("-m", "romanesco", "--help"),
}
MILLI = 1e3


async def startup(probe: Probe) -> None:
    """Fresh interpreters, in turn; the first round warms the caches and is not counted."""
    for round_ in range(1 + probe.size(5, 1)):
        taken = {name: _process(probe, name, arguments) for name, arguments in WANTED.items()}
        if round_ == 0:
            continue
        bare, bare_cpu = taken.pop("bare")
        probe.add("bare", bare)
        for name, (wall, cpu) in taken.items():
            probe.add(f"{name}_over_bare", wall - bare)
            probe.add(f"{name}_wall", wall)
            probe.add(f"{name}_cpu", cpu - bare_cpu)


def _process(probe: Probe, name: str, arguments: tuple[str, ...]) -> tuple[float, float]:
    """Wall time and CPU of a process in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}, check=False
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    probe.expect(f"exit status of {name}", done.returncode, 0)
    probe.expect(f"output of {name}", _right(name, done.stdout), True)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * MILLI, cpu * MILLI


def _right(name: str, output: str) -> bool:
    if name == "bare":
        return output == ""
    return "resume" in output if name == "help" else output.count(".") == 2


STARTUP = Benchmark(
    "startup",
    "wall time of a process, compiled files and the disk's cache warm; `over bare` is without the bare interpreter; "
    "CPU is over bare too",
    (
        Metric("bare", "bare interpreter", "ms"),
        Metric("import_over_bare", "import romanesco, over bare", "ms", 150.0),
        Metric("import_wall", "  absolute", "ms"),
        Metric("import_cpu", "  CPU", "ms"),
        Metric("help_wall", "romanesco --help, absolute", "ms", 250.0),
        Metric("help_over_bare", "  over bare", "ms"),
        Metric("help_cpu", "  CPU", "ms"),
        Metric("api_over_bare", "import and first use of romanesco.run, over bare", "ms"),
        Metric("api_wall", "  absolute", "ms"),
        Metric("api_cpu", "  CPU", "ms"),
    ),
    startup,
)
