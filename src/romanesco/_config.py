"""Configuration: ``romanesco.toml`` and the environment, each value with where it came from.

A later source wins: default, the file, the environment, the command line. Secrets are never configuration: keys are
read from the environment by the adapters, and are not shown here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from romanesco.errors import ConfigError
from romanesco.task import Budget

FILE = "romanesco.toml"
DEFAULT_MODEL = "embedded:smollm2"
DEFAULT = "default"
"""Source of a value that nobody gave."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value.strip()


def _whole(value: Any) -> int:
    return _count(value, 0)


def _positive(value: Any) -> int:
    return _count(value, 1)


def _count(value: Any, least: int) -> int:
    expected = f"a whole number, {least} or more"
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(expected) from None
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(expected)
    return number


def _seconds(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("a number, 0 or more")
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError("a number, 0 or more")
    return number


def _deadline(value: Any) -> float:
    try:
        number = _seconds(value)
    except (ValueError, TypeError):
        number = 0.0
    if number == 0:  # it would be over before anything could be sent
        raise ValueError("a number of seconds above 0")
    return number


def _money(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise ValueError("an amount in US dollars, 0 or more")
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError("an amount in US dollars, 0 or more") from None
    if not number.is_finite() or number < 0:
        raise ValueError("an amount in US dollars, 0 or more")
    return number


def _one_of(*names: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return str(value)

    return read


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its name in the file (dotted), how it is read, its default and what it means."""

    name: str
    read: Callable[[Any], Any]
    default: Any
    about: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"ROMANESCO_{self.name.replace('.', '_').upper()}"


SETTINGS: tuple[Setting, ...] = (
    Setting("model", _text, DEFAULT_MODEL, "provider:model for every role that has none of its own"),
    Setting("topology", _text, "fractal", "how the team is built"),
    Setting("home", _text, None, "folder of the journal, the certificates and the locks"),
    Setting("embedder", _one_of("static"), "static", "turns texts into vectors"),
    Setting("concurrency", _positive, 8, "calls in flight at most for one endpoint and key"),
    Setting("synchronous", _one_of("NORMAL", "FULL"), "NORMAL", "SQLite's flush: FULL also survives a power cut"),
    Setting("budget.tokens", _whole, None, "tokens read and generated, per run"),
    Setting("budget.usd", _money, None, "US dollars, per run"),
    Setting("budget.minutes", _seconds, None, "active minutes, per run"),
    Setting("budget.calls", _whole, None, "requests to model servers, per run"),
    Setting("project.name", _text, None, "runs of one project share an account"),
    Setting("project.tokens", _whole, None, "tokens, all runs of the project together"),
    Setting("project.usd", _money, None, "US dollars, all runs of the project together"),
    Setting("project.calls", _whole, None, "requests, all runs of the project together"),
    Setting("day.tokens", _whole, None, "tokens, all runs of a day (UTC) together"),
    Setting("day.usd", _money, None, "US dollars, all runs of a day (UTC) together"),
    Setting("day.calls", _whole, None, "requests, all runs of a day (UTC) together"),
    Setting("deadlines.connect", _deadline, 10.0, "seconds to connect"),
    Setting("deadlines.first_token", _deadline, 120.0, "seconds until the first token"),
    Setting("deadlines.between_tokens", _deadline, 60.0, "seconds between two tokens"),
    Setting("deadlines.total", _deadline, 600.0, "seconds of a whole call"),
    Setting("retry.attempts", _positive, 3, "attempts of a call when failures may have been paid for"),
    Setting("retry.rate_limited", _positive, 12, "attempts of a call when the server says 429"),
    Setting("retry.base", _seconds, 0.5, "first back-off in seconds"),
    Setting("retry.cap", _seconds, 30.0, "longest back-off in seconds"),
)

ROLE_LIMITS: dict[str, tuple[Callable[[Any], Any], None, str]] = {
    "tokens": (_whole, None, "tokens read and generated by one role, per run"),
    "tokens_in": (_whole, None, "tokens read by one role, per run"),
    "tokens_out": (_whole, None, "tokens generated by one role, per run"),
    "usd": (_money, None, "US dollars of one role, per run"),
    "calls": (_whole, None, "requests of one role, per run"),
}
"""What ``[limits.ROLE]`` may limit: how it is read, that nothing is the default, what it means."""

OTHER_VARIABLES = frozenset({"ROMANESCO_MODELS"})
"""Variables of ours that are no settings: where the files of the embedded model are."""

TABLES = ("roles", "models", "prices", "limits", "fractal", "single")
"""Tables of the file whose names are the user's: models by role, endpoints, prices, limits by role, parameters."""


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Config:
    """What is in force.

    Attributes:
        values: By setting name.
        tables: The user's own tables, as read.
        file: The file that was read, or None.
    """

    values: dict[str, Value]
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    file: Path | None = None

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def budget(self) -> Budget:
        """The configured limits of a run."""
        minutes = self["budget.minutes"]
        return Budget(
            tokens=self["budget.tokens"],
            usd=self["budget.usd"],
            seconds=None if minutes is None else minutes * 60,
            calls=self["budget.calls"],
        )

    def shared(self, account: str) -> Budget:
        """The limits of an account across runs, ``project`` or ``day``."""
        return Budget(tokens=self[f"{account}.tokens"], usd=self[f"{account}.usd"], calls=self[f"{account}.calls"])

    def role_limits(self) -> dict[str, Budget]:
        """The limits of roles, ``[limits.ROLE]``.

        Raises:
            ConfigError: One of them is wrong.
        """
        return {role: self._limits_of(role, table) for role, table in self.tables.get("limits", {}).items()}

    def _limits_of(self, role: str, table: Any) -> Budget:
        if not isinstance(table, dict) or not table.keys() <= ROLE_LIMITS.keys():
            raise ConfigError(f"[limits.{role}] has a wrong setting", value=str(table), limit=", ".join(ROLE_LIMITS))
        source = str(self.file or "the configuration")
        return Budget(**{
            name: _checked(Setting(f"limits.{role}.{name}", *ROLE_LIMITS[name]), raw, source)
            for name, raw in table.items()
        })

    def home(self) -> Path:
        """Folder of the journal."""
        if self["home"] is not None:
            return Path(self["home"]).expanduser().absolute()
        from platformdirs import user_data_path

        return user_data_path("romanesco", appauthor=False)


def load_config(
    file: Path | None = None, env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Read the configuration.

    Args:
        file: The file; None looks for ``romanesco.toml`` in the current folder and those above it.
        env: The environment; None takes the process's.
        overrides: Values from the command line or the caller by setting name; None values are ignored.

    Raises:
        ConfigError: The file can't be read, or a setting is unknown or wrong: which, where, and what is permitted.
    """
    env = os.environ if env is None else env
    _check_names(env, overrides or {})
    path = file if file is not None else _find(Path.cwd())
    data = _read(path) if path is not None else {}
    flat, tables = _flatten(data, path)
    values: dict[str, Value] = {}
    for setting in SETTINGS:
        value = Value(setting.default, DEFAULT)
        for raw, source in (
            (flat.get(setting.name), str(path)),
            (env.get(setting.variable) or None, f"environment: {setting.variable}"),
            ((overrides or {}).get(setting.name), "command line"),
        ):
            if raw is not None:
                value = Value(_checked(setting, raw, source), source)
        values[setting.name] = value
    config = Config(values, tables, path)
    config.role_limits()  # what is wrong there is told now, by whatever reads the configuration
    return config


def _check_names(env: Mapping[str, str], overrides: Mapping[str, Any]) -> None:
    names = {setting.name for setting in SETTINGS}
    variables = {setting.variable for setting in SETTINGS} | OTHER_VARIABLES
    for given, known, where in (
        ({name for name in env if name.startswith("ROMANESCO_")}, variables, "The environment"),
        (set(overrides), names, "The call"),
    ):
        for unknown in sorted(given - known):
            raise _unknown(where, unknown, known)


def _unknown(where: str, name: str, known: Iterable[str]) -> ConfigError:
    near = get_close_matches(name, list(known), n=1)
    advice = f"Did you mean {near[0]}?" if near else "See: romanesco config."
    return ConfigError(f"{where} has a setting that does not exist", value=name, advice=advice)


def _find(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}", advice="Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", advice="Correct it there.") from None


def _flatten(data: Mapping[str, Any], path: Path | None) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    known = {setting.name for setting in SETTINGS}
    flat: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for name, value in data.items():
        if name in TABLES:
            if not isinstance(value, dict):
                raise ConfigError(f"[{name}] in {path} must be a table", value=repr(value))
            tables[name] = value
            continue
        pairs = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
        for full, inner in pairs.items():
            if full not in known:
                raise _unknown(str(path), full, {*known, *TABLES})
            flat[full] = inner
    return flat, tables


def _checked(setting: Setting, raw: Any, source: str) -> Any:
    try:
        return setting.read(raw)
    except (ValueError, TypeError) as error:
        expected = str(error) if "invalid literal" not in str(error) and "could not" not in str(error) else "a number"
        raise ConfigError(
            f"The setting {setting.name} is wrong ({source})", value=repr(raw), limit=expected, advice=setting.about
        ) from None
