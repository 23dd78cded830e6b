"""Which addresses are this machine: asked where proxies are passed by, and where a server counts as one's own."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine: ``localhost`` and names below it, ``127.0.0.0/8``, ``::1``."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def on_this_machine(url: str) -> bool:
    """Whether an address (``http://localhost:8000/v1``) is of this machine; what is no address is not."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and is_loopback(parts.hostname or "")
    except ValueError:
        return False
