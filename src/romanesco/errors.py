"""Every error that Romanesco raises, in one tree.

::

    RomanescoError
    ├── InputError              what the user gave can't be used
    │   ├── ConfigError         a setting is wrong or missing
    │   ├── UnknownName         no topology, model, persona or run of that name
    │   └── PlanRefused         the budget or the model's window can't carry any plan
    ├── BudgetExceeded          an account refused a reservation
    ├── ModelError              a model call ended without a usable reply
    │   ├── KeyMissing          no key, or the server refused it
    │   ├── ConnectionFailed    nothing was sent: nobody answered at that address
    │   ├── ConnectionCut       the request was sent and the connection broke
    │   ├── RateLimited         429
    │   ├── ServerFault         5xx
    │   ├── RequestRejected     any other 4xx
    │   ├── ContextOverflow     the prompt is larger than the model's window
    │   ├── DeadlineExceeded    connect, first token, between tokens or total
    │   ├── ReplyUnreadable     what came back is not the protocol
    │   └── OutputInvalid       no rung of the structured-output ladder gave a value
    ├── EmbeddingFailed         the embedder gave no usable vectors
    ├── JournalError            the journal can't be read or written
    │   ├── JournalUnwritable   disk full, folder read-only, file locked for too long
    │   ├── JournalCorrupt      a stored event is not what its hash says
    │   ├── JournalTooNew       written by a later version
    │   └── RunBusy             another process owns this run
    ├── Diverged                a resumed run asks for something else than it did before
    ├── Refused                 a guard at a hook point refused
    ├── IllegalEvent            an automaton was given an event that its phase does not take
    └── RunStopped              the run or this node was told to stop

Each error says what happened, the value found, the limit it met and what to do. ``exit_code`` is the
command line's exit status for it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from romanesco.models._types import Usage


class StopReason(enum.StrEnum):
    """Why a run or a node ended. The same words are used by outcomes, exit codes and screens."""

    COMPLETED = "completed"
    BUDGET = "budget"
    DEADLINE = "deadline"
    LENGTH = "length"
    STOPPED = "stopped"
    MODEL = "model"
    INPUT = "input"
    REFUSED = "refused"
    STORAGE = "storage"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    INTERNAL = "internal"


EXIT_CODES: dict[StopReason, int] = {
    StopReason.COMPLETED: 0,
    StopReason.INTERNAL: 1,
    StopReason.INPUT: 2,
    StopReason.BUDGET: 3,
    StopReason.DEADLINE: 4,
    StopReason.STOPPED: 5,
    StopReason.MODEL: 6,
    StopReason.REFUSED: 7,
    StopReason.STORAGE: 8,
    StopReason.DIVERGED: 9,
    StopReason.LENGTH: 11,
    StopReason.INTERRUPTED: 130,
}
"""Exit status of the command line for each stop reason. 10 is ``romanesco verify`` finding a violation.

``LENGTH`` is an answer that its output cap cut.
"""


class RomanescoError(Exception):
    """Base of all errors.

    Args:
        what: What happened, as the start of a sentence.
        value: The value that was found, if there is one.
        limit: The limit or the permitted values, if there are any.
        advice: What the reader can do about it.
    """

    code: ClassVar[str] = "error"
    reason: StopReason = StopReason.INTERNAL

    def __init__(self, what: str, *, value: object = None, limit: object = None, advice: str = "") -> None:
        self.what = what
        self.value = value
        self.limit = limit
        self.advice = advice
        super().__init__(what)

    @property
    def exit_code(self) -> int:
        """Exit status of the command line for this error."""
        return EXIT_CODES[self.reason]

    def __str__(self) -> str:
        parts = [self.what]
        if self.value is not None:
            parts.append(f"got {self.value}")
        if self.limit is not None:
            parts.append(f"limit {self.limit}")
        text = "; ".join(parts)
        if not self.advice:
            return text
        # Other people's words are often the last: they may end a sentence themselves.
        return f"{text} {self.advice}" if text.endswith((".", "!", "?")) else f"{text}. {self.advice}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries in tests and engines; keyword-only arguments need this.
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(kind: type[RomanescoError], state: dict[str, object]) -> RomanescoError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (state.get("what"),)
    return error


class InputError(RomanescoError):
    """What the user gave can't be used: a goal, a source, an option."""

    code = "input"
    reason = StopReason.INPUT


class ConfigError(InputError):
    """A setting in ``romanesco.toml`` or the environment is wrong or missing."""

    code = "config"


class UnknownName(InputError):
    """No topology, model, persona or run of that name. The message lists the valid ones."""

    code = "unknown-name"


class PlanRefused(InputError):
    """The budget or the model's window can't carry any plan of this topology."""

    code = "plan-refused"
    reason = StopReason.REFUSED


class BudgetExceeded(RomanescoError):
    """An account refused a reservation.

    Attributes:
        account: Full name of the account that refused.
        dimension: Which of its dimensions: ``tokens``, ``tokens_in``, ``tokens_out``, ``usd``, ``calls``,
            ``nodes`` or ``seconds``.
    """

    code = "budget"
    reason = StopReason.BUDGET

    def __init__(
        self,
        what: str,
        *,
        account: str,
        dimension: str,
        value: object = None,
        limit: object = None,
        advice: str = "",
    ) -> None:
        super().__init__(what, value=value, limit=limit, advice=advice)
        self.account = account
        self.dimension = dimension
        if dimension == "seconds":
            self.reason = StopReason.DEADLINE  # time is reported as a deadline


class ModelError(RomanescoError):
    """A model call ended without a usable reply.

    Attributes:
        retryable: Whether the same request may succeed later.
        sent: Whether the request may have reached the server, so that it may have been paid for. An adapter
            that knows better than the class says so on the instance.
        usage: Tokens that the server truthfully reported before the attempt failed, or None.
    """

    code = "model"
    reason = StopReason.MODEL
    retryable: bool = False
    sent: bool = True
    usage: Usage | None = None


class KeyMissing(ModelError):
    """No key is set for the provider, or the server refused the one it got."""

    code = "key-missing"


class ConnectionFailed(ModelError):
    """Nobody answered at the address: nothing was sent and nothing was spent."""

    code = "connection-failed"
    retryable = True
    sent = False


class ConnectionCut(ModelError):
    """The request was sent and the connection broke before the reply was whole."""

    code = "connection-cut"
    retryable = True


class RateLimited(ModelError):
    """The server answered 429.

    Attributes:
        retry_after: Seconds to wait as told by the server, or None.
    """

    code = "rate-limited"
    retryable = True

    def __init__(self, what: str, *, retry_after: float | None = None, value: object = None, advice: str = "") -> None:
        super().__init__(what, value=value, advice=advice)
        self.retry_after = retry_after


class ServerFault(ModelError):
    """The server answered with a 5xx status."""

    code = "server-fault"
    retryable = True


class RequestRejected(ModelError):
    """The server rejected the request with a 4xx status that is not one of the others."""

    code = "request-rejected"


class ContextOverflow(ModelError):
    """The prompt is larger than the model's window."""

    code = "context-overflow"


class DeadlineExceeded(ModelError):
    """A deadline passed.

    Attributes:
        phase: ``connect``, ``first_token``, ``between_tokens`` or ``total``.
    """

    code = "deadline"
    retryable = True

    def __init__(self, what: str, *, phase: str, value: object = None, limit: object = None, advice: str = "") -> None:
        super().__init__(what, value=value, limit=limit, advice=advice)
        self.phase = phase


class ReplyUnreadable(ModelError):
    """What came back is not the protocol: broken JSON, no choices, a wrong content type."""

    code = "reply-unreadable"
    retryable = True


class OutputInvalid(ModelError):
    """No rung of the structured-output ladder gave a value that fits the schema."""

    code = "output-invalid"


class EmbeddingFailed(RomanescoError):
    """The embedder gave no usable vectors. Whatever was to be measured is unknown."""

    code = "embedding"
    reason = StopReason.MODEL


class JournalError(RomanescoError):
    """The journal can't be read or written."""

    code = "journal"
    reason = StopReason.STORAGE


class JournalUnwritable(JournalError):
    """Disk full, folder read-only, or the file stayed locked for too long."""

    code = "journal-unwritable"


class JournalCorrupt(JournalError):
    """A stored event is not what its hash says, or the file is not a journal."""

    code = "journal-corrupt"


class JournalTooNew(JournalError):
    """The journal was written by a later version of Romanesco."""

    code = "journal-too-new"


class RunBusy(JournalError):
    """Another process owns this run."""

    code = "run-busy"
    reason = StopReason.INPUT  # the journal is well: what was asked for can't be done now


class Diverged(RomanescoError):
    """A resumed run asks for something else than it did before under the same key."""

    code = "diverged"
    reason = StopReason.DIVERGED


class Refused(RomanescoError):
    """A guard at a hook point refused what was about to happen."""

    code = "refused"
    reason = StopReason.REFUSED


class IllegalEvent(RomanescoError):
    """An event that an automaton does not accept in its phase: a mistake in its driver, never in a model's reply."""

    code = "illegal-event"


class RunStopped(RomanescoError):
    """The run, or the node that this was called in, was told to stop.

    Args:
        what: Who stopped it.
        stop_reason: Why, as the outcome will say it.
    """

    code = "stopped"

    def __init__(self, what: str, *, stop_reason: StopReason = StopReason.STOPPED) -> None:
        super().__init__(what)
        self.reason = stop_reason
