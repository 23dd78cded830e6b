"""A run that goes on, drawn: header, members by node, and what is spent of the bill. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from romanesco.interfaces.cli._grid import wrapped
from romanesco.interfaces.cli._screen import plain
from romanesco.interfaces.cli._spent import spent_parts, time_part
from romanesco.interfaces.cli._text import count, one_line
from romanesco.interfaces.cli._view import DONE, FAILED, THINKING, WAITING, Member, View

_STYLES = {WAITING: "dim", THINKING: "bold cyan", DONE: "green", FAILED: "red"}
_ORDER = (THINKING, FAILED, WAITING, DONE)
_NAME = 24
_BRACKETS = re.compile(r'\\[nt"]|[{}\[\]"]')
"""What is left out of text that arrives as JSON, so that it can be read."""


def draw(view: View, *, elapsed: float, width: int, height: int, note: str = "") -> RenderableType:
    """The whole picture.

    Args:
        view: The run.
        elapsed: Active seconds now.
        width: Columns of the screen.
        height: Lines of the screen.
        note: A line to show below, for example that the run is stopping.
    """
    tree = Tree(_label(view), guide_style="dim")
    below = [*questions(view), _spent(view, elapsed), *([plain((note, "yellow"))] if note else [])]
    room = max(4, height - 5 - sum(len(wrapped(part, width)) for part in below))
    nodes = _by_node(view)
    shown = _chosen(nodes, room)
    branches = {"/": tree}
    for node in sorted(shown):
        above = branches.get(node.rpartition("/")[0] or "/", tree)
        branch = branches[node] = tree if node == "/" else above.add(plain((node, "bold")))
        _add(branch, nodes[node], width, max(3, room // len(shown) - 1))
    hidden = [node for node in nodes if node not in shown]
    if hidden:
        tree.add(
            plain((f"and {count(len(hidden), 'more node')}: {_states(m for n in hidden for m in nodes[n])}", "dim"))
        )
    return Group(tree, *(line for part in below for line in wrapped(part, width)))


def _label(view: View) -> Text:
    where = ", ".join(filter(None, (view.mode, _round(view))))
    status = view.status or where or ("working" if view.members else "starting")
    return plain((view.plan.topology, "bold"), "  ", (view.run, "dim"), "  ", (status, "bold cyan"))


def _round(view: View) -> str:
    if not view.round or view.mode == "convergent":
        return ""
    return f"round {view.round}" + (f" of at most {view.rounds}" if view.rounds else "")


def _by_node(view: View) -> dict[str, list[Member]]:
    nodes: dict[str, list[Member]] = {}
    for member in view.members.values():
        nodes.setdefault(member.node, []).append(member)
    return nodes


def _chosen(nodes: Mapping[str, Sequence[Member]], room: int) -> set[str]:
    """The nodes to show: all if they fit, else the busiest ones, the root among them."""
    lines = {node: 1 + min(3, len(members)) for node, members in nodes.items()}
    if sum(lines.values()) <= room:
        return set(nodes)
    chosen: set[str] = set()
    for node in sorted(nodes, key=lambda node: (node != "/", min(_ORDER.index(one.state) for one in nodes[node]))):
        room -= lines[node]
        if room <= 0:
            break
        chosen.add(node)
    return chosen


def _states(members: Iterable[Member]) -> str:
    """How many are in which state."""
    found = Counter(member.state for member in members)
    return ", ".join(f"{found[state]:,} {state}" for state in _ORDER if found[state])


def _add(branch: Tree, members: Sequence[Member], width: int, room: int) -> None:
    """Members as branches; those that don't fit are counted, the busy ones are shown."""
    if len(members) > room:
        ranked = sorted(members, key=lambda member: _ORDER.index(member.state))
        chosen, rest = ranked[: room - 1], ranked[room - 1 :]
    else:
        chosen, rest = list(members), []
    name_width = min(_NAME, max((len(member.role) for member in chosen), default=0))
    for member in chosen:
        branch.add(_member(member, name_width, width - 6))
    if rest:
        branch.add(plain((f"and {len(rest):,} more: {_states(rest)}", "dim")))


def _member(member: Member, name_width: int, width: int) -> Text:
    style = _STYLES[member.state]
    text = plain((one_line(member.role, _NAME).ljust(name_width), ""), "  ", (member.state.ljust(8), style))
    if member.state == THINKING:
        out = f" x{len(member.out)}" if len(member.out) > 1 else ""
        text.append_text(plain(f"  {member.purpose}{out}"))
        if member.pieces:
            text.append_text(plain(f"  {member.pieces:,} tokens"))
        room = width - len(text.plain) - 3
        if room >= 12 and member.tail:
            text.append_text(plain(("  " + one_line(_BRACKETS.sub(" ", member.tail))[-room:], "dim")))
    elif member.state == FAILED:
        text.append_text(plain(("  " + f"{member.purpose}: {member.error}", "red")))
    elif member.calls:
        text.append_text(plain((f"  {member.purpose}, {count(member.calls, 'call')}", "dim")))
    text.truncate(width, overflow="ellipsis")
    return text


def questions(view: View) -> list[Text]:
    """Questions that wait, with how to answer."""
    return [
        plain(
            (f"question {one.id}: ", "bold yellow"),
            one_line(one.text, 200),
            f" [{' / '.join(one.choices)}]" if one.choices else "",
            (f"  answer it: romanesco answer {view.run} {one.id} TEXT", "dim"),
        )
        for one in view.questions.values()
    ]


def _spent(view: View, elapsed: float) -> Text:
    return plain((spent_line(view), "bold"), f"  {time_part(elapsed, view.budget)}")


def spent_line(view: View) -> str:
    """What is spent, of what at most."""
    return "  ".join(spent_parts(view.calls, view.tokens, view.usd, view.plan.bill, view.budget))
