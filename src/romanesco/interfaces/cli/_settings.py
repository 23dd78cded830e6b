"""``config``: what is in force and where it comes from."""

from __future__ import annotations

from typing import Any

from romanesco.interfaces.cli import _options as o


def config(json: o.Json = False) -> int:
    """Show every setting, and where it comes from."""
    from romanesco._config import SETTINGS, load_config
    from romanesco.interfaces.cli._grid import Grid, Labelled
    from romanesco.interfaces.cli._screen import Screen, plain
    from romanesco.models import custom_endpoints

    screen = Screen(json=json)
    found = load_config()
    custom_endpoints(found.tables)  # refuses a key that stands in the file before anything of it is shown
    rows = [(one, found.values[one.name]) for one in SETTINGS]
    home = str(found.home())

    def data() -> dict[str, Any]:
        settings = {
            one.name: {
                "value": home if one.name == "home" else _plain(held.value),
                "source": held.source,
                "variable": one.variable,
                "about": one.about,
            }
            for one, held in rows
        }
        return {"file": None if found.file is None else str(found.file), "settings": settings, "tables": found.tables}

    def render() -> list[Any]:
        table = Grid("setting", "value", "from", "meaning", whole=("value", "from"), spare=("meaning",))
        file = "none found" if found.file is None else str(found.file)
        parts = [Labelled("file  ", file, whole=True), Labelled("home  ", home, whole=True), table]
        for one, held in rows:
            # A path is too long for a cell: that of home stands above. A variable is told by its setting's name.
            value = "(above)" if one.name == "home" else "" if held.value is None else str(held.value)
            source = "file" if found.file is not None and held.source == str(found.file) else held.source
            changed = "bold" if held.source != "default" else ""
            table.add_row(plain((one.name, changed)), value, source.partition(":")[0], plain((one.about, "dim")))
        for name, entries in found.tables.items():
            parts += [plain((f"[{name}]", "bold"), f" {key} = {value}") for key, value in entries.items()]
        parts.append(plain(("Every setting can be set as ROMANESCO_NAME, for example ROMANESCO_BUDGET_TOKENS.", "dim")))
        return parts

    screen.result(data, render)
    return 0


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
