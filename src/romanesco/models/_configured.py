"""What the configuration says of models: endpoints of one's own, windows by model string, and what is ready to use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from romanesco._assets import ASSETS, find
from romanesco.errors import ConfigError
from romanesco.models._providers import CUSTOM, EMBEDDED, PROVIDERS, Provider, key_for

_SECRET_NAME = re.compile(r"(?:key|token|secret|sig|password|auth)[^=&]*=", re.IGNORECASE)
_SETTINGS = frozenset({"base_url", "model", "key_env", "window", "price_in", "price_out", "stream"})


@dataclass(frozen=True, slots=True)
class CustomEndpoint:
    """An endpoint from ``[models.NAME]`` of the configuration; its model string is ``custom:NAME``.

    Attributes:
        name: NAME.
        base_url: Where it answers, for example ``http://gpu-box:8000/v1``.
        model: The model's name there.
        key_env: Environment variable that holds the key, or None if it needs none.
        window: Context window in tokens, or None if unknown.
        price_in: USD per million input tokens, or None if unknown.
        price_out: USD per million output tokens, or None if unknown.
        stream: Whether it streams.
    """

    name: str
    base_url: str
    model: str
    key_env: str | None = None
    window: int | None = None
    price_in: Decimal | None = None
    price_out: Decimal | None = None
    stream: bool = True


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """One line of ``romanesco models``. Holds no secret: only whether a key is set.

    Attributes:
        name: ``openai``, ``embedded``, ``custom:NAME``...
        base_url: Where it answers; empty for the embedded model.
        needs_key: Whether it needs a key.
        key_set: Whether one is set.
        ready: Whether it can be called as far as can be told without calling it.
        advice: What to set or do; empty if nothing.
        note: What a user should know.
        models: Model strings that are known to it.
    """

    name: str
    base_url: str
    needs_key: bool
    key_set: bool
    ready: bool
    advice: str = ""
    note: str = ""
    models: tuple[str, ...] = field(default=())


def custom_endpoints(config: Mapping[str, Any]) -> dict[str, CustomEndpoint]:
    """Read ``[models.NAME]`` of a configuration; the sections of model strings are checked and left out.

    Raises:
        ConfigError: A setting is missing, unknown or of the wrong kind; or a key stands in the file.
    """
    table = config.get("models", {})
    if not isinstance(table, Mapping):
        raise ConfigError("'models' in the configuration must be a table", advice="Write [models.NAME] sections.")
    model_windows(config)
    return {name: _endpoint(name, settings) for name, settings in table.items() if not _names_a_model(name, settings)}


def _names_a_model(name: str, settings: Any) -> bool:
    """Whether ``[models.NAME]`` is about a model string, and not an endpoint with an address of its own."""
    return ":" in name and not (isinstance(settings, Mapping) and "base_url" in settings)


def model_windows(config: Mapping[str, Any]) -> dict[str, int]:
    """Windows of ``[models."PROVIDER:MODEL"]``, in tokens by model string.

    Raises:
        ConfigError: A section has another setting than ``window``, or its name is not that of a provider's model.
    """
    table = config.get("models", {})
    if not isinstance(table, Mapping):
        return {}
    return {name: _window(name, settings) for name, settings in table.items() if _names_a_model(name, settings)}


def _endpoint(name: str, settings: Any) -> CustomEndpoint:
    where = f"[models.{name}]"
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where} must be a table", advice="It needs base_url and model.")
    unknown = sorted(set(settings) - _SETTINGS)
    if unknown:
        # The value is left out on purpose: it may be a key.
        advice = "A key belongs in the environment: set key_env to the name of the variable that holds it."
        raise ConfigError(
            f"{where} has unknown settings: {', '.join(unknown)}", limit=_listed(_SETTINGS), advice=advice
        )
    for needed in ("base_url", "model"):
        if not isinstance(settings.get(needed), str) or not settings[needed]:
            raise ConfigError(f"{where} needs {needed}", advice="Set it to a text.")
    key_env = settings.get("key_env")
    if key_env is not None and (not isinstance(key_env, str) or not key_env.isidentifier()):
        raise ConfigError(
            f"key_env of {where} is not the name of an environment variable",
            advice="Write the variable's name, for example MY_API_KEY, not the key itself.",
        )
    window, stream = _whole_window(settings.get("window"), where), settings.get("stream", True)
    if not isinstance(stream, bool):
        raise ConfigError(f"stream of {where} must be true or false", value=repr(stream))
    return CustomEndpoint(
        name=name,
        base_url=check_url(settings["base_url"], where),
        model=settings["model"],
        key_env=key_env,
        window=window,
        price_in=_price(settings.get("price_in"), f"price_in of {where}"),
        price_out=_price(settings.get("price_out"), f"price_out of {where}"),
        stream=stream,
    )


def _window(name: str, settings: Any) -> int:
    where = f'[models."{name}"]'
    provider = name.partition(":")[0]
    if provider in ("http", "https"):
        check_url(name.partition("#")[0], "a section of [models]")  # before anything of it is shown
    if provider in (CUSTOM, EMBEDDED):
        place = f"[models.{name.partition(':')[2]}]"
        why = f"Set it in {place}." if provider == CUSTOM else "The embedded model has the window that it is made with."
        raise ConfigError(f"{where} can't set a window", advice=why)
    if provider not in (*PROVIDERS, "http", "https"):
        raise ConfigError(
            f"{where} names no provider and has no base_url",
            value=provider,
            limit=", ".join(PROVIDERS),
            advice="For an endpoint of your own give base_url and model.",
        )
    if not isinstance(settings, Mapping) or set(settings) != {"window"}:
        raise ConfigError(
            f"{where} must set window and nothing else",
            limit="window",
            advice=f'Prices go into [prices."{name}"], and keys into the environment.',
        )
    window = _whole_window(settings["window"], where)
    assert window is not None, "TOML has no null"
    return window


def _whole_window(value: Any, where: str) -> int | None:
    """A configured window in tokens, or None if none is.

    Raises:
        ConfigError: It is not a whole number above 0.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"window of {where} must be a whole number of tokens above 0", value=repr(value))
    return value


def _price(value: Any, what: str) -> Decimal | None:
    if value is None:
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        price = Decimal("NaN")
    if isinstance(value, bool) or not price.is_finite() or price < 0:
        raise ConfigError(f"{what} must be USD per million tokens, 0 or more", value=repr(value))
    return price


def check_url(url: str, where: str) -> str:
    """A base URL without its trailing slash.

    Raises:
        ConfigError: It is not an http(s) address, or it carries a password or something like a key.
    """
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_valid = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise ConfigError(
            f"The address of {where} is not an http(s) address", advice="For example http://localhost:8000/v1"
        )
    if parts.username or parts.password or _SECRET_NAME.search(parts.query):
        # Addresses are shown and journaled, so that they must hold no secret; this message does not show it either.
        raise ConfigError(
            f"The address of {where} carries a user name, a password or a key",
            advice="Put the key into an environment variable and name it as key_env.",
        )
    return url.rstrip("/")


def configured(env: Mapping[str, str], config: Mapping[str, Any]) -> list[ProviderStatus]:
    """What can be called as things are, and what to set for the rest: the embedded model, custom endpoints, providers.

    Nothing is called and no key leaves this function.

    Raises:
        ConfigError: A ``[models.NAME]`` section is wrong.
    """
    found = [_embedded_status(env)]
    for endpoint in custom_endpoints(config).values():
        key_set = endpoint.key_env is not None and bool(env.get(endpoint.key_env, "").strip())
        needs = endpoint.key_env is not None
        found.append(
            ProviderStatus(
                name=f"{CUSTOM}:{endpoint.name}",
                base_url=endpoint.base_url,
                needs_key=needs,
                key_set=key_set,
                ready=key_set or not needs,
                advice="" if key_set or not needs else f"set {endpoint.key_env}",
                models=(f"{CUSTOM}:{endpoint.name}",),
            )
        )
    found.extend(_provider_status(provider, env) for provider in PROVIDERS.values())
    return found


def _provider_status(provider: Provider, env: Mapping[str, str]) -> ProviderStatus:
    needs = bool(provider.key_env)
    key_set = key_for(provider, env) is not None
    advice = f"set {provider.key_env[0]}" if needs and not key_set else ""
    note = provider.note or ("no key needed; the server must be running" if provider.local else "")
    return ProviderStatus(
        name=provider.name,
        base_url=provider.base_url,
        needs_key=needs,
        key_set=key_set,
        ready=key_set or not needs,
        advice=advice,
        note=note,
    )


def _embedded_status(env: Mapping[str, str]) -> ProviderStatus:
    from importlib.util import find_spec

    has_engine = find_spec("xllamacpp") is not None
    has_file = find(ASSETS["smollm2"], env=env) is not None
    advice = "" if has_engine else "run: pip install 'romanesco[local]'"
    if has_engine and not has_file:
        advice = "run: romanesco models --fetch ('make setup' in a checkout)"
    return ProviderStatus(
        name=EMBEDDED,
        base_url="",
        needs_key=False,
        key_set=False,
        ready=has_engine and has_file,
        advice=advice,
        note="in this process, no network",
        models=("embedded:smollm2",),
    )


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
