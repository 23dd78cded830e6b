"""Public test tools: a fake server with its own ledger, scripted stores and engines, and conformance suites."""

from __future__ import annotations
