"""What a resumed run already knows: results and failures by step, and when each may be used again.

A finished step gives its result again if the request is the same. A failure is given again only if the
topology went on after it; otherwise the step is tried again: see ``_refold``, which makes this memory.

A topology catches the errors of its members, and a divergence must not pass for one of them: the first
divergence is kept, every later step raises it again, and the run ends with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from romanesco.errors import Diverged


@dataclass(slots=True)
class Recorded:
    """What the journal holds of one step.

    Attributes:
        seq: Position of the event that ended it, 0 if none did.
        asked: Position at which the topology asked for it.
        fingerprint: Digest of what was asked.
        data: Data of the finishing event, payloads resolved; None if it did not finish.
        failure: Data of the failing event, if it failed for good.
        attempts: Attempts that were started.
        open: Attempts that were started and never ended: in flight when the process died.
        loose: Another request may take its place: it was asked after a failure that was tried again since.
        older: What the step had before another request took its place, by the older request's fingerprint.
    """

    seq: int = 0
    asked: int = 0
    fingerprint: str = ""
    data: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    attempts: int = 0
    open: int = 0
    loose: bool = False
    older: dict[str, Recorded] = field(default_factory=dict)

    def renew(self, fingerprint: str) -> None:
        """Another request takes the step's place: what it had is kept under its own fingerprint."""
        if fingerprint == self.fingerprint:
            return
        if self.data is not None:
            self.older[self.fingerprint] = replace(self, failure=None, older={})
        before = self.older.get(fingerprint)
        self.fingerprint, self.failure, self.loose = fingerprint, None, False
        self.data = None if before is None else before.data


StepId = tuple[str, str]
"""A step's node and key."""


def place_of(path: str) -> StepId:
    """The step of its parent that a child node is."""
    parent, _, name = path.rpartition("/")
    return parent or "/", f"spawn:{name}"


def forget(steps: dict[StepId, Recorded], node: str) -> None:
    """Drop what is recorded of a node and below it."""
    below = node.rstrip("/") + "/"
    for step in [step for step in steps if step[0] == node or step[0].startswith(below)]:
        del steps[step]


@dataclass(slots=True)
class Memo:
    """All recorded steps of a run.

    Args:
        steps: What the journal holds.
        live: False for a replay: a step that the journal does not hold is a divergence.
    """

    steps: dict[StepId, Recorded] = field(default_factory=dict)
    live: bool = True
    used: set[StepId] = field(default_factory=set)
    diverged: Diverged | None = None
    ran_out: bool = False

    def _diverge(self, error: Diverged) -> Diverged:
        if self.diverged is None:
            self.diverged = error
        return self.diverged

    def claim(self, node: str, key: str) -> None:
        """Note that a step's key is used in this session.

        Raises:
            Diverged: The key was used before in the same node: the second step would get the first's result.
                Or the run diverged before.
        """
        if self.diverged is not None:
            raise self.diverged
        step = (node, key)
        if step in self.used:
            raise self._diverge(
                Diverged(
                    "A topology used one step key twice", value=f"{node} {key}", advice="Give every step its own key."
                )
            )
        self.used.add(step)

    def find(self, node: str, key: str, fingerprint: str) -> Recorded | None:
        """The recorded step, if its result or failure may be used now.

        Raises:
            Diverged: The step was recorded for another request; or this is a replay and it is not recorded.
        """
        recorded = self.steps.get((node, key))
        if recorded is not None and (recorded.data is not None or recorded.failure is not None):
            if recorded.fingerprint == fingerprint:
                return recorded
            if not recorded.loose:
                raise self._diverge(
                    Diverged(
                        "The run asks for something else than it did before under the same key",
                        value=f"{node} {key}",
                        limit=f"fingerprint {recorded.fingerprint[:12]}, now {fingerprint[:12]}",
                        advice="The topology, a persona or a parameter changed since; start a new run.",
                    )
                )
        if recorded is not None and fingerprint in recorded.older:
            return recorded.older[fingerprint]
        if not self.live:
            self.ran_out = True
            raise self._diverge(
                Diverged(
                    "The replay needs a step that the journal does not hold",
                    value=f"{node} {key}",
                    advice="Resume the run instead.",
                )
            )
        return None

    def forget(self, node: str) -> None:
        """Drop what is recorded of a node and below it: another task takes its place."""
        if place_of(node) in self.steps:  # else it was never opened, and looking through all steps would find nothing
            forget(self.steps, node)

    def attempts(self, node: str, key: str) -> int:
        """Attempts that were started before."""
        recorded = self.steps.get((node, key))
        return recorded.attempts if recorded is not None else 0

    def interrupted(self, node: str, key: str) -> bool:
        """Whether an attempt was in flight when a process died."""
        recorded = self.steps.get((node, key))
        return recorded is not None and recorded.open > 0
