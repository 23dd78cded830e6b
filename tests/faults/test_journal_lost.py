"""A journal whose file is taken away while a run goes on: the run notices, sends nothing more, and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import romanesco
from romanesco import Outcome, Scope, ScriptedModel, Status, StopReason, Task
from romanesco.journal import SQLiteStore
from romanesco.journal._place import LOOK_EVERY, Place
from tests.runtime.checks import verified
from tests.runtime.topologies import Plain, done, say
from tests.support import config_in


def rename(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


def rename_home(path: Path) -> None:
    path.parent.rename(path.parent.with_name("other-home"))


def taken_away(path: Path, take: Callable[[Path], None]) -> Plain:
    """Two calls, and the file goes between them."""

    async def solve(task: Task, scope: Scope) -> Outcome:
        first = await say(scope, "one", "one")
        await scope.offer(first, key="one")
        if not path.with_name("taken").exists():  # not again in the run that goes on
            path.with_name("taken").touch()
            take(path)
        return done(first + await say(scope, "two", "two"))

    return Plain(solve)


@pytest.mark.parametrize("take", [Path.unlink, rename, replace, rename_home])
async def test_a_run_whose_journal_is_taken_away_ends_and_sends_nothing_more(
    take: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romanesco.journal._place.LOOK_EVERY", 0.0)
    config, model = config_in(tmp_path), ScriptedModel("ok")
    config.home().mkdir(parents=True)
    path = config.home() / "journal.db"
    async with SQLiteStore(path) as store:
        outcome = await romanesco.run(
            "g", model=model, topology=taken_away(path, take), config=config, run="r", store=store
        )
    assert len(model.calls) == 1
    assert outcome.reason is StopReason.STORAGE and outcome.status is Status.PARTIAL and outcome.answer == "ok"
    assert "renamed, deleted or replaced" in outcome.note and str(path) in outcome.note
    assert "Put it back under that name" in outcome.note and not outcome.head


@pytest.mark.parametrize("take", [rename, rename_home])
async def test_a_file_that_is_put_back_has_all_and_the_run_goes_on(
    take: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romanesco.journal._place.LOOK_EVERY", 0.0)
    config, model = config_in(tmp_path), ScriptedModel("ok")
    config.home().mkdir(parents=True)
    path = config.home() / "journal.db"
    topology = taken_away(path, take)
    async with SQLiteStore(path) as store:
        await romanesco.run("g", model=model, topology=topology, config=config, run="r", store=store)
    if take is rename:
        path.with_name("elsewhere.db").rename(path)
    else:
        path.parent.with_name("other-home").rename(path.parent)
    whole = await romanesco.resume("r", model=model, topologies=[topology], config=config)
    assert whole.status is Status.COMPLETED and whole.answer == "okok"
    assert len(model.calls) == 2
    await verified(config)


def test_it_is_looked_for_once_a_second_and_always_while_it_is_lost(tmp_path: Path) -> None:
    path, now = tmp_path / "journal.db", 0.0
    path.touch()
    place = Place(path, lambda: now)
    rename(path)
    now = LOOK_EVERY * 0.99
    assert place.lost() is None  # no look is due
    now = LOOK_EVERY
    assert place.lost() is not None and place.lost() is not None
    path.with_name("elsewhere.db").rename(path)
    assert place.lost() is None
    rename(path)
    assert place.lost() is None  # it was looked for at this moment
