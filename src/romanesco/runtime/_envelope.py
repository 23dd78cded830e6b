"""What travels with every delegation."""

from __future__ import annotations

from dataclasses import dataclass

from romanesco.journal import digest


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels with every delegation. It is runtime data: a model sees of it only the root goal, declared.

    Attributes:
        root_text: The root's goal.
        root_hash: Its digest.
        parent_hash: Digest of the parent's goal, "" at the root.
        unit_hash: Digest of this node's own goal.
        path: Roles from the root to here, never flattened.
    """

    root_text: str
    root_hash: str
    parent_hash: str
    unit_hash: str
    path: tuple[str, ...]

    @classmethod
    def root(cls, goal: str) -> Envelope:
        """The root's envelope."""
        return cls(goal, digest(goal), "", digest(goal), ())

    def below(self, name: str, goal: str) -> Envelope:
        """A child's envelope."""
        return Envelope(self.root_text, self.root_hash, self.unit_hash, digest(goal), (*self.path, name))
