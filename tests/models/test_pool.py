"""Model strings, providers, keys: what is valid, what is said when it is not, and that keys never show."""

from __future__ import annotations

import copy
import os
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import load_config
from romanesco.errors import ConfigError, KeyMissing, ModelError, RomanescoError, UnknownName
from romanesco.models import (
    PROVIDERS,
    ChatModel,
    ModelPool,
    ProviderStatus,
    ReplayModel,
    ScriptedModel,
    configured,
    custom_endpoints,
)
from romanesco.models._providers import published_window
from romanesco.testing import FakeServer, Scenario

CANARY = "sk-canary-5f0e7d"
BOX: dict[str, Any] = {"models": {"box": {"base_url": "http://gpu-box:8000/v1/", "model": "big", "key_env": "BOX_KEY"}}}


def test_a_provider_string_gives_one_adapter() -> None:
    pool = ModelPool(env={"OPENAI_API_KEY": CANARY})
    model = pool.get("openai:gpt-5-mini")
    assert isinstance(model, ChatModel)
    assert model.name == "openai:gpt-5-mini"
    assert pool.get("openai:gpt-5-mini") is model
    assert pool.get("openai:gpt-5") is not model


@pytest.mark.parametrize("name", [name for name, provider in PROVIDERS.items() if provider.key_env])
def test_a_missing_key_names_the_variable(name: str) -> None:
    with pytest.raises(KeyMissing) as caught:
        ModelPool(env={}).get(f"{name}:some-model")
    assert f"Set the environment variable {PROVIDERS[name].key_env[0]}" in str(caught.value)


@pytest.mark.parametrize("name", [name for name, provider in PROVIDERS.items() if not provider.key_env])
def test_local_servers_need_no_key(name: str) -> None:
    assert ModelPool(env={}).get(f"{name}:qwen2.5:0.5b").name == f"{name}:qwen2.5:0.5b"


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_blank_key_is_a_missing_key(blank: str) -> None:
    with pytest.raises(KeyMissing):
        ModelPool(env={"OPENAI_API_KEY": blank}).get("openai:x")


def test_keys_are_looked_up_at_first_use() -> None:
    env: dict[str, str] = {}
    pool = ModelPool(env=env)
    with pytest.raises(KeyMissing):
        pool.get("groq:x")
    env["GROQ_API_KEY"] = CANARY
    assert pool.get("groq:x").name == "groq:x"


def test_an_unknown_provider_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        ModelPool(BOX, env={}).get("opnai:gpt-5")
    for name in ("embedded", "custom:box", *PROVIDERS):
        assert name in str(caught.value)


@pytest.mark.parametrize("name", ["", "gpt-5", "openai:", ":gpt-5"])
def test_no_provider_is_never_a_paid_default(name: str) -> None:
    with pytest.raises(ConfigError, match="provider:model"):
        ModelPool(env={"OPENAI_API_KEY": CANARY}).get(name)


def test_a_configured_or_embedded_name_alone_is_put_right() -> None:
    pool = ModelPool(BOX, env={})
    with pytest.raises(ConfigError, match="Write custom:box"):
        pool.get("box")
    with pytest.raises(ConfigError, match="Write embedded:smollm2"):
        pool.get("smollm2")


async def test_the_embedded_model_is_made_without_starting_it() -> None:
    pool = ModelPool(env={})
    assert pool.get("embedded:smollm2").name == "embedded:smollm2"
    with pytest.raises(UnknownName, match="embedded:smollm2"):
        pool.get("embedded:gpt-5")
    await pool.close()


def test_custom_endpoints_come_from_the_configuration() -> None:
    pool = ModelPool(BOX, env={"BOX_KEY": CANARY})
    assert pool.get("custom:box").name == "custom:box"
    endpoint = custom_endpoints(BOX)["box"]
    assert (endpoint.base_url, endpoint.model) == ("http://gpu-box:8000/v1", "big")
    with pytest.raises(KeyMissing, match="BOX_KEY"):
        ModelPool(BOX, env={}).get("custom:box")
    with pytest.raises(UnknownName, match="custom:box"):
        pool.get("custom:bux")


async def test_a_configured_window_is_in_force_and_the_rest_is_what_the_server_says() -> None:
    async with FakeServer(scenario=Scenario(flavour="vllm", context_limit=9000)) as server:
        section = {"base_url": server.url, "model": "fake", "window": 4096}
        string = f"{server.url}#fake"
        pool = ModelPool({"models": {"m": section, string: {"window": 5000}}}, env={})
        found = {name: await pool.get(name).capabilities() for name in ("custom:m", string)}
        await pool.close()
        assert server.ledger.free["/v1/models"] == 2
    assert (found["custom:m"].window, found[string].window) == (4096, 5000)
    assert found["custom:m"].tokenizer and found[string].tokenizer


async def test_a_configured_window_changes_nothing_else_of_a_plan(tmp_path: Path) -> None:
    async with FakeServer(scenario=Scenario(flavour="llamacpp", context_limit=8192)) as server:
        bills = []
        for window in ("", "window = 8192"):
            file = tmp_path / "romanesco.toml"
            file.write_text(f'[models.box]\nbase_url = "{server.url}"\nmodel = "fake"\n{window}\n', encoding="utf-8")
            config = load_config(file, env={}, overrides={"home": str(tmp_path)})
            bills.append((await romanesco.plan("Grow a bakery.", model="custom:box", config=config)).bill)
    assert bills[0] == bills[1]


async def test_a_named_providers_window_is_as_configured_else_as_published_else_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    published = published_window("openai", "gpt-5-mini")
    assert published is not None and published > 100_000
    async with FakeServer() as server:
        monkeypatch.setitem(PROVIDERS, "openai", replace(PROVIDERS["openai"], base_url=server.url))
        told = {}
        for name, section in (
            ("gpt-5-mini", ""),
            ("nobody-knows-me", ""),
            ("gpt-5-mini", '[models."openai:gpt-5-mini"]\nwindow = 3000\n'),
        ):
            file = tmp_path / "romanesco.toml"
            file.write_text(section, encoding="utf-8")
            config = load_config(file, env={}, overrides={"home": str(tmp_path)})
            plan = await romanesco.plan("Grow a bakery.", model=f"openai:{name}", config=config)
            told[name, bool(section)] = " ".join(plan.reasons)
    assert f"for a window of {published:,} tokens" in told["gpt-5-mini", False]
    assert "unknown; planned for 8,192" in told["nobody-knows-me", False]
    assert "for a window of 3,000 tokens" in told["gpt-5-mini", True]


async def test_what_is_known_of_a_provider_is_said_without_asking_it() -> None:
    pool = ModelPool(env={"DEEPSEEK_API_KEY": CANARY, "ANTHROPIC_API_KEY": CANARY})
    for name in ("deepseek:deepseek-chat", "anthropic:claude-sonnet-4-5"):
        known = await pool.get(name).capabilities()
        assert (known.json_schema, known.tools) == (False, True)
        assert known.window == published_window(*name.split(":"))
        assert known.window is not None
    assert published_window("nobody", "gpt-5") is None
    await pool.close()


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"openai:gpt-5": {"window": 0}}, 'window of \\[models."openai:gpt-5"\\]'),
        ({"openai:gpt-5": {"window": 1, "price_in": 2}}, "must set window and nothing else"),
        ({"openai:gpt-5": {"api_key": CANARY}}, "must set window and nothing else"),
        ({"openai:gpt-5": 3}, "must set window and nothing else"),
        ({"opnai:gpt-5": {"window": 1000}}, "names no provider and has no base_url"),
        ({"custom:box": {"window": 1000}}, r"Set it in \[models.box\]"),
        ({"embedded:smollm2": {"window": 1000}}, "The embedded model has the window"),
        ({f"http://localhost/v1?key={CANARY}#m": {"window": 1000}}, "carries a user name, a password or a key"),
    ],
)
def test_a_wrong_section_of_a_model_string_is_refused_without_its_secret(section: dict[str, Any], says: str) -> None:
    for read in (ModelPool, custom_endpoints):
        with pytest.raises(ConfigError, match=says) as caught:
            read({"models": section})
        assert CANARY not in str(caught.value)


def test_an_endpoint_may_have_a_colon_in_its_name() -> None:
    section = {"base_url": "http://localhost:1/v1", "model": "m"}
    assert list(custom_endpoints({"models": {"gpu:1": section}})) == ["gpu:1"]


def test_prices_are_decimals_and_unknown_is_none() -> None:
    section = {"base_url": "http://localhost:1/v1", "model": "m", "price_in": 0.1, "price_out": "2.50"}
    endpoint = custom_endpoints({"models": {"m": section}})["m"]
    assert (endpoint.price_in, endpoint.price_out) == (Decimal("0.1"), Decimal("2.50"))
    del section["price_in"]
    assert custom_endpoints({"models": {"m": section}})["m"].price_in is None


def test_an_address_with_a_model_needs_no_configuration() -> None:
    name = "http://localhost:9000/v1#my/model"
    assert ModelPool(env={}).get(name).name == name
    with pytest.raises(ConfigError, match="after a #"):
        ModelPool(env={}).get("http://localhost:9000/v1")


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": ""},
        {"base_url": "localhost:8000"},
        {"base_url": "ftp://localhost/v1"},
        {"base_url": "http://localhost:notaport/v1"},
        {"base_url": f"http://user:{CANARY}@localhost/v1"},
        {"base_url": f"http://localhost/v1?key={CANARY}"},
        {"model": None},
        {"api_key": CANARY},
        {"key_env": CANARY},
        {"window": 0},
        {"window": True},
        {"window": "2048"},
        {"price_in": -1},
        {"price_in": "cheap"},
        {"price_out": "NaN"},
        {"stream": "yes"},
    ],
)
def test_br_125_a_wrong_setting_is_named_without_its_secret(change: dict[str, Any]) -> None:
    section = {"base_url": "http://localhost:1/v1", "model": "m", **change}
    with pytest.raises(ConfigError) as caught:
        ModelPool({"models": {"mine": section}})
    assert next(iter(change)) in str(caught.value) or "address" in str(caught.value)
    assert "models.mine" in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("config", [{"models": 3}, {"models": {"a": "b"}}])
def test_sections_of_the_wrong_kind(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a table"):
        ModelPool(config)


def test_br_125_keys_show_in_no_error_no_repr_and_no_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env = {name: CANARY for provider in PROVIDERS.values() for name in provider.key_env} | {"BOX_KEY": CANARY}
    pool = ModelPool(BOX, env=env)
    shown = [repr(pool), repr(configured(env, BOX)), repr(PROVIDERS)]
    for name in (*(f"{name}:m" for name in PROVIDERS), "custom:box", "http://localhost:1/v1#m"):
        model = pool.get(name)
        shown += [repr(model), str(model), model.name, model.endpoint]
    for wrong in ("nobody:x", "custom:nobody", f"http://x:{CANARY}@localhost/v1#m"):
        with pytest.raises(RomanescoError) as caught:
            pool.get(wrong)
        shown += [str(caught.value), repr(caught.value)]
    assert [text for text in shown if CANARY in text] == []


def test_added_models_are_found_by_their_name() -> None:
    pool = ModelPool(env={})
    scripted, replay = ScriptedModel("x"), ReplayModel({}, name="openai:gpt-5")
    pool.add(scripted)
    pool.add(replay)
    assert pool.get("scripted:test") is scripted
    assert pool.get("openai:gpt-5") is replay
    with pytest.raises(UnknownName, match="scripted:test"):
        pool.get("scripted:other")


async def test_close_closes_all_even_if_one_fails() -> None:
    class Broken(ScriptedModel):
        async def close(self) -> None:
            raise ModelError("can't close")

    pool = ModelPool(env={})
    last = ScriptedModel("x", name="scripted:b")
    pool.add(Broken("x", name="scripted:a"))
    pool.add(last)
    with pytest.raises(ExceptionGroup, match="could not be closed"):
        await pool.close()
    assert last.closed
    await pool.close()


def test_configured_says_what_to_set(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": CANARY, "ROMANESCO_MODELS": str(tmp_path)}
    statuses = {status.name: status for status in configured(env, BOX)}
    assert statuses["openai"] == ProviderStatus("openai", "https://api.openai.com/v1", True, True, True)
    assert statuses["groq"].advice == "set GROQ_API_KEY"
    assert not statuses["groq"].ready
    assert statuses["ollama"].ready
    assert not statuses["ollama"].needs_key
    assert statuses["custom:box"].advice == "set BOX_KEY"
    assert statuses["custom:box"].models == ("custom:box",)
    assert statuses["embedded"].models == ("embedded:smollm2",)


def test_the_embedded_model_is_ready_where_its_file_is() -> None:
    status = configured(os.environ, {})[0]
    assert (status.name, status.ready, status.advice) == ("embedded", True, "")


def test_the_embedded_model_without_its_file_says_how_to_fetch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romanesco.models._configured.find", lambda _asset, *, env: None)
    status = configured({}, {})[0]
    assert (status.ready, "romanesco models --fetch" in status.advice) == (False, True)


def test_br_058_specifications_are_plain_data() -> None:
    for value in (PROVIDERS["openai"], custom_endpoints(BOX)["box"], configured({}, BOX)[0]):
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value


def test_addresses_are_valid_and_unique() -> None:
    addresses = [provider.base_url for provider in PROVIDERS.values()]
    assert len(set(addresses)) == len(addresses)
    assert all(url.startswith("https://") or "://localhost:" in url for url in addresses)
    assert all(provider.local == ("localhost" in provider.base_url) for provider in PROVIDERS.values())
