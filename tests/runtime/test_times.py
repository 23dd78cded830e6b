"""Where a run's time goes, in its outcome as on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from romanesco import ScriptedModel
from romanesco.runtime._clockwork import Clockwork
from romanesco.task import Times
from romanesco.testing import Chain, FakeServerProcess, Members
from tests.interfaces.commands import Commands
from tests.runtime.drive import drive

TIMING = {"queue": 0.5, "first_token": 1.0, "total": 3.0, "parse": 0.25}

Step = tuple[str, dict[str, Any]]


def read(*steps: Step) -> Clockwork:
    clockwork = Clockwork()
    for kind, data in steps:
        clockwork.take(kind, data)
    return clockwork


def test_br_148_time_is_split_into_queue_provider_parse_and_own() -> None:
    split = read(
        ("call.started", {"elapsed": 1.0}),
        ("call.started", {"elapsed": 2.0}),
        ("call.finished", {"elapsed": 4.0, "timing": TIMING}),
        ("call.failed", {"elapsed": 5.0}),
        ("run.tick", {"elapsed": 8.0}),
        ("call.started", {"elapsed": 9.0}),
        ("run.ended", {"elapsed": 10.0}),
    ).times()
    assert (split.active, split.waiting, split.own) == (10.0, 5.0, 5.0)
    assert (split.queue, split.first_token, split.generating, split.parse, split.calls) == (0.5, 1.0, 2.0, 0.25, 1)


def test_a_call_that_a_kill_cut_off_is_waited_for_no_longer() -> None:
    split = read(
        ("call.started", {"elapsed": 1.0}),
        ("run.tick", {"elapsed": 3.0}),
        ("run.resumed", {}),
        ("run.tick", {"elapsed": 7.0}),
        ("call.failed", {"elapsed": 8.0}),
    ).times()
    assert (split.active, split.waiting, split.own) == (8.0, 2.0, 6.0)


def test_what_is_out_now_counts_up_to_now() -> None:
    clockwork = read(("call.started", {"elapsed": 1.0}))
    assert clockwork.times().waiting == 0.0
    assert clockwork.times(5.0) == Times(active=5.0, waiting=4.0)


@pytest.mark.parametrize("topology", [Chain(), Members()], ids=["one after another", "at once"])
async def test_an_outcome_tells_where_its_time_went(topology: Any, tmp_path: Path) -> None:
    outcome = await drive(tmp_path, ScriptedModel("ok", latency=0.01), topology)
    times = outcome.times
    assert times.calls == outcome.spend.calls > 1
    assert 0.01 <= times.waiting <= times.active == pytest.approx(outcome.spend.seconds, abs=0.001)
    assert times.own == pytest.approx(times.active - times.waiting)


def test_show_and_the_outcome_tell_the_same_time(tmp_path: Path) -> None:
    romanesco = Commands(tmp_path)
    with FakeServerProcess(tmp_path) as server:
        model = f"{server.url}#fake"
        ran = romanesco("run", "hi", "--model", model, "--topology", "single", "--id", "r", "--json")
    shown = romanesco("show", "r", "--json").json
    assert ran.json["times"] == shown["times"] == shown["outcome"]["times"]
    assert shown["times"]["calls"] == 1
