"""What a resumed run already knows: results and failures by step, and when each may be used again.

A finished step gives its result again if the request is the same. A failure is given again only if the
topology went on after it (it asked for something else once it knew); otherwise the step is tried again.
``asked`` is the journal position at which the topology asked for a step, so ``asked >= seq of a failure``
means that the topology may have acted on the failure. Refusals by a budget are forgotten when the limits have
changed since; what was asked after a forgotten refusal is kept, but may be replaced (``loose``).

A topology catches the errors of its members, and a divergence must not pass for one of them: the first
divergence is kept, every later step raises it again, and the run ends with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from romanesco.errors import BudgetExceeded, Diverged, StopReason


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
    """

    seq: int = 0
    asked: int = 0
    fingerprint: str = ""
    data: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    attempts: int = 0
    open: int = 0
    loose: bool = False


StepId = tuple[str, str]
"""A step's node and key."""


def place_of(path: str) -> StepId:
    """The step of its parent that a child node is."""
    parent, _, name = path.rpartition("/")
    return parent or "/", f"spawn:{name}"


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
        below = node.rstrip("/") + "/"
        for step in [step for step in self.steps if step[0] == node or step[0].startswith(below)]:
            del self.steps[step]

    def attempts(self, node: str, key: str) -> int:
        """Attempts that were started before."""
        recorded = self.steps.get((node, key))
        return recorded.attempts if recorded is not None else 0

    def interrupted(self, node: str, key: str) -> bool:
        """Whether an attempt was in flight when a process died."""
        recorded = self.steps.get((node, key))
        return recorded is not None and recorded.open > 0


def settle_failures(steps: dict[StepId, Recorded], *, limits_changed_at: int, reopened_at: int) -> None:
    """Drop the failures that are to be tried again; mark what was asked after a dropped refusal as loose.

    Args:
        steps: Recorded steps, changed in place.
        limits_changed_at: Position of the last change of limits, 0 if none.
        reopened_at: Position of the last ``run.ended`` that a resume follows, 0 if none: a person asked to go on.
    """
    latest_question: dict[str, int] = {}
    for (node, _), recorded in steps.items():
        latest_question[node] = max(latest_question.get(node, 0), recorded.asked)
    dropped: dict[str, int] = {}
    for (node, _), recorded in steps.items():
        failure = recorded.failure
        if failure is None or recorded.data is not None:
            continue
        refusal = failure["error"] == BudgetExceeded.code
        went_on = latest_question[node] >= recorded.seq
        if (refusal and recorded.seq < max(limits_changed_at, reopened_at)) or not went_on:
            dropped[node] = min(dropped.get(node, recorded.seq), recorded.seq)
            recorded.failure = None
    for (node, key), recorded in list(steps.items()):
        if key == "node.ended" and recorded.data is not None:
            outcome = recorded.data["outcome"]
            cut = outcome["reason"] in (StopReason.BUDGET, StopReason.DEADLINE) and recorded.seq < limits_changed_at
            if outcome["status"] != "completed" and (recorded.seq < reopened_at or cut):
                del steps[node, key]
                parent, _ = place_of(node)
                dropped[parent] = min(dropped.get(parent, recorded.seq), recorded.seq)
    for (node, key), recorded in list(steps.items()):
        if node in dropped and max(recorded.asked, recorded.seq if not recorded.asked else 0) >= dropped[node]:
            if key.startswith("record:"):
                del steps[node, key]  # decided without what is tried again now
            else:
                recorded.loose = True


def memo_from(events: Iterable[tuple[int, str, str, str, dict[str, Any]]]) -> dict[StepId, Recorded]:
    """Recorded steps from ``(seq, kind, node, key, data)`` of a run's events, payloads resolved."""
    steps: dict[StepId, Recorded] = {}
    for seq, kind, node, key, data in events:
        if kind == "call.started":
            step = steps.setdefault((node, key), Recorded())
            step.attempts += 1
            step.open += 1
            step.asked = data["asked"]
            step.fingerprint = data["fingerprint"]
        elif kind == "call.failed":
            steps[node, key].open -= 1
        elif kind == "call.finished":
            step = steps[node, key]
            step.open -= 1
            step.seq, step.data, step.failure = seq, data, None
        elif kind in ("step.finished", "step.failed"):
            step = steps.setdefault((node, key), Recorded())
            step.seq, step.asked, step.fingerprint = seq, data["asked"], data["fingerprint"]
            if kind == "step.finished":
                step.data, step.failure = data, None
            else:
                step.failure = data
        elif kind in ("node.opened", "node.ended"):
            steps[node, key] = Recorded(seq=seq, data=data)
            # Opening a child is a question of its parent's; a refused child was never opened.
            if kind == "node.opened" or place_of(node) not in steps:
                steps[place_of(node)] = Recorded(seq=seq, asked=seq, fingerprint=data["fingerprint"], data=data)
        elif key.startswith("record:"):
            steps[node, key] = Recorded(seq=seq, data=data)
    return steps
