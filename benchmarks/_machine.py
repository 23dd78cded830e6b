"""Facts about the machine that a reader of the numbers needs. No paths, no host names."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
QUIET = 0.25
"""Load per processor up to which a machine counts as quiet."""


def spin() -> tuple[float, float]:
    """CPU and wall seconds of a fixed piece of Python: how fast this machine is, and whether it is shared.

    Wall over CPU is 1 on a machine that does nothing else.
    """
    cpu, wall = time.process_time(), time.perf_counter()
    total = 0
    for number in range(1_000_000):
        total += number & 7
    return time.process_time() - cpu, time.perf_counter() - wall


def load() -> float | None:
    """Load average of the last minute, where the system has one."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def is_quiet(average: float | None) -> bool:
    """Whether numbers taken now mean more than an indication."""
    return average is not None and average <= QUIET * (os.cpu_count() or 1)


def facts() -> dict[str, Any]:
    """What the numbers depend on."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cpus": usable,
        "sqlite": sqlite3.sqlite_version,
        "aiohttp": version("aiohttp"),
        "journal_on": _filesystem(Path(tempfile.gettempdir())),
        "commit": _commit(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _filesystem(folder: Path) -> str:
    """Type of the file system that the journals are on: a flush costs nothing in memory."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best, kind = -1, "unknown"
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, where, this, *_ = line.split(" ")
        if folder.resolve().is_relative_to(where) and len(where) >= best:
            best, kind = len(where), this
    return kind


def _commit() -> str:
    """The commit that is measured, with a + if the sources differ from it; empty outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()
