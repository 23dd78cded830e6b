"""Reads the documentation: its pages, their fenced blocks, their links and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OTHERS = frozenset({"automaton.md", "exit-codes.md"})
"""Pages that are tested beside the code that they describe."""

LANGUAGES = frozenset({"python", "console", "sh", "toml", "json", "text"})
"""``python`` and ``console`` are executed, ``toml`` and ``json`` parsed, the targets in ``sh`` looked up; ``text`` is
no code."""

_FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its page, the line of its first character, its language and text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The file's name that its first line states as a comment, or ""."""
        found = re.match(r"# ([\w.-]+\.toml)\s*$", self.text.partition("\n")[0])
        return found[1] if found else ""


def pages() -> list[Path]:
    """Every page."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").glob("*.md"))]


def own_pages() -> list[Path]:
    """Every page that is tested here."""
    return [page for page in pages() if page.name not in OTHERS]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start("text")) + 1, match["language"].strip(), match["text"])
        for match in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of the links of a page."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()) for heading in _HEADING.findall(prose(page)))
    return {heading.strip().replace(" ", "-") for heading in plain}


def table(page: Path, first: str) -> dict[str, list[str]]:
    """Rows of the table whose first heading is ``first``: its cells without back quotes, by the first of them."""
    rows: dict[str, list[str]] = {}
    heading = ""
    for cells in _table_lines(page):
        if not cells:
            heading = ""
        elif not heading:
            heading = cells[0]
        elif heading == first and set(cells[0]) - set("-: "):
            rows[cells[0]] = cells
    return rows


def _table_lines(page: Path) -> Iterator[list[str]]:
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            yield [cell.strip().replace("`", "").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        else:
            yield []
