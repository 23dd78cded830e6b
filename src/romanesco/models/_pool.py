"""``provider:model`` strings to adapters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from romanesco.errors import ConfigError, KeyMissing, UnknownName
from romanesco.models._configured import check_url, custom_endpoints, model_windows
from romanesco.models._protocol import ChatModel
from romanesco.models._providers import CUSTOM, EMBEDDED, PROVIDERS, Provider, key_for, published_window
from romanesco.models._types import Capabilities

EMBEDDED_MODELS = ("smollm2",)


class ModelPool:
    """The adapters of one run or one program, made at first use and closed together.

    A model string is one of

    - ``provider:model`` with a provider of :data:`PROVIDERS`, for example ``openai:gpt-5-mini`` or
      ``ollama:qwen2.5:0.5b``;
    - ``embedded:smollm2``, the model that runs in this process;
    - ``custom:NAME`` for a ``[models.NAME]`` section of the configuration;
    - ``http://host:port/v1#model`` for an endpoint that needs no key;
    - the name of a model that was added with :meth:`add`.

    Args:
        config: The configuration as read from ``romanesco.toml``; its table ``models`` is used.
        env: Where keys are looked up. Default: the process's environment, at the time of each first use.
        connections: Connections to one server at most: as many as calls may be in flight, or more.

    Raises:
        ConfigError: A ``[models.NAME]`` section is wrong.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, env: Mapping[str, str] | None = None, connections: int = 256
    ) -> None:
        self._connections = connections
        self._custom = custom_endpoints(config or {})
        self._windows = model_windows(config or {})
        self._env = os.environ if env is None else env
        self._models: dict[str, ChatModel] = {}
        self._added: set[str] = set()

    def add(self, model: ChatModel) -> None:
        """Make a model known under its own name, in place of any other of that name."""
        self._models[model.name] = model
        self._added.add(model.name)

    def get(self, name: str) -> ChatModel:
        """The adapter for a model string: the same object for the same string. Nothing is called yet.

        Raises:
            UnknownName: No such provider or model; the message lists the valid ones.
            ConfigError: The string names no provider.
            KeyMissing: The provider's key is not set; the message says which variable to set.
        """
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = self._make(name)
        return model

    async def close(self) -> None:
        """Close every adapter; all are closed even if one fails to. May be called twice.

        Raises:
            ExceptionGroup: Some adapters could not be closed.
        """
        models, self._models = list(self._models.values()), {}
        failures: list[Exception] = []
        for model in models:
            try:
                await model.close()
            except Exception as error:  # noqa: BLE001  # the others must be closed too; raised below
                failures.append(error)
        if failures:
            raise ExceptionGroup("some models could not be closed", failures)

    def _make(self, name: str) -> ChatModel:
        if name.startswith(("http://", "https://")):
            return self._from_url(name)
        provider, colon, model = name.partition(":")
        if not colon or not provider or not model:
            raise ConfigError(
                f"The model {name!r} names no provider" if name else "No model is named",
                limit=f"provider:model, with one of {self._valid()}",
                advice=self._advice(name),
            )
        if provider == EMBEDDED:
            return self._embedded(name, model)
        if provider == CUSTOM:
            return self._from_config(name, model)
        if provider in PROVIDERS:
            return self._from_provider(name, PROVIDERS[provider], model)
        raise UnknownName(
            f"No provider is called {provider!r}",
            limit=self._valid(),
            advice="For another server that speaks the OpenAI wire use http://host:port/v1#model "
            "or a [models.NAME] section in romanesco.toml.",
        )

    def _advice(self, name: str) -> str:
        if name in self._custom:
            return f"Write custom:{name}."
        if name in EMBEDDED_MODELS:
            return f"Write embedded:{name}."
        return "Say who serves it, for example openai:gpt-5-mini, ollama:llama3.2 or embedded:smollm2."

    def _valid(self) -> str:
        return ", ".join((
            EMBEDDED,
            *PROVIDERS,
            *(f"{CUSTOM}:{name}" for name in self._custom),
            *sorted(self._added),
        ))

    def _embedded(self, name: str, model: str) -> ChatModel:
        if model not in EMBEDDED_MODELS:
            raise UnknownName(
                f"No embedded model is called {model!r}",
                limit=", ".join(f"{EMBEDDED}:{one}" for one in EMBEDDED_MODELS),
            )
        from romanesco.models._embedded import EmbeddedModel

        return EmbeddedModel(name=name)

    def _from_provider(self, name: str, provider: Provider, model: str) -> ChatModel:
        key = key_for(provider, self._env)
        if provider.key_env and key is None:
            raise _key_missing(name, " or ".join(provider.key_env))
        variable = provider.key_env[0] if provider.key_env else None
        return _openai(
            name,
            model,
            provider.base_url,
            key,
            connections=self._connections,
            variable=variable,
            capabilities=provider.capabilities,
            window=self._windows.get(name),
            usual_window=None if provider.local else published_window(provider.name, model),
        )

    def _from_config(self, name: str, wanted: str) -> ChatModel:
        endpoint = self._custom.get(wanted)
        if endpoint is None:
            raise UnknownName(
                f"The configuration has no [models.{wanted}]",
                limit=", ".join(f"{CUSTOM}:{one}" for one in self._custom) or "no custom models are configured",
                advice="Add the section to romanesco.toml with base_url and model.",
            )
        key = None
        if endpoint.key_env is not None:
            key = self._env.get(endpoint.key_env, "").strip() or None
            if key is None:
                raise _key_missing(name, endpoint.key_env)
        return _openai(
            name,
            endpoint.model,
            endpoint.base_url,
            key,
            connections=self._connections,
            variable=endpoint.key_env,
            stream=endpoint.stream,
            window=endpoint.window,
        )

    def _from_url(self, name: str) -> ChatModel:
        url, _, model = name.partition("#")
        if not model:
            raise ConfigError(
                f"The address {urlsplit(url).hostname or 'given'} names no model",
                advice="Write it after a #, for example http://localhost:8000/v1#my-model",
            )
        address, window = check_url(url, "the model"), self._windows.get(name)
        return _openai(name, model, address, None, connections=self._connections, window=window)


def _key_missing(name: str, variable: str) -> KeyMissing:
    return KeyMissing(
        f"No key is set for {name}",
        advice=f"Set the environment variable {variable}, or choose another model: "
        "embedded:smollm2 needs no key ('romanesco models' lists all).",
    )


def _openai(
    name: str,
    model: str,
    base_url: str,
    api_key: str | None,
    *,
    connections: int,
    variable: str | None = None,
    stream: bool = True,
    capabilities: Capabilities | None = None,
    window: int | None = None,
    usual_window: int | None = None,
) -> ChatModel:
    from romanesco.models._openai import OpenAICompatible

    return OpenAICompatible(
        name=name,
        model=model,
        base_url=base_url,
        api_key=api_key,
        key_variable=variable,
        stream=stream,
        capabilities=capabilities,
        window=window,
        usual_window=usual_window,
        max_connections=connections,
    )
