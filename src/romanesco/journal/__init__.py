"""The journal of a run: hash-chained events, stores, subscriptions, export and verification."""

from romanesco.journal._certificate import Certificate, read_certificate, write_certificate
from romanesco.journal._charges import check_charge
from romanesco.journal._event import GENESIS, Event, canonical, digest, event_hash, make_event
from romanesco.journal._export import export
from romanesco.journal._journal import Journal, Written
from romanesco.journal._payload import entries, resolve
from romanesco.journal._sqlite import SQLiteStore
from romanesco.journal._store import Command, Hold, RunHead, RunLock, Store
from romanesco.journal._verify import Finding, Totals, Verdict, Verification, verify

__all__ = [
    "GENESIS",
    "Certificate",
    "Command",
    "Event",
    "Finding",
    "Hold",
    "Journal",
    "RunHead",
    "RunLock",
    "SQLiteStore",
    "Store",
    "Totals",
    "Verdict",
    "Verification",
    "Written",
    "canonical",
    "check_charge",
    "digest",
    "entries",
    "event_hash",
    "export",
    "make_event",
    "read_certificate",
    "resolve",
    "verify",
    "write_certificate",
]
