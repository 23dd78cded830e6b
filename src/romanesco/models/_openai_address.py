"""A base URL and a key, taken apart into what may be shown and what must stay secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from romanesco.errors import ConfigError

_SALT = os.urandom(16)
_SECRET_QUERY = re.compile(r"key|token|secret|sig|password|auth", re.IGNORECASE)


class Address:
    """A base URL taken apart, with what must stay secret apart from what may be shown."""

    def __init__(self, name: str, base_url: str, api_key: str | None) -> None:
        parts = _split(name, base_url)
        key = (api_key or "").strip()
        if not key.isascii() or not key.isprintable():
            raise ConfigError(f"The key for {name} has characters that no key has", advice="Copy it again.")
        host = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        user = parts.netloc.rpartition("@")[0]
        self.base = urlunsplit((parts.scheme, host, path, "", ""))
        self.root = urlunsplit((parts.scheme, host, re.sub(r"/v\d+$", "", path), "", ""))
        self.query = parts.query
        self.shown = self.base
        secrets = [value for field, value in parse_qsl(parts.query) if _SECRET_QUERY.search(field)]
        self.headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
            secrets.append(key)
        elif user:
            token = base64.b64encode(unquote(user).encode()).decode()
            self.headers["Authorization"] = f"Basic {token}"
            secrets += [token, user, unquote(user), unquote(user.partition(":")[2])]
        bare = {secret.strip() for secret in secrets}
        self.secrets = tuple(sorted((s for s in bare if len(s) > 2), key=len, reverse=True))
        # A salt of this process: equal keys share a limiter, and the digest tells nothing about the key.
        identity = "\0".join([key or user, *sorted(self.secrets)])
        digest = hmac.new(_SALT, identity.encode(), hashlib.sha256).hexdigest()[:8]
        self.endpoint = f"{self.base}#{digest}" if key or self.secrets else self.base

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def _split(name: str, base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"The base URL of {name} can't be used",
            limit="http:// or https://, a host and a path",
            advice="Example: http://127.0.0.1:8080/v1",
        )
    return parts
