"""The command: fresh processes, benchmark after benchmark, as many rounds as wanted, then the table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import _machine
from benchmarks._all import BENCHMARKS
from benchmarks._probe import Benchmark
from benchmarks._table import summary, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; gives the exit status: 1 if a result was wrong, whatever the targets say."""
    given = _parser().parse_args(arguments)
    chosen = [BENCHMARKS[name] for name in dict.fromkeys(given.names or BENCHMARKS)]
    before = _machine.load()
    quiet = _machine.is_quiet(before)
    if not quiet and not given.smoke:
        _say(f"The machine is not quiet (load average {before}): the numbers are only indicative.")
    try:
        taken = _take(chosen, rounds=1 if given.smoke else given.repeats, smoke=given.smoke)
    except RuntimeError as error:
        _say(str(error))
        return 1
    report = _report(chosen, taken, before=before, quiet=quiet, smoke=given.smoke)
    print(_text(chosen, report))
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:<11} {benchmark.about}" for name, benchmark in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what Romanesco costs. Needs a quiet machine.",
        epilog=f"benchmarks:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", type=_known, help="benchmarks; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, all samples included")
    parser.add_argument(
        "--repeats", type=_positive, metavar="N", help="rounds of fresh processes; default: each its own"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once: only to see that everything works")
    return parser


def _known(name: str) -> str:
    if name not in BENCHMARKS:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(BENCHMARKS)}")
    return name


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")
    return int(text)


def _take(chosen: Sequence[Benchmark], *, rounds: int | None, smoke: bool) -> dict[str, list[dict[str, Any]]]:
    """Results of the workers. Benchmarks take turns, so that a drift of the machine hits all."""
    taken: dict[str, list[dict[str, Any]]] = {benchmark.name: [] for benchmark in chosen}
    wanted = {benchmark.name: rounds or benchmark.repeats for benchmark in chosen}
    for round_ in range(max(wanted.values())):
        for name, repeats in wanted.items():
            if round_ < repeats:
                _say(f"{name}, {round_ + 1} of {repeats}")
                taken[name].append(_worker(name, smoke=smoke))
    return taken


def _worker(name: str, *, smoke: bool) -> dict[str, Any]:
    """One measurement in a fresh process.

    Raises:
        RuntimeError: It failed; the message ends with what it said.
    """
    root = str(_machine.ROOT)
    path = os.pathsep.join([root, os.path.join(root, "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # a start that compiles is not what is measured
    command = [sys.executable, "-m", "benchmarks._worker", name, *(["--smoke"] if smoke else [])]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed; it said:\n{done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _report(
    chosen: Sequence[Benchmark],
    taken: dict[str, list[dict[str, Any]]],
    *,
    before: float | None,
    quiet: bool,
    smoke: bool,
) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for benchmark in chosen:
        for metric in benchmark.metrics:
            samples = [value for result in taken[benchmark.name] for value in result["samples"][metric.key]]
            numbers[metric.key] = {
                **summary(metric, samples, judged=not smoke),
                "samples": [round(value, 4) for value in samples],
            }
    results = [result for of_one in taken.values() for result in of_one]
    machine = {
        **_machine.facts(),
        "load_before": before,
        "load_after": _machine.load(),
        "quiet": quiet,
        "spin_ms": _middle(results, "spin_ms"),
        "contention": _middle(results, "contention"),
    }
    return {
        "smoke": smoke,
        "machine": machine,
        "benchmarks": {
            one.name: {
                "about": one.about,
                "processes": len(taken[one.name]),
                "checks": sum(result["checks"] for result in taken[one.name]),
            }
            for one in chosen
        },
        "numbers": numbers,
    }


def _middle(results: Sequence[dict[str, Any]], key: str) -> float:
    values = sorted(float(result[key]) for result in results)
    return round(values[len(values) // 2], 2)


def _text(chosen: Sequence[Benchmark], report: dict[str, Any]) -> str:
    machine = report["machine"]
    lines = [
        table(chosen, report["numbers"]),
        "",
        f"{machine['python']}, {machine['system']}, {machine['cpus']} cpus ({machine['cpu']}), "
        f"SQLite {machine['sqlite']} on {machine['journal_on']}, aiohttp {machine['aiohttp']}, asyncio's own loop, "
        f"garbage collection on, commit {machine['commit'] or 'unknown'}",
        f"load average {machine['load_before']} before, {machine['load_after']} after; a fixed loop took "
        f"{machine['spin_ms']} ms of CPU and {machine['contention']} times as long on the wall",
    ]
    if report["smoke"]:
        lines.append("Smoke: the sizes are tiny, so the numbers mean nothing.")
    elif not machine["quiet"]:
        lines.append("The machine was not quiet: these numbers are only indicative.")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
