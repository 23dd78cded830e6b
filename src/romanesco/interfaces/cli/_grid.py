"""Tables and labelled lines that keep their shape at any width: nothing is cut without a mark, no command is broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from romanesco.interfaces.cli._text import clean, fit

_BETWEEN = 3
_LEAST = 20
"""Columns that a cell with words in it needs to be readable."""
_CUT_LEAST = 16
_HANG_LEAST = 24
_INDENT = "  "
_WORD = re.compile("[!-~]+")
_PIECE = re.compile(r"\s*\S+\s*")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label and what it says. What does not fit beside the label goes on below, indented.

    Attributes:
        label: With the spaces that follow it.
        body: What it says.
        style: The label's style.
        whole: The body is to be copied (a command, a hash, a path): it is never broken, but put on a line of its own.
    """

    label: str
    body: Text | str
    style: str = "dim"
    whole: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        body = self.body if isinstance(self.body, Text) else Text(clean(self.body))
        label = Text(clean(self.label), self.style)
        line = Text.assemble(label, body)
        if options.no_wrap or max(map(cell_len, line.plain.split("\n"))) <= options.max_width:
            yield line
        elif self.whole:
            yield from (*wrapped(label, options.max_width), _kept(Text.assemble(_INDENT, body)))
        else:
            yield from _hanging(label, body, options.max_width)


def wrapped(text: Text, width: int) -> list[Text]:
    """Lines of at most so many columns, broken between words.

    A word of plain characters that is too long, such as a hash or an address, stays in one piece, so that it can be
    copied; a text without spaces, as some languages are written, is broken anywhere.
    """
    found: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        for part in line.divide(_breaks(line.plain, width)):
            part.rstrip()
            found.append(_kept(part))
    return found


def _breaks(line: str, width: int) -> list[int]:
    """Where to break a line."""
    breaks: list[int] = []
    column = 0
    for word in _PIECE.finditer(line):
        start, piece = word.start(), word.group()
        if column and column + cell_len(piece.rstrip()) > width:
            breaks.append(start)
            column = 0
        if cell_len(piece.rstrip()) > width and not piece.isascii():
            for part in chop_cells(piece, width)[:-1]:
                start += len(part)
                breaks.append(start)
        column += cell_len(line[start : word.end()])
    return breaks


def _hanging(label: Text, body: Text, width: int) -> Iterable[Text]:
    """The body wrapped beside its label, or below it where there is too little room beside."""
    beside = width - cell_len(label.plain) >= _HANG_LEAST
    indent = " " * cell_len(label.plain) if beside else _INDENT
    if not beside:
        yield from wrapped(label, width)
    for number, line in enumerate(wrapped(body, max(1, width - len(indent)))):
        yield _kept(Text.assemble(label if beside and number == 0 else indent, line))


def _kept(line: Text) -> Text:
    """A line that is not wrapped any more."""
    line.no_wrap, line.overflow = True, "ignore"
    return line


class Grid:
    """A table without a frame. Where its columns don't fit side by side, each row becomes a few lines.

    Args:
        columns: Names.
        right: Columns of numbers.
        whole: Columns that are not wrapped either; the first column and those of numbers never are.
        spare: Columns that may be left out where there is too little room, in this order; the reader is told.
        cut: Columns whose texts may be cut, with a mark.
        lines: Whether there is room between the rows.
    """

    def __init__(
        self,
        *columns: str,
        right: Iterable[str] = (),
        whole: Iterable[str] = (),
        spare: Sequence[str] = (),
        cut: Iterable[str] = (),
        lines: bool = False,
    ) -> None:
        self._columns = columns
        self._right = frozenset(right)
        self._whole = self._right | {columns[0], *whole}
        self._spare = tuple(spare)
        self._cut = frozenset(cut)
        self._lines = lines
        self._rows: list[tuple[list[Text], str] | None] = []

    def add_row(self, *cells: Text | str, style: str = "") -> None:
        """Add a row; texts are cleaned."""
        self._rows.append(([cell if isinstance(cell, Text) else Text(clean(cell)) for cell in cells], style))

    def add_section(self) -> None:
        """Set the rows that follow apart."""
        self._rows.append(None)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        shown = list(range(len(self._columns)))
        left_out: list[str] = []
        for name in self._spare:
            if self._least_total(shown) <= room:
                break
            shown.remove(self._columns.index(name))
            left_out.append(name)
        if self._least_total(shown) > room:
            yield from self._blocks(room)
            return
        yield self._table(shown, room)
        if left_out:
            told = f"Left out, for a wider screen or --json: {', '.join(left_out)}."
            yield from wrapped(Text(told, "dim"), room)

    def _cells(self, number: int) -> list[Text]:
        return [row[0][number] for row in self._rows if row is not None]

    def _natural(self, number: int) -> int:
        lines = [line for cell in self._cells(number) for line in cell.plain.split("\n")]
        return max(map(cell_len, (self._columns[number], *lines)))

    def _least(self, number: int) -> int:
        natural, name = self._natural(number), self._columns[number]
        if name in self._whole:
            return natural
        if name in self._cut:
            return min(natural, _CUT_LEAST)
        words = [len(word) for cell in self._cells(number) for word in _WORD.findall(cell.plain)]
        return min(natural, max((_LEAST, *words)))

    def _least_total(self, shown: Sequence[int]) -> int:
        return sum(map(self._least, shown)) + _BETWEEN * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], room: int) -> list[int]:
        """As wide as the cells are; the widest columns that may give way do so until all fit."""
        widths, least = list(map(self._natural, shown)), list(map(self._least, shown))
        for _ in range(sum(widths) + _BETWEEN * (len(shown) - 1) - room):
            slack = [width if width > low else 0 for width, low in zip(widths, least, strict=True)]
            widths[slack.index(max(slack))] -= 1
        return widths

    def _table(self, shown: Sequence[int], room: int) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", show_lines=self._lines)
        widths = self._widths(shown, room)
        for number, width in zip(shown, widths, strict=True):
            name = self._columns[number]
            justify = "right" if name in self._right else "left"
            table.add_column(name, justify=justify, width=width, no_wrap=name in self._whole)  # type: ignore[arg-type]
        for row in self._rows:
            if row is None:
                table.add_section()
                continue
            cells = [self._fitted(number, row[0][number], width) for number, width in zip(shown, widths, strict=True)]
            table.add_row(*cells, style=row[1] or None)
        return table

    def _fitted(self, number: int, cell: Text, width: int) -> Text:
        if self._columns[number] not in self._cut or cell_len(cell.plain) <= width:
            return cell
        return Text(fit(cell.plain, width), cell.style)

    def _blocks(self, room: int) -> Iterable[Text]:
        """Each row as a title, a line of its short cells, and a paragraph for each of its long ones."""
        for row in self._rows:
            if row is None:
                continue
            title, *cells = row[0]
            yield _kept(Text(title.plain, "bold"))
            named = [(name, cell) for name, cell in zip(self._columns[1:], cells, strict=True) if cell.plain]
            short = [f"{name} {cell.plain}" for name, cell in named if name in self._whole]
            if short:
                yield from _hanging(Text(_INDENT), Text(", ".join(short), row[1]), room)
            for name, cell in named:
                if name not in self._whole:
                    body = Text.assemble((f"{name}\n" if "\n" in cell.plain else f"{name} ") if name else "", cell)
                    yield from _hanging(Text(_INDENT), body, room)
            if self._lines:
                yield Text("")
