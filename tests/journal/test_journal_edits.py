"""Every kind of edit of a journal is found, with its certificate."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from romanesco.journal import GENESIS, Certificate, Event, Journal, SQLiteStore, make_event, verify
from romanesco.testing import MemoryStore
from tests.journal.verifying import outcome_of, script, verdicts, violated, written

Edit = Callable[[sqlite3.Connection], object]


def rewrite(connection: sqlite3.Connection, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Edit the run and compute all hashes anew, as a forger with our code would."""
    names = list(Event.__slots__)
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute("SELECT * FROM events ORDER BY seq")]
    change(rows)
    connection.execute("DELETE FROM events")
    prev = GENESIS
    for seq, row in enumerate(rows, 1):
        row.update(seq=seq, prev=prev)
        del row["hash"]
        event = make_event(**row)
        prev = event.hash
        values = [getattr(event, name) for name in names]
        connection.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", values)


def cheaper(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for name, old, new in (
            ("input", 100, 90),
            ("tokens_in", 500, 470),
            ("tokens_in", 400, 380),
            ("tokens_in", 100, 90),
        ):
            row["body"] = row["body"].replace(f'"{name}":{old},', f'"{name}":{new},')


def shorter(rows: list[dict[str, Any]]) -> None:
    del rows[9]


SWAP = "UPDATE events SET seq = CASE seq WHEN 6 THEN -7 ELSE -6 END WHERE seq IN (6, 7)"


INSERT = "INSERT INTO events SELECT run, 14, 'note', node, key, at, body, hash, hash FROM events WHERE seq = 13"


SPARE = "INSERT INTO events SELECT run, 0, kind, node, key, at, body, prev, hash FROM events WHERE seq = 2"


MARK = "SELECT digest FROM blobs ORDER BY digest LIMIT 1"


EDITS: dict[str, tuple[Edit, str]] = {
    "body": (lambda c: c.execute("UPDATE events SET body = replace(body, '100', '99') WHERE seq = 6"), "hashes"),
    "time": (lambda c: c.execute("UPDATE events SET at = at + 1 WHERE seq = 6"), "hashes"),
    "kind": (lambda c: c.execute("UPDATE events SET kind = 'note' WHERE seq = 10"), "hashes"),
    "node": (lambda c: c.execute("UPDATE events SET node = '/x' WHERE seq = 10"), "hashes"),
    "key": (lambda c: c.execute("UPDATE events SET key = 'x' WHERE seq = 10"), "hashes"),
    "hash": (lambda c: c.execute("UPDATE events SET hash = ? WHERE seq = 10", ("a" * 64,)), "hashes"),
    "prev": (lambda c: c.execute("UPDATE events SET prev = ? WHERE seq = 10", ("a" * 64,)), "chain"),
    "moved": (lambda c: c.execute("UPDATE events SET run = 'other' WHERE seq = 10"), "sequence"),
    "deleted": (lambda c: c.execute("DELETE FROM events WHERE seq = 6"), "sequence"),
    "first deleted": (lambda c: c.execute("DELETE FROM events WHERE seq = 1"), "one beginning"),
    "inserted": (lambda c: c.execute(INSERT), "hashes"),
    "inserted before": (lambda c: c.execute(SPARE), "sequence"),
    "swapped": (lambda c: (c.execute(SWAP), c.execute("UPDATE events SET seq = -seq WHERE seq < 0")), "hashes"),
    "cut": (lambda c: c.execute("DELETE FROM events WHERE seq > 11"), "certificate"),
    "emptied": (lambda c: c.execute("DELETE FROM events"), "certificate"),
    "rewritten": (lambda c: rewrite(c, cheaper), "certificate"),
    "rewritten shorter": (lambda c: rewrite(c, shorter), "certificate"),
    "no JSON": (lambda c: rewrite(c, lambda rows: rows[9].update(body="{oops")), "readable"),
    "no object": (lambda c: rewrite(c, lambda rows: rows[9].update(body="[]")), "readable"),
    "no text": (lambda c: c.execute("UPDATE events SET body = x'ff' WHERE seq = 10"), "readable"),
    "no UTF-8": (lambda c: c.execute("UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE seq = 10"), "readable"),
    "payload": (lambda c: c.execute(f"UPDATE blobs SET data = x'5b5d' WHERE digest = ({MARK})"), "payloads"),
    "payload type": (lambda c: c.execute(f"UPDATE blobs SET data = 'text' WHERE digest = ({MARK})"), "payloads"),
    "payload gone": (lambda c: c.execute(f"DELETE FROM blobs WHERE digest = ({MARK})"), "payloads"),
}


@pytest.mark.parametrize("name", EDITS)
async def test_every_kind_of_edit_is_found(name: str, tmp_path: Path) -> None:
    edit, expected = EDITS[name]
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        certificate = await written(store, script())
        assert (await verify(store, "r", certificate=certificate)).ok
        connection = sqlite3.connect(path)
        edit(connection)
        connection.commit()
        connection.close()
        found = await verify(store, "r", certificate=certificate)
        assert not found.ok
        assert expected in violated(found), found.findings


async def test_what_is_before_the_damage_is_still_checked(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        await written(store, script())
        connection = sqlite3.connect(path)
        connection.execute("UPDATE events SET at = at + 1 WHERE seq = 4")
        connection.execute("UPDATE events SET seq = '9x' WHERE seq = 9")
        connection.commit()
        connection.close()
        found = await verify(store, "r")
    assert found.seq == 13 and {"readable", "hashes", "sequence", "chain"} <= violated(found).keys()
    assert "'9x' of run 'r': seq of a wrong type" in violated(found)["readable"]
    assert "Nothing after event 13 was read" in violated(found)["readable"]


async def test_a_rewritten_chain_is_consistent_without_the_certificate(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SQLiteStore(path) as store:
        await written(store, script())
        connection = sqlite3.connect(path)
        rewrite(connection, cheaper)
        connection.commit()
        connection.close()
        found = await verify(store, "r")
        assert found.ok, "this is why certificates are kept elsewhere"
        assert found.totals.tokens_in == 470
        assert verdicts(found)["certificate"] == "not applicable"


async def test_a_certificate_of_an_earlier_head_is_a_prefix() -> None:
    store = MemoryStore()
    certificate = await written(store, script())
    async with await Journal.open(store, "r") as journal:
        journal.append_nowait("run.resumed")
        again = {"spend": script()[-1][2]["spend"]}
        journal.append_nowait("run.ended", data={**again, "outcome": outcome_of(again, script())})
    found = await verify(store, "r", certificate=certificate)
    assert found.ok
    assert any("2 events were added since" in item.detail for item in found.findings)
    for wrong in (
        Certificate("r", 13, "0" * 64, 0.0),
        Certificate("r", 12, certificate.head, 0.0),
        Certificate("r", 16, certificate.head, 0.0),
        Certificate("other", 13, certificate.head, 0.0),
        Certificate("r", 13, certificate.head, 0.0, {"calls": 1}),
    ):
        assert list(violated(await verify(store, "r", certificate=wrong))) == ["certificate"]
