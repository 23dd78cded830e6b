"""The certificate file of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from romanesco.errors import InputError, JournalTooNew, JournalUnwritable
from romanesco.journal import Certificate, read_certificate, write_certificate


def test_a_certificate_comes_back_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "certificates" / "r.json"
    for seq in (3, 4):
        certificate = Certificate("r", seq, "a" * 64, 12.5, {"calls": 1, "usd": "0.1"}, "0.1.0")
        assert write_certificate(certificate, path) == path
        assert read_certificate(path) == certificate
    assert [file.name for file in path.parent.iterdir()] == ["r.json"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(path.read_text(encoding="utf-8"))) == {
        "format",
        "run",
        "head",
        "seq",
        "issued_at",
        "totals",
        "version",
    }


def test_a_certificate_that_can_not_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    certificate = Certificate("r", 1, "a" * 64, 1.0)
    with pytest.raises(JournalUnwritable, match=r"certificate can't be written.*in its journal"):
        write_certificate(certificate, tmp_path / "file" / "r.json")
    (tmp_path / "r.json").mkdir()
    with pytest.raises(JournalUnwritable):
        write_certificate(certificate, tmp_path / "r.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "r.json"]


GOOD = {"format": 1, "run": "r", "seq": 1, "head": "a" * 64, "issued_at": 1, "totals": {}, "version": ""}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "\x00\xff",
        "[" * 100_000,
        " " * 1_100_000 + "{}",
        *(json.dumps({**GOOD, name: None}) for name in GOOD),
        json.dumps({**GOOD, "seq": 0}),
        json.dumps({**GOOD, "head": "A" * 64}),
    ],
)
def test_a_file_that_is_no_certificate(content: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(path)
    path.write_text(json.dumps(GOOD), encoding="utf-8")
    assert read_certificate(path).run == "r"


def test_a_missing_and_a_later_certificate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="certificate can't be read: No such file"):
        read_certificate(tmp_path / "none.json")
    with pytest.raises(InputError, match="certificate can't be read"):
        read_certificate(tmp_path)
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**GOOD, "format": 2}), encoding="utf-8")
    with pytest.raises(JournalTooNew, match=r"format 2 .*limit format 1"):
        read_certificate(path)
