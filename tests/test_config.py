"""Configuration: which source wins, and what is said about a wrong setting."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from romanesco import Budget, load_config
from romanesco._config import SETTINGS
from romanesco.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "romanesco.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_later_source_wins_and_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, 'model = "ollama:a"\ntopology = "single"\nconcurrency = 3\n')
    config = load_config(path, env={"ROMANESCO_MODEL": "ollama:b", "ROMANESCO_TOPOLOGY": ""}, overrides={"home": "/h"})
    assert (config["model"], config["topology"], config["concurrency"]) == ("ollama:b", "single", 3)
    assert config.values["model"].source == "environment: ROMANESCO_MODEL"
    assert config.values["topology"].source == str(path)
    assert config.values["home"].source == "command line"
    assert config.values["retry.attempts"].source == "default"


def test_the_file_is_found_in_a_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "[budget]\nusd = 0.10\nminutes = 2\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    config = load_config(env={})
    assert config.file == path
    assert config.budget().usd == Decimal("0.1")
    assert config.budget().seconds == 120


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("colour = 1", "colour"),
        ("[budget]\ntoken = 1", "budget.token"),
        ("concurrency = 0", "1 or more"),
        ("[budget]\ntokens = -1", "0 or more"),
        ("[budget]\ntokens = true", "whole number"),
        ("[budget]\nusd = nan", "US dollars"),
        ('synchronous = "SOMETIMES"', "NORMAL, FULL"),
        ("model = 3", "a text"),
        ("roles = 3", "must be a table"),
        ("not toml at all", "not valid TOML"),
        ('[limits.friction-engine]\ntokens = "abc"', "limits.friction-engine.tokens is wrong"),
        ("[limits.friction-engine]\ntokens = -3", "a whole number, 0 or more"),
        ('[limits.friction-engine]\nusd = "much"', "an amount in US dollars, 0 or more"),
        ("[deadlines]\ntotal = inf", "above 0"),
        ("[deadlines]\ntotal = 0", "above 0"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["[limits]\nx = 3\n", "[limits.x]\nminutes = 3\n"])
def test_what_a_role_may_be_limited_by_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"\[limits\.x\] has a wrong setting.*limit tokens, tokens_in"):
        load_config(written(tmp_path, text), env={})


def test_the_limits_of_a_role_are_read_like_settings(tmp_path: Path) -> None:
    path = written(tmp_path, '[limits.x]\ntokens = "30000"\nusd = 0.1\n')
    assert load_config(path, env={}).role_limits() == {"x": Budget(tokens=30_000, usd=Decimal("0.1"))}


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"ROMANESCO_BUDGET_TOKENS.*many"):
        load_config(Path("/dev/null"), env={"ROMANESCO_BUDGET_TOKENS": "many"})


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(tmp_path / "none.toml", env={})


def test_every_setting_has_a_default_that_its_own_reader_takes() -> None:
    for setting in SETTINGS:
        if setting.default is not None:
            assert setting.read(setting.default) == setting.default
        assert setting.about


def test_zero_is_a_limit() -> None:
    assert load_config(Path("/dev/null"), env={"ROMANESCO_BUDGET_CALLS": "0"}).budget().calls == 0
