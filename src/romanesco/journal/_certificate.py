"""The certificate of a run: a small file that says how long its journal was and what its last hash was.

Whoever keeps it apart from the journal can tell later whether the journal was cut or written anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from romanesco.errors import InputError, JournalTooNew, JournalUnwritable

FORMAT = 1
_HASH = re.compile(r"[0-9a-f]{64}")
_BIGGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a journal was at a moment.

    Attributes:
        run: The run's id.
        seq: Number of its last event.
        head: Hash of that event.
        issued_at: Wall-clock time, seconds since 1970. Information only.
        totals: What the run had spent, as in its ``run.ended``.
        version: Version of Romanesco that issued it.
        format: Version of the certificate's format.
    """

    run: str
    seq: int
    head: str
    issued_at: float
    totals: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    format: int = FORMAT


def write_certificate(certificate: Certificate, path: str | Path) -> Path:
    """Write a certificate, whole or not at all; an older one at the path is replaced.

    Args:
        certificate: The certificate.
        path: The file; missing folders are made for the owner only.

    Returns:
        The file's absolute path.

    Raises:
        JournalUnwritable: The file can't be written.
    """
    target = Path(path).expanduser().absolute()
    text = json.dumps(asdict(certificate), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        for folder in reversed([folder for folder in target.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        name = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns()}")
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                name.unlink()
            raise
        folder_descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder_descriptor)
        finally:
            os.close(folder_descriptor)
    except OSError as error:
        raise JournalUnwritable(
            f"The certificate can't be written: {error.strerror}",
            value=str(target),
            advice="Check the folder's permissions and free space. The run itself is in its journal.",
        ) from error
    return target


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate.

    Raises:
        InputError: The file can't be read, or is not a certificate.
        JournalTooNew: A later version wrote it.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            raw = file.read(_BIGGEST + 1)
        data = json.loads(raw) if len(raw) <= _BIGGEST else None
    except OSError as error:
        raise InputError(
            f"The certificate can't be read: {error.strerror}",
            value=str(path),
            advice="Name a certificate's file.",
        ) from error
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise JournalTooNew(
            "The certificate was written by a later version of Romanesco",
            value=f"format {data['format']} in {path}",
            limit=f"format {FORMAT}",
            advice="Update Romanesco.",
        )
    certificate = _certificate(data)
    if certificate is None:
        raise InputError(
            "The file is not a certificate",
            value=str(path),
            limit="a JSON object with format, run, seq, head, issued_at, totals and version",
            advice="Name the file that `romanesco run` printed.",
        )
    return certificate


def _certificate(data: object) -> Certificate | None:
    match data:
        case {
            "format": int(),
            "run": str(run),
            "seq": int(seq),
            "head": str(head),
            "issued_at": int() | float() as issued_at,
            "totals": dict(totals),
            "version": str(version),
        } if seq > 0 and _HASH.fullmatch(head):
            return Certificate(run, seq, head, float(issued_at), totals, version)
    return None
