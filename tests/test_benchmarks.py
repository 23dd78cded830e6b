"""The benchmark command works and checks what it measures. Nothing is timed here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import romanesco
from benchmarks import _machine
from benchmarks._all import BENCHMARKS
from benchmarks._main import main
from benchmarks._probe import Benchmark, Metric, Probe, WrongResult
from benchmarks._table import summary, table
from benchmarks._work import ask_alone, config_in, run_members
from benchmarks._worker import measure


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_runs_and_checks_its_results(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "numbers.json"

    assert main([name, "--smoke", "--json", str(file)]) == 0

    report = json.loads(file.read_text(encoding="utf-8"))
    wanted = BENCHMARKS[name]
    assert report["benchmarks"][name]["checks"] > 0
    assert set(report["numbers"]) == {metric.key for metric in wanted.metrics}
    assert all(number["samples"] for number in report["numbers"].values())
    shown = capsys.readouterr().out
    assert all(metric.label.strip() in shown for metric in wanted.metrics)
    assert "the numbers mean nothing" in shown
    for text in (shown, json.dumps(report)):
        assert str(_machine.ROOT) not in text
        assert Path.home() == Path("/") or str(Path.home()) not in text


@pytest.mark.parametrize("reply", ["Something else.", romanesco.ModelReply(text="", usage=None)])
async def test_a_wrong_answer_is_a_failure_and_no_data_point(tmp_path: Path, reply: object) -> None:
    model = romanesco.ScriptedModel(reply)
    config = config_in(tmp_path, model.name)

    with pytest.raises(WrongResult):
        await run_members(Probe(tmp_path, smoke=True), model, 2, 1, config=config)
    with pytest.raises(WrongResult):
        await ask_alone(Probe(tmp_path, smoke=True), model, 2, 1)


async def _checks_nothing(probe: Probe) -> None:
    probe.add("x", 1.0)


async def _forgets_a_metric(probe: Probe) -> None:
    probe.expect("one", 1, 1)


@pytest.mark.parametrize("work", [_checks_nothing, _forgets_a_metric])
def test_a_benchmark_that_checks_or_measures_nothing_is_refused(tmp_path: Path, work: object) -> None:
    broken = Benchmark("broken", "", (Metric("x", "x", "us"),), work)  # type: ignore[arg-type]  # both are coroutines

    with pytest.raises(WrongResult):
        measure(broken, tmp_path, smoke=True)


def test_a_failed_worker_is_named_and_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(BENCHMARKS, "gone", Benchmark("gone", "", (), _checks_nothing))  # unknown to the worker

    assert main(["gone", "--smoke"]) == 1
    assert "gone failed" in capsys.readouterr().err


@pytest.mark.parametrize(("median", "state"), [(149.0, "held"), (150.0, "held"), (151.0, "missed")])
def test_the_target_is_compared_with_the_median(median: float, state: str) -> None:
    metric = Metric("x", "a call", "us", 150.0)

    number = summary(metric, [median + 500, median, median - 100], judged=True)

    assert number["median"] == median
    assert number["state"] == state
    shown = table([Benchmark("b", "", (metric,), _checks_nothing)], {"x": number})
    assert shown.endswith(state)
    assert "<= 150" in shown


def test_tiny_sizes_are_not_judged() -> None:
    assert summary(Metric("x", "a call", "us", 150.0), [1.0], judged=False)["state"] is None
