"""What a member is shown of others' texts: by their labels, and cut where the window has no room for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from romanesco.topologies.fractal._bill import Texts
from romanesco.topologies.fractal._minutes import Minutes
from romanesco.topologies.fractal._prompts import MatrixRow, Shown, label
from romanesco.topologies.fractal._requests import Requests
from romanesco.topologies.fractal._room import Text, Written, cut_entries, fitted


@dataclass(frozen=True, slots=True)
class Sight:
    """Shows texts of a node to its members.

    Attributes:
        requests: The parameters of the plan.
        texts: The room that the plan gave to each text.
        minutes: What the node has so far; only read here.
    """

    requests: Requests
    texts: Texts
    minutes: Minutes

    def proposals(self, ids: Sequence[str], reader: str, spare: int) -> dict[str, Shown]:
        """Proposals by id.

        Args:
            ids: The proposals.
            reader: Name of the model that reads them.
            spare: Tokens of the window that the plan left free in this kind of prompt.
        """
        shown = [self._proposal(one) for one in ids]
        # Members who gave nothing leave their room, except in a critique's prompt, which is planned for one proposal.
        planned = self.texts.proposals if len(ids) > 1 else [text.piece for text in shown]
        room = spare + sum(piece.room(reader) for piece in planned)
        found = fitted(shown, reader, room)
        return {one: Shown(self._label(one), text) for one, (text,) in zip(ids, found, strict=True)}

    def matrix(
        self, rows: Sequence[MatrixRow], entries: Sequence[str], reader: str, spare: int
    ) -> tuple[list[MatrixRow], list[str]]:
        """The matrix and the ledger's entries for the decision, or for the wrap-up, which has no entries.

        Args:
            rows: The matrix.
            entries: The ledger.
            reader: Name of the model that reads them.
            spare: Tokens of the window that the plan left free in this kind of prompt.
        """
        shown = [self._proposal(row.id) for row in rows]
        seats = {
            judge.id: piece for judge, piece in zip(self.requests.params.judges, self.texts.critiques, strict=True)
        }
        for row in rows:
            for group in row.critiques:
                written = self.minutes.written.get((row.id, group.evaluator), Written())
                shown.append(Text(group.texts, seats[group.evaluator], written))
        planned = [*self.texts.proposals, *self.texts.critiques * len(self.texts.proposals)]
        room = spare + sum(piece.room(reader) for piece in planned)
        found = iter(fitted(shown, reader, room))
        proposals = [next(found)[0] for _ in rows]
        seen = [
            replace(
                row,
                id=self._label(row.id),
                text=text,
                critiques=tuple(replace(group, texts=next(found)) for group in row.critiques),
            )
            for row, text in zip(rows, proposals, strict=True)
        ]
        left = max(0, room - sum(text.need(reader) for text in shown))
        return seen, self._entries(entries, left + sum(piece.room(reader) for piece in self.texts.ledger))

    def _entries(self, entries: Sequence[str], room: int) -> list[str]:
        if not self.texts.ledger:
            return list(entries)  # the compact style shows none
        rate = max((one.rate for one in self.minutes.written.values()), default=Written().rate)
        return cut_entries(entries, room, rate)

    def _proposal(self, one: str) -> Text:
        seat = int(one[1]) - 1
        written = self.minutes.written.get((one,), Written())
        return Text((self.minutes.proposals[one].text,), self.texts.proposals[seat], written)

    def _label(self, proposal: str) -> str:
        return label(proposal, self.requests.form)
