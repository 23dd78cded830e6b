"""What a place that keeps journals must offer. Every store passes ``romanesco.testing.store_conformance``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from romanesco.journal._event import Event


@dataclass(frozen=True, slots=True)
class RunHead:
    """A run as the store lists it.

    Attributes:
        run: The run's id.
        seq: Position of its last event.
        hash: Hash of its last event.
        created: Time of its first event, seconds since 1970.
        updated: Time of its last event.
        kind: Kind of its last event, so that a list can tell the runs that have ended without reading them.
    """

    run: str
    seq: int
    hash: str
    created: float
    updated: float
    kind: str


@dataclass(frozen=True, slots=True)
class Command:
    """A message from any process to the owner of a run.

    Attributes:
        id: Unique id, given when posted.
        run: The run's id.
        node: Path of the node it is meant for, ``/`` for the whole run.
        verb: ``stop``, ``answer`` or ``budget``; the owner refuses others.
        data: Its JSON data.
        posted: Wall-clock time, seconds since 1970.
    """

    id: str
    run: str
    node: str
    verb: str
    data: dict[str, Any]
    posted: float


@dataclass(frozen=True, slots=True)
class Hold:
    """What a run is to hold of an account shared by runs.

    Attributes:
        account: For example ``project:web`` or ``day:2026-11-30``.
        amount: Decimal numbers as text, by dimension; none is negative. Empty frees all.
        limit: The account's limits by dimension; a dimension without one is not limited.
    """

    account: str
    amount: Mapping[str, str]
    limit: Mapping[str, str] = field(default_factory=dict)


class RunLock(Protocol):
    """A kernel lock on one run; freed by the kernel when its process dies."""

    def release(self) -> None:
        """Free the lock. May be called twice."""
        ...


class Store(Protocol):
    """A durable, append-only place for journals, the inbox and accounts shared by runs.

    All methods may be called from one event loop concurrently. What ``append``, ``post``, ``acknowledge`` and
    ``charge`` and ``charge_all`` wrote is durable when they are done.
    """

    def append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> asyncio.Future[None]:
        """Append events (in order, each one following the last of its run) and payloads by digest.

        Queued at the call, so that the order of calls is the order in the journal. All or nothing. Payloads
        already present are left as they are.

        Returns:
            A future that is done when the events are durable. It fails with ``JournalUnwritable``: disk full,
            read-only, locked; or an event whose ``seq`` or ``prev`` does not follow the last one of its run.
            After a failure nothing of this call is in the store, and the store goes on working.

        Raises:
            JournalUnwritable: The store is closed.
        """
        ...

    async def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Events of a run with ``seq > after``, in order, at most ``limit`` of them. An unknown run has none.

        The chain is not checked here; ``Journal.open`` and ``verify`` do that.
        """
        ...

    async def blob(self, digest: str) -> bytes:
        """A payload by its digest.

        Raises:
            JournalCorrupt: If it is missing or does not have that digest.
        """
        ...

    async def blobs(self, digests: Collection[str]) -> dict[str, bytes]:
        """Payloads as they are stored, unchecked; those that are missing are left out."""
        ...

    async def runs(self) -> list[RunHead]:
        """All runs, newest first."""
        ...

    def lock(self, run: str) -> RunLock:
        """Become the owner of a run.

        Raises:
            RunBusy: Another process (or this one) owns it already.
        """
        ...

    def owned(self, run: str) -> bool:
        """Whether any process owns the run now."""
        ...

    async def post(self, command: Command) -> None:
        """Put a command into the run's inbox. Posting the same id again changes nothing."""
        ...

    async def take(self, run: str) -> list[Command]:
        """Commands of the run that are not yet acknowledged, oldest first."""
        ...

    async def acknowledge(self, command_id: str, answer: dict[str, Any]) -> None:
        """Write the owner's answer to a command. The first answer stays.

        Raises:
            UnknownName: No command has that id.
        """
        ...

    async def acknowledgement(self, command_id: str) -> dict[str, Any] | None:
        """The owner's answer to a command, or None while there is none."""
        ...

    async def charge(self, account: str, run: str, amount: Mapping[str, str], limit: Mapping[str, str]) -> None:
        """Set what a run holds of an account shared by runs, atomically across processes.

        Args:
            account: For example ``project:web`` or ``day:2026-11-30``.
            run: The run; what it held of the account before is replaced.
            amount: Decimal numbers as text, by dimension; none is negative. Empty frees all.
            limit: The account's limits by dimension; a dimension without one is not limited.

        Raises:
            BudgetExceeded: A dimension of which the run asks for more than it held would pass its limit,
                summed over all runs; nothing is changed. Holding less is never refused.
            InputError: An amount is not a decimal number, or negative.
        """
        ...

    async def charge_all(self, run: str, holds: Sequence[Hold]) -> None:
        """Set what a run holds of several accounts, all of them or none, atomically across processes.

        Nobody ever sees some of them changed and others not.

        Args:
            run: The run.
            holds: Of each account once. Accounts that are not named are left as they are.

        Raises:
            BudgetExceeded: As ``charge``, for the first account that refuses; nothing is changed in any.
            InputError: As ``charge``; nothing is changed.
        """
        ...

    async def charged(self, account: str) -> dict[str, str]:
        """What all runs hold of an account, by dimension; where nothing is held there is no entry."""
        ...

    async def close(self) -> None:
        """Write what is pending and close. May be called twice."""
        ...
